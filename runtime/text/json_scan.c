#include "runtime/text/json_scan.h"

#include "runtime/text/hex.h"
#include "runtime/text/json_plain.h"
#include "runtime/text/utf8.h"

#include <string.h>

enum json_token hutch_json_scan_refuse(const struct json_scan *s, const char *why)
{
    uint64_t line = s->line, column = s->column;

    for (size_t i = 0; i < s->at; i++) {
        if (s->text[i] == '\n') {
            line++;
            column = 1;
        } else if ((s->text[i] & 0xc0) != 0x80) {
            column++;
        }
    }
    return hutch_err_set(s->err, 0, "%s: line %llu, column %llu: %s", s->what, (unsigned long long)line,
                         (unsigned long long)column, why);
}

static int peek(const struct json_scan *s)
{
    return s->at < s->len ? (unsigned char)s->text[s->at] : -1;
}

static void skip_space(struct json_scan *s)
{
    int c;

    while ((c = peek(s)) == ' ' || c == '\t' || c == '\n' || c == '\r')
        s->at++;
}

/* ---- strings ---- */

static bool scan_hex4(struct json_scan *s, unsigned *ret)
{
    *ret = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        int digit = hutch_hex_digit(peek(s));

        if (digit < 0)
            return false;
        *ret = *ret << 4 | (unsigned)digit;
    }
    return true;
}

static bool is_high_surrogate(unsigned code)
{
    return code >= 0xd800 && code <= 0xdbff;
}

static bool is_low_surrogate(unsigned code)
{
    return code >= 0xdc00 && code <= 0xdfff;
}

/* The second half of a pair, where the first one has been. */
static bool scan_low_surrogate(struct json_scan *s)
{
    unsigned code;

    if (s->len - s->at < 2 || memcmp(s->text + s->at, "\\u", 2) != 0)
        return false;
    s->at += 2;
    return scan_hex4(s, &code) && is_low_surrogate(code);
}

static int scan_escape(struct json_scan *s)
{
    unsigned code;
    int c;

    s->at++;
    c = peek(s);
    if (c <= 0 || !strchr("\"\\/bfnrtu", c))
        return hutch_json_scan_refuse(s, "unknown escape in a string");
    s->at++;
    if (c != 'u')
        return 0;
    if (!scan_hex4(s, &code))
        return hutch_json_scan_refuse(s, "expected four hexadecimal digits after \\u");
    if (code == 0 && s->flags & JSON_NO_CONTROL) /* would end the C string early: "/etc/x\u0000.json" */
        return hutch_json_scan_refuse(s, "\\u0000 in a string");
    if (s->flags & JSON_TAKES_SURROGATES)
        return 0;
    if (is_low_surrogate(code) || (is_high_surrogate(code) && !scan_low_surrogate(s)))
        return hutch_json_scan_refuse(s, "half a surrogate pair in a string");
    return 0;
}

static int scan_string(struct json_scan *s)
{
    s->at++;
    for (;;) {
        int c;

        s->at += hutch_json_plain_len(s->text + s->at, s->len - s->at);
        c = peek(s);
        if (c < 0)
            return hutch_json_scan_refuse(s, "the string does not end");
        if (c < 0x20 || (c == 0x7f && s->flags & JSON_NO_CONTROL))
            return hutch_json_scan_refuse(s, "a control character in a string");
        if (c == '\\') {
            if (scan_escape(s) < 0)
                return -1;
        } else if (c >= 0x80) {
            enum utf8_kind kind;
            size_t len = hutch_utf8_next(s->text + s->at, s->len - s->at, &kind);

            if (kind != UTF8_CHAR)
                return hutch_json_scan_refuse(s, "a byte that is not UTF-8");
            s->at += len;
        } else {
            s->at++;
            if (c == '"')
                return 0;
        }
    }
}

/* ---- numbers and words ---- */

static int scan_digits(struct json_scan *s)
{
    size_t from = s->at;

    while (peek(s) >= '0' && peek(s) <= '9')
        s->at++;
    return s->at > from ? 0 : hutch_json_scan_refuse(s, "expected a digit");
}

static int scan_number(struct json_scan *s)
{
    s->is_float = false;
    if (peek(s) == '-')
        s->at++;
    if (peek(s) == '0') {
        s->at++;
        if (peek(s) >= '0' && peek(s) <= '9')
            return hutch_json_scan_refuse(s, "a number cannot start with 0 and go on");
    } else if (scan_digits(s) < 0) {
        return -1;
    }
    if (peek(s) == '.') {
        s->is_float = true;
        s->at++;
        if (scan_digits(s) < 0)
            return -1;
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->is_float = true;
        s->at++;
        if (peek(s) == '+' || peek(s) == '-')
            s->at++;
        if (scan_digits(s) < 0)
            return -1;
    }
    return 0;
}

static bool scan_word(struct json_scan *s, const char *word)
{
    size_t len = strlen(word);

    if (s->len - s->at < len || memcmp(s->text + s->at, word, len) != 0)
        return false;
    s->at += len;
    return true;
}

static bool scan_not_finite(struct json_scan *s)
{
    s->is_float = true;
    return s->flags & JSON_TAKES_NAN && (scan_word(s, "NaN") || scan_word(s, "Infinity") || scan_word(s, "-Infinity"));
}

/* Of UTF-8 or, in either order, of UTF-16. No editor shows it. */
static bool is_byte_order_mark(const struct json_scan *s)
{
    const char *text = s->text + s->at;
    size_t len = s->len - s->at;

    return (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) ||
           (len >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0));
}

