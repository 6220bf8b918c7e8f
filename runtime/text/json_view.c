#include "runtime/text/json_view.h"

#include "runtime/text/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- checking ---- */

struct scan {
    const char *start, *p, *end;
    const char *why; /* what is wrong at p */
};

static int fail(struct scan *s, const char *why)
{
    s->why = why;
    return -1;
}

static void skip_space(struct scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
}

/* The length of the character at @text, 1 to 4, or 0 when it is not UTF-8. */
static size_t utf8_len(const char *text, size_t left)
{
    enum utf8_kind kind = UTF8_CUT;
    size_t len = left ? hutch_utf8_next(text, left, &kind) : 0;

    return kind == UTF8_CHAR ? len : 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))
        return (c | 0x20) - 'a' + 10;
    return -1;
}

static int scan_escape(struct scan *s)
{
    s->p++;
    if (s->p == s->end || *s->p == '\0' || !strchr("\"\\/bfnrtu", *s->p))
        return fail(s, "unknown escape in a string");
    if (*s->p++ != 'u')
        return 0;
    for (int i = 0; i < 4; i++, s->p++)
        if (s->p == s->end || hex_digit(*s->p) < 0)
            return fail(s, "expected four hexadecimal digits after \\u");
    return 0;
}

static int scan_string(struct scan *s)
{
    s->p++;
    while (s->p < s->end) {
        unsigned char c = (unsigned char)*s->p;
        size_t len;

        if (c == '"') {
            s->p++;
            return 0;
        }
        if (c == '\\') {
            if (scan_escape(s) < 0)
                return -1;
            continue;
        }
        if (c < 0x20)
            return fail(s, "a control character in a string");
        len = c < 0x80 ? 1 : utf8_len(s->p, (size_t)(s->end - s->p));
        if (len == 0)
            return fail(s, "a byte that is not UTF-8");
        s->p += len;
    }
    return fail(s, "the string does not end");
}

static bool scan_digits(struct scan *s)
{
    const char *from = s->p;

    while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
        s->p++;
    return s->p > from;
}

static bool scan_word(struct scan *s, const char *word)
{
    size_t len = strlen(word);

    if ((size_t)(s->end - s->p) < len || memcmp(s->p, word, len) != 0)
        return false;
    s->p += len;
    return true;
}

static int scan_number(struct scan *s)
{
    if (*s->p == '-')
        s->p++;
    if (scan_word(s, "Infinity"))
        return 0;
    if (s->p < s->end && *s->p == '0')
        s->p++;
    else if (!scan_digits(s))
        return fail(s, "expected a value");
    if (s->p < s->end && *s->p == '.') {
        s->p++;
        if (!scan_digits(s))
            return fail(s, "expected a digit");
    }
    if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
        s->p++;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
            s->p++;
        if (!scan_digits(s))
            return fail(s, "expected a digit");
    }
    return 0;
}

static int scan_value(struct scan *s, unsigned depth);

/* An object or an array: they differ in the brackets and in the keys. */
static int scan_members(struct scan *s, unsigned depth)
{
    bool is_object = *s->p == '{';
    char close = is_object ? '}' : ']';

    if (depth == JSON_VIEW_MAX_DEPTH)
        return fail(s, "nested too deeply");
    s->p++;
    skip_space(s);
    if (s->p < s->end && *s->p == close) {
        s->p++;
        return 0;
    }
    for (;;) {
        if (is_object) {
            skip_space(s);
            if (s->p == s->end || *s->p != '"')
                return fail(s, s->p == s->end ? "the text ends within an object" : "expected a key in quotes");
            if (scan_string(s) < 0)
                return -1;
            skip_space(s);
            if (s->p == s->end || *s->p != ':')
                return fail(s, "expected ':' after a key");
            s->p++;
        }
        if (scan_value(s, depth + 1) < 0)
            return -1;
        skip_space(s);
        if (s->p == s->end)
            return fail(s, is_object ? "the text ends within an object" : "the text ends within an array");
        if (*s->p == close) {
            s->p++;
            return 0;
        }
        if (*s->p != ',')
            return fail(s, is_object ? "expected ',' or '}'" : "expected ',' or ']'");
        s->p++;
    }
}

static int scan_value(struct scan *s, unsigned depth)
{
    skip_space(s);
    if (s->p == s->end)
        return fail(s, "the text ends where a value should stand");
    if (*s->p == '{' || *s->p == '[')
        return scan_members(s, depth);
    if (*s->p == '"')
        return scan_string(s);
    if (*s->p == '-' || (*s->p >= '0' && *s->p <= '9'))
        return scan_number(s);
    if (scan_word(s, "true") || scan_word(s, "false") || scan_word(s, "null") || scan_word(s, "NaN") ||
        scan_word(s, "Infinity"))
        return 0;
    return fail(s, "expected a value");
}

int hutch_json_view_check(const char *what, uint64_t line, uint64_t column, const char *text, size_t len,
                          struct json_view *ret, struct hutch_err *err)
{
    struct scan s = { .start = text, .p = text, .end = text + len };
    const char *from;

    skip_space(&s);
    from = s.p;
    if (scan_value(&s, 0) == 0) {
        *ret = (struct json_view){ from, (size_t)(s.p - from) };
        skip_space(&s);
        if (s.p == s.end)
            return 0;
        s.why = "something follows after the end of the value";
    }
    for (const char *p = text; p < s.p; p++) {
        column = *p == '\n' ? 1 : column + 1;
        line += *p == '\n';
    }
    return hutch_err_set(err, 0, "%s: line %llu, column %llu: %s", what, (unsigned long long)line, (unsigned long long)column,
                         s.why);
}

