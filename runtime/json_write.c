#include "json_write.h"

#include "fd.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* How many of the bytes at @p are one UTF-8 character (*@ret_ok), or the beginning of one that is broken there:
 * table 3-7 of the Unicode standard, which leaves out overlong forms, surrogates and what is above U+10FFFF. */
static size_t utf8_len(const uint8_t *p, size_t len, bool *ret_ok)
{
    uint8_t low = 0x80, high = 0xbf;
    size_t need, i;

    *ret_ok = true;
    if (p[0] < 0x80)
        return 1;
    *ret_ok = false;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 1;
    need = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (p[0] == 0xe0)
        low = 0xa0;
    else if (p[0] == 0xed)
        high = 0x9f;
    else if (p[0] == 0xf0)
        low = 0x90;
    else if (p[0] == 0xf4)
        high = 0x8f;
    for (i = 1; i < need; i++) {
        if (i == len || p[i] < low || p[i] > high)
            return i;
        low = 0x80;
        high = 0xbf;
    }
    *ret_ok = true;
    return need;
}

static bool is_utf8(const char *text, size_t len)
{
    const uint8_t *p = (const uint8_t *)text;
    bool ok;

    for (size_t i = 0; i < len;) {
        i += utf8_len(p + i, len - i, &ok);
        if (!ok)
            return false;
    }
    return true;
}

/* @data as a JSON string with its quotes: cJSON takes C strings only, so it would end at the first NUL. NULL on ENOMEM. */
static char *quote(const char *data, size_t len)
{
    static const char hex[] = "0123456789abcdef";
    const uint8_t *p = (const uint8_t *)data;
    size_t size = 3, step;
    char *json, *to;
    bool ok;

    for (size_t i = 0; i < len; i++) /* at worst: \u00xx, U+FFFD for one bad byte */
        size += p[i] < 0x20 || p[i] == 0x7f ? 6 : p[i] >= 0x80 ? 3 : 2;
    json = to = malloc(size);
    if (json == NULL)
        return NULL;
    *to++ = '"';
    for (size_t i = 0; i < len; i += step) {
        step = utf8_len(p + i, len - i, &ok);
        if (!ok) {
            to = mempcpy(to, "\xef\xbf\xbd", 3);
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

static char *base64(const char *data, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *p = (const uint8_t *)data;
    char *text = malloc((len + 2) / 3 * 4 + 1), *to = text;

    if (text == NULL)
        return NULL;
    for (size_t i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        uint32_t bits = (uint32_t)p[i] << 16 | (n > 1 ? (uint32_t)p[i + 1] << 8 : 0) | (n > 2 ? p[i + 2] : 0);

        *to++ = digits[bits >> 18];
        *to++ = digits[bits >> 12 & 63];
        *to++ = n > 1 ? digits[bits >> 6 & 63] : '=';
        *to++ = n > 2 ? digits[bits & 63] : '=';
    }
    *to = '\0';
    return text;
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
    size_t len = strlen(path);
    auto_free char *encoded = NULL;

    if (!hutch_json_add_text(object, "path", path, len))
        return false;
    if (is_utf8(path, len))
        return true;
    encoded = base64(path, len);
    return encoded != NULL && hutch_json_add_string(object, "path_base64", encoded);
}