static enum json_token scan_scalar(struct json_scan *s, int c)
{
    if (c < 0)
        return hutch_json_scan_refuse(s, "the text ends where a value should stand");
    if (c == '"')
        return scan_string(s) < 0 ? JSON_ERROR : JSON_STRING;
    if (scan_not_finite(s))
        return JSON_NUMBER;
    if (c == '-' || (c >= '0' && c <= '9'))
        return scan_number(s) < 0 ? JSON_ERROR : JSON_NUMBER;
    if (scan_word(s, "null"))
        return JSON_NULL;
    if (scan_word(s, "true"))
        return JSON_TRUE;
    if (scan_word(s, "false"))
        return JSON_FALSE;
    return hutch_json_scan_refuse(s, is_byte_order_mark(s) ? "a byte order mark: save the file as UTF-8 without one"
                                                           : "expected a value");
}

/* ---- arrays and objects ---- */

static bool is_in_object(const struct json_scan *s)
{
    unsigned level = s->depth - 1;

    return s->is_object[level / 8] >> level % 8 & 1;
}

static enum json_token scan_open(struct json_scan *s, int c)
{
    unsigned bit = 1u << s->depth % 8;
    uint8_t *bits = &s->is_object[s->depth / 8];

    if (s->depth >= s->max_depth)
        return hutch_json_scan_refuse(s, "nested too deeply");
    *bits = (uint8_t)(c == '{' ? *bits | bit : *bits & ~bit);
    s->depth++;
    s->at++;
    s->state = JSON_AT_FIRST;
    return c == '{' ? JSON_OBJECT : JSON_ARRAY;
}

static enum json_token scan_close(struct json_scan *s)
{
    s->depth--;
    s->at++;
    s->state = JSON_AFTER_VALUE;
    return JSON_CLOSE;
}

static enum json_token refuse_end(const struct json_scan *s, bool is_object)
{
    return hutch_json_scan_refuse(s, is_object ? "the text ends within an object" : "the text ends within an array");
}

static enum json_token scan_key(struct json_scan *s, int c)
{
    if (c != '"')
        return c < 0 ? refuse_end(s, true) : hutch_json_scan_refuse(s, "expected a key in double quotes");
    if (scan_string(s) < 0)
        return JSON_ERROR;
    s->token_len = s->at - (size_t)(s->token - s->text);
    skip_space(s);
    if (peek(s) != ':')
        return hutch_json_scan_refuse(s, "expected ':' after a key");
    s->at++;
    s->state = JSON_AT_VALUE;
    return JSON_KEY;
}

static enum json_token scan_value(struct json_scan *s, int c)
{
    enum json_token token = c == '{' || c == '[' ? scan_open(s, c) : scan_scalar(s, c);

    if (token >= JSON_STRING)
        s->state = JSON_AFTER_VALUE;
    s->token_len = s->at - (size_t)(s->token - s->text);
    return token;
}

/* What stands between one member and the next. */
static int scan_comma(struct json_scan *s, int c)
{
    bool is_object = is_in_object(s);

    if (c < 0)
        return refuse_end(s, is_object);
    if (c != ',')
        return hutch_json_scan_refuse(s, is_object ? "expected ',' or '}'" : "expected ',' or ']'");
    s->at++;
    skip_space(s);
    return 0;
}

enum json_token hutch_json_scan_next(struct json_scan *s)
{
    int c;

    skip_space(s);
    c = peek(s);
    if (s->state == JSON_AFTER_VALUE && s->depth == 0)
        return c < 0 ? JSON_END : hutch_json_scan_refuse(s, "something follows the end of the value");
    if (s->state == JSON_AT_FIRST || s->state == JSON_AFTER_VALUE) {
        s->token = s->text + s->at;
        s->token_len = 1;
        if (c == (is_in_object(s) ? '}' : ']'))
            return scan_close(s);
        if (s->state == JSON_AFTER_VALUE && scan_comma(s, c) < 0)
            return JSON_ERROR;
        c = peek(s);
        s->state = is_in_object(s) ? JSON_AT_KEY : JSON_AT_VALUE;
    }
    s->token = s->text + s->at;
    return s->state == JSON_AT_KEY ? scan_key(s, c) : scan_value(s, c);
}

/* ---- what a string says ---- */

static unsigned read_hex4(const char *p)
{
    return (unsigned)(hutch_hex_digit(p[0]) << 12 | hutch_hex_digit(p[1]) << 8 | hutch_hex_digit(p[2]) << 4 |
                      hutch_hex_digit(p[3]));
}

size_t hutch_json_scan_unescape(const char *token, size_t len, const char *nul, size_t nul_len, char *to)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *p = token + 1, *end = token + len - 1, *start = to;

    while (p < end) {
        unsigned code, low;

        if (*p != '\\') {
            const char *escape = memchr(p, '\\', (size_t)(end - p));
            size_t plain = (size_t)((escape ? escape : end) - p);

            to = mempcpy(to, p, plain);
            p += plain;
            continue;
        }
        if (p[1] != 'u') {
            *to++ = meanings[strchr(letters, p[1]) - letters];
            p += 2;
            continue;
        }
        code = read_hex4(p + 2);
        p += 6;
        if (is_high_surrogate(code) && end - p >= 6 && p[0] == '\\' && p[1] == 'u') {
            low = read_hex4(p + 2);
            if (is_low_surrogate(low)) {
                code = 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
                p += 6;
            }
        }
        if (code == 0)
            to = mempcpy(to, nul, nul_len);
        else
            to += hutch_utf8_encode(code, to);
    }
    *to = '\0';
    return (size_t)(to - start);
}