/* ---- looking ---- */

bool hutch_json_view_is_object(struct json_view value)
{
    return value.text && *value.text == '{';
}

bool hutch_json_view_is_array(struct json_view value)
{
    return value.text && *value.text == '[';
}

bool hutch_json_view_is_string(struct json_view value)
{
    return value.text && *value.text == '"';
}

bool hutch_json_view_is_null(struct json_view value)
{
    return !value.text || *value.text == 'n';
}

/* Past a value that was checked before. Needs no recursion: brackets outside of strings are in balance. */
static const char *skip_value(const char *p, const char *end)
{
    unsigned depth = 0;

    do {
        if (*p == '"') {
            for (p++; *p != '"'; p++)
                p += *p == '\\';
            p++;
        } else if (*p == '{' || *p == '[') {
            depth++;
            p++;
        } else if (*p == '}' || *p == ']') {
            depth--;
            p++;
        } else if (depth) {
            p++;
        } else {
            while (p < end && !strchr(",]} \t\r\n", *p))
                p++;
        }
    } while (depth && p < end);
    return p;
}

struct json_walk hutch_json_view_walk(struct json_view container)
{
    if (!hutch_json_view_is_object(container) && !hutch_json_view_is_array(container))
        return (struct json_walk){ NULL, NULL, false };
    return (struct json_walk){ container.text + 1, container.text + container.len - 1, *container.text == '{' };
}

static const char *past(const char *p, const char *end, const char *skipped)
{
    while (p < end && *p && strchr(skipped, *p))
        p++;
    return p;
}

bool hutch_json_view_next(struct json_walk *walk, struct json_view *ret_key, struct json_view *ret_value)
{
    const char *p = past(walk->p, walk->end, ", \t\r\n"), *from;

    if (p == walk->end)
        return false;
    if (walk->is_object) {
        from = p;
        p = skip_value(p, walk->end);
        if (ret_key)
            *ret_key = (struct json_view){ from, (size_t)(p - from) };
        p = past(p, walk->end, ": \t\r\n");
    }
    from = p;
    p = skip_value(p, walk->end);
    *ret_value = (struct json_view){ from, (size_t)(p - from) };
    walk->p = p;
    return true;
}

size_t hutch_json_view_count(struct json_view container)
{
    struct json_walk walk = hutch_json_view_walk(container);
    struct json_view value;
    size_t n = 0;

    while (hutch_json_view_next(&walk, NULL, &value))
        n++;
    return n;
}

struct json_view hutch_json_view_get(struct json_view object, const char *key)
{
    struct json_walk walk = hutch_json_view_walk(object);
    struct json_view name, value, found = JSON_VIEW_NONE;
    size_t len = strlen(key);

    while (walk.is_object && hutch_json_view_next(&walk, &name, &value))
        if (name.len == len + 2 && memcmp(name.text + 1, key, len) == 0)
            found = value;
    return found;
}

static unsigned read_hex4(const char *p)
{
    return (unsigned)(hex_digit(p[0]) << 12 | hex_digit(p[1]) << 8 | hex_digit(p[2]) << 4 | hex_digit(p[3]));
}

static size_t put_utf8(char *to, unsigned code)
{
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (char)(0xc0 | code >> 6);
        to[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (char)(0xe0 | code >> 12);
        to[1] = (char)(0x80 | (code >> 6 & 0x3f));
        to[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | code >> 18);
    to[1] = (char)(0x80 | (code >> 12 & 0x3f));
    to[2] = (char)(0x80 | (code >> 6 & 0x3f));
    to[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

int hutch_json_view_text(struct json_view value, char **ret, size_t *ret_len, struct hutch_err *err)
{
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *p = value.text + 1, *end = value.text + value.len - 1;
    char *text = malloc(value.len), *to = text; /* no escape is shorter than what it stands for */

    if (!text)
        return hutch_err_set(err, ENOMEM, "read a text of %zu bytes", value.len);
    while (p < end) {
        unsigned code, low;

        if (*p != '\\') {
            *to++ = *p++;
            continue;
        }
        if (p[1] != 'u') {
            *to++ = meant[strchr(escapes, p[1]) - escapes];
            p += 2;
            continue;
        }
        code = read_hex4(p + 2);
        p += 6;
        if (code >= 0xd800 && code < 0xdc00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u') {
            low = read_hex4(p + 2);
            if (low >= 0xdc00 && low < 0xe000) {
                code = 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
                p += 6;
            }
        }
        to += put_utf8(to, code);
    }
    *to = '\0';
    *ret = text;
    if (ret_len)
        *ret_len = (size_t)(to - text);
    return 0;
}

bool hutch_json_view_integer(struct json_view value, int64_t *ret)
{
    char text[24], *end;

    if (!value.text || value.len >= sizeof(text) || (*value.text != '-' && !(*value.text >= '0' && *value.text <= '9')))
        return false;
    memcpy(text, value.text, value.len);
    text[value.len] = '\0';
    errno = 0;
    *ret = strtoll(text, &end, 10);
    return errno == 0 && *end == '\0';
}

bool hutch_json_view_is(struct json_view value, const char *text)
{
    size_t len = strlen(text);

    return hutch_json_view_is_string(value) && value.len == len + 2 && memcmp(value.text + 1, text, len) == 0;
}
