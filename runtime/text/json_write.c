#include "runtime/text/json_write.h"

#include "runtime/text/ansi.h"
#include "runtime/text/base64.h"
#include "runtime/text/buffer.h"
#include "runtime/text/nbjson.h"
#include "runtime/text/utf8.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* As two letters of a backslash and one of these, or as \u00xx. */
static void add_escaped(struct text_buffer *t, unsigned char c)
{
    static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *found = c ? strchr(escaped, c) : NULL;

    if (found)
        hutch_text_addf(t, "\\%c", letters[found - escaped]);
    else
        hutch_text_addf(t, "\\u%04x", c);
}

static void quote(struct text_buffer *t, const char *data, size_t len, bool is_python)
{
    size_t from = 0, step;

    hutch_text_add(t, "\"", 1);
    for (size_t i = 0; i < len; i += step) {
        unsigned char c = (unsigned char)data[i];
        enum utf8_kind kind = UTF8_CHAR;
        unsigned code;

        step = 1;
        if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') /* most of what is written */
            continue;
        step = hutch_utf8_next(data + i, len - i, &kind);
        code = kind == UTF8_CHAR ? hutch_utf8_decode(data + i, step) : 0;
        if (kind == UTF8_CHAR && c >= 0x20 && c != '"' && c != '\\' && (is_python || !hutch_ansi_obeys(code)))
            continue;
        hutch_text_add(t, data + from, i - from);
        if (kind == UTF8_CHAR && step > 1) {
            hutch_text_addf(t, "\\u%04x", code);
        } else if (kind == UTF8_CHAR) {
            add_escaped(t, c);
        } else if (is_python && len - i >= 2 && memcmp(data + i, NBJSON_NUL, 2) == 0) {
            add_escaped(t, '\0');
            step = 2;
        } else {
            hutch_text_add_string(t, UTF8_REPLACEMENT);
        }
        from = i + step;
    }
    hutch_text_add(t, data + from, len - from);
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
