#include "runtime/text/json_write.h"

#include "runtime/text/ansi.h"
#include "runtime/text/base64.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_plain.h"
#include "runtime/text/nbjson.h"
#include "runtime/text/utf8.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* No byte becomes more than the six of "\\u0001". */
#define ESCAPED_MAX 6
#define BLOCK 4096

/* What follows the backslash; 'u': four digits do; 0: the character stands as it is. */
static const char escapes[0x80] = {
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'b', 't', 'n', 'u', 'f', 'r', 'u', 'u',
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u',
    ['"'] = '"', ['\\'] = '\\', [0x7f] = 'u',
};

static char *put_code(char *to, unsigned code)
{
    static const char digits[] = "0123456789abcdef";

    *to++ = '\\';
    *to++ = 'u';
    for (int shift = 12; shift >= 0; shift -= 4)
        *to++ = digits[code >> shift & 0xf];
    return to;
}

static char *put_ascii(char *to, unsigned char c, bool is_python)
{
    char escape = is_python && c == 0x7f ? 0 : escapes[c];

    if (escape == 'u')
        return put_code(to, c);
    if (escape)
        *to++ = '\\';
    *to++ = escape ? escape : (char)c;
    return to;
}

/* A character of several bytes, or a broken one. *@ret_step: its length. */
static char *put_wide(char *to, const char *data, size_t len, bool is_python, size_t *ret_step)
{
    enum utf8_kind kind;
    size_t step = hutch_utf8_next(data, len, &kind);
    unsigned code = kind == UTF8_CHAR ? hutch_utf8_decode(data, step) : 0;

    *ret_step = step;
    if (kind == UTF8_CHAR)
        return !is_python && hutch_ansi_obeys(code) ? put_code(to, code) : mempcpy(to, data, step);
    if (is_python && len >= 2 && memcmp(data, NBJSON_NUL, 2) == 0) {
        *ret_step = 2;
        return put_code(to, 0);
    }
    return mempcpy(to, UTF8_REPLACEMENT, strlen(UTF8_REPLACEMENT));
}

static void escape(struct text_buffer *t, const char *data, size_t len, bool is_python)
{
    size_t i = 0;

    while (i < len) {
        size_t end = len - i < BLOCK ? len : i + BLOCK, step;
        char *begin = hutch_text_reserve(t, (end - i) * ESCAPED_MAX), *to = begin;

        if (!begin)
            return;
        for (; i < end; i += step) {
            size_t plain = hutch_json_plain_len(data + i, end - i);

            step = plain ? plain : 1;
            if (plain)
                to = mempcpy(to, data + i, plain);
            else if ((unsigned char)data[i] < 0x80)
                to = put_ascii(to, (unsigned char)data[i], is_python);
            else
                to = put_wide(to, data + i, len - i, is_python, &step);
        }
        hutch_text_extend(t, (size_t)(to - begin));
    }
}

static void quote(struct text_buffer *t, const char *data, size_t len, bool is_python)
{
    hutch_text_add(t, "\"", 1);
    escape(t, data, len, is_python);
    hutch_text_add(t, "\"", 1);
}

void hutch_json_quote(struct text_buffer *t, const char *data, size_t len)
{
    quote(t, data, len, false);
}

void hutch_json_quote_python(struct text_buffer *t, const char *text)
{
    quote(t, text, strlen(text), true);
}

/* The same as a text of its own: cJSON takes C strings only, so it would end at the first NUL. NULL on ENOMEM. */
static char *format_string(const char *data, size_t len)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_json_quote(&t, data, len);
    return hutch_text_take(&t, NULL);
}

bool hutch_json_add(cJSON *object, const char *key, cJSON *item)
{
    if (item == NULL)
        return false;
    /* The keys are static text, which is not copied. Fails only for a NULL object, whose making failed before. */
    if (cJSON_AddItemToObjectCS(object, key, item))
        return true;
    cJSON_Delete(item);
    return false;
}

bool hutch_json_add_text(cJSON *object, const char *key, const char *data, size_t len)
{
    auto_free char *quoted = format_string(data, len);

    return quoted != NULL && hutch_json_add(object, key, cJSON_CreateRaw(quoted));
}

bool hutch_json_add_string(cJSON *object, const char *key, const char *text)
{
    if (text == NULL)
        return hutch_json_add(object, key, cJSON_CreateNull());
    return hutch_json_add_text(object, key, text, strlen(text));
}

bool hutch_json_append_string(cJSON *list, const char *text)
{
    cJSON *item = cJSON_CreateString(text);

    if (item && list && cJSON_AddItemToArray(list, item))
        return true;
    cJSON_Delete(item);
    return false;
}

bool hutch_json_add_bool(cJSON *object, const char *key, bool value)
{
    return hutch_json_add(object, key, cJSON_CreateBool(value));
}

/* cJSON keeps numbers as doubles, which lose the low bits of large ones. */
bool hutch_json_add_u64(cJSON *object, const char *key, uint64_t value)
{
    char digits[24];

    snprintf(digits, sizeof(digits), "%" PRIu64, value);
    return hutch_json_add(object, key, cJSON_CreateRaw(digits));
}

/* Three decimals, and a point in every locale. */
bool hutch_json_add_ms(cJSON *object, const char *key, double ms)
{
    uint64_t us = ms > 0 && ms < 1e15 ? (uint64_t)(ms * 1000 + 0.5) : 0;
    char digits[32];

    snprintf(digits, sizeof(digits), "%" PRIu64 ".%03u", us / 1000, (unsigned)(us % 1000));
    return hutch_json_add(object, key, cJSON_CreateRaw(digits));
}

cJSON *hutch_json_add_new(cJSON *object, const char *key, cJSON *item)
{
    return hutch_json_add(object, key, item) ? item : NULL;
}

bool hutch_json_add_name(cJSON *object, const char *key, const char *base64_key, const char *name)
{
    size_t len = strlen(name), encoded_len;
    auto_free char *encoded = NULL;

    if (!hutch_json_add_text(object, key, name, len))
        return false;
    if (hutch_utf8_is_valid(name, len))
        return true;
    encoded = hutch_base64_encode(name, len, &encoded_len);
    return encoded != NULL && hutch_json_add_string(object, base64_key, encoded);
}

bool hutch_json_add_path(cJSON *object, const char *path)
{
    return hutch_json_add_name(object, "path", "path_base64", path);
}
