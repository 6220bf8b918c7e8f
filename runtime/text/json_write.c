#include "runtime/text/json_write.h"

#include "runtime/text/base64.h"
#include "runtime/text/buffer.h"
#include "sandbox/fd.h"
#include "runtime/text/utf8.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void hutch_json_quote(struct text_buffer *t, const char *data, size_t len)
{
    static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";

    hutch_text_add(t, "\"", 1);
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)data[i];
        const char *found = c ? strchr(escaped, c) : NULL;
        size_t plain = i, step;
        enum utf8_kind kind;

        while (plain < len && (unsigned char)data[plain] >= 0x20 && (unsigned char)data[plain] < 0x7f && data[plain] != '"' &&
               data[plain] != '\\')
            plain++;
        if (plain > i) {
            hutch_text_add(t, data + i, plain - i);
            i = plain;
            continue;
        }
        step = hutch_utf8_next(data + i, len - i, &kind);
        if (found)
            hutch_text_addf(t, "\\%c", letters[found - escaped]);
        else if (c < 0x20 || c == 0x7f)
            hutch_text_addf(t, "\\u%04x", c);
        else if (kind == UTF8_CHAR)
            hutch_text_add(t, data + i, step);
        else
            hutch_text_add_string(t, UTF8_REPLACEMENT);
        i += kind == UTF8_CHAR ? step : 1;
    }
    hutch_text_add(t, "\"", 1);
}

/* @data as a JSON string with its quotes: cJSON takes C strings only, so it would end at the first NUL. NULL on ENOMEM. */
static char *quote(const char *data, size_t len)
{
    static const char hex[] = "0123456789abcdef";
    const uint8_t *p = (const uint8_t *)data;
    size_t size = 3, step;
    enum utf8_kind kind;
    char *json, *to;

    for (size_t i = 0; i < len; i++) /* at worst: \u00xx, U+FFFD for one bad byte */
        size += p[i] < 0x20 || p[i] == 0x7f ? 6 : p[i] >= 0x80 ? 3 : 2;
    json = to = malloc(size);
    if (json == NULL)
        return NULL;
    *to++ = '"';
    for (size_t i = 0; i < len; i += step) {
        step = hutch_utf8_next(data + i, len - i, &kind);
        if (kind != UTF8_CHAR) {
            to = mempcpy(to, UTF8_REPLACEMENT, 3);
        } else if (step > 1) {
            to = mempcpy(to, p + i, step);
        } else if (p[i] == '"' || p[i] == '\\') {
            *to++ = '\\';
            *to++ = (char)p[i];
        } else if (p[i] == '\n') {
            to = mempcpy(to, "\\n", 2);
        } else if (p[i] == '\t') {
            to = mempcpy(to, "\\t", 2);
        } else if (p[i] == '\r') {
            to = mempcpy(to, "\\r", 2);
        } else if (p[i] < 0x20 || p[i] == 0x7f) {
            to = mempcpy(to, "\\u00", 4);
            *to++ = hex[p[i] >> 4];
            *to++ = hex[p[i] & 15];
        } else {
            *to++ = (char)p[i];
        }
    }
    *to++ = '"';
    *to = '\0';
    return json;
}

bool hutch_json_add(cJSON *object, const char *key, cJSON *item)
{
    if (item == NULL)
        return false;
    /* our own keys: static text, not copied. Fails only for a NULL object, whose making failed before. */
    if (cJSON_AddItemToObjectCS(object, key, item))
        return true;
    cJSON_Delete(item);
    return false;
}

bool hutch_json_add_text(cJSON *object, const char *key, const char *data, size_t len)
{
    auto_free char *quoted = quote(data, len);

    return quoted != NULL && hutch_json_add(object, key, cJSON_CreateRaw(quoted));
}

bool hutch_json_add_string(cJSON *object, const char *key, const char *text)
{
    return text != NULL ? hutch_json_add_text(object, key, text, strlen(text)) : hutch_json_add(object, key, cJSON_CreateNull());
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

bool hutch_json_add_path(cJSON *object, const char *path)
{
    size_t len = strlen(path), encoded_len;
    auto_free char *encoded = NULL;

    if (!hutch_json_add_text(object, "path", path, len))
        return false;
    if (hutch_utf8_is_valid(path, len))
        return true;
    encoded = hutch_base64_encode(path, len, &encoded_len);
    return encoded != NULL && hutch_json_add_string(object, "path_base64", encoded);
}
