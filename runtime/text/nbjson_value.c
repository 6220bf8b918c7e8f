/* The values of a tree: whole numbers and texts, as C has them and as nbjson keeps them. */
#include "runtime/text/buffer.h"
#include "runtime/text/nbjson.h"

#include "runtime/text/utf8.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool hutch_nbjson_get_integer(const struct cJSON *value, int64_t *ret)
{
    char *end;
    int64_t number;

    if (!cJSON_IsNumber(value))
        return false;
    if (value->valuestring == NULL) {
        if (!(fabs(value->valuedouble) <= 0x1p53) || value->valuedouble != (double)(int64_t)value->valuedouble)
            return false;
        *ret = (int64_t)value->valuedouble;
        return true;
    }
    errno = 0;
    number = strtoll(value->valuestring, &end, 10);
    if (errno != 0 || end == value->valuestring || *end != '\0')
        return false;
    *ret = number;
    return true;
}

char *hutch_nbjson_text(const struct cJSON *string, size_t *ret_len)
{
    const char *from = cJSON_IsString(string) ? string->valuestring : "";
    char *text = malloc(strlen(from) + 1), *to = text;

    if (text == NULL)
        return NULL;
    while (*from != '\0') {
        if (memcmp(from, NBJSON_NUL, 2) == 0) {
            *to++ = '\0';
            from += 2;
        } else {
            *to++ = *from++;
        }
    }
    *to = '\0';
    if (ret_len != NULL)
        *ret_len = (size_t)(to - text);
    return text;
}

char *hutch_nbjson_c_text(const struct cJSON *string)
{
    const char *from = cJSON_IsString(string) ? string->valuestring : "";
    struct text_buffer to = TEXT_BUFFER_INIT;

    for (const char *nul; (nul = strstr(from, NBJSON_NUL)) != NULL; from = nul + strlen(NBJSON_NUL)) {
        hutch_text_add(&to, from, (size_t)(nul - from));
        hutch_text_add(&to, UTF8_REPLACEMENT, strlen(UTF8_REPLACEMENT));
    }
    hutch_text_add(&to, from, strlen(from));
    return hutch_text_take(&to, NULL);
}

struct cJSON *hutch_nbjson_string(const char *text, size_t len)
{
    cJSON *item = cJSON_CreateNull();
    size_t size = 1;
    char *to;

    if (item == NULL)
        return NULL;
    for (size_t i = 0; i < len; i++)
        size += text[i] == '\0' ? 2 : (unsigned char)text[i] >= 0x80 ? 3 : 1;
    to = cJSON_malloc(size);
    if (to == NULL) {
        cJSON_Delete(item);
        return NULL;
    }
    item->type = cJSON_String;
    item->valuestring = to;
    for (size_t i = 0, step; i < len; i += step) {
        enum utf8_kind kind;

        step = hutch_utf8_next(text + i, len - i, &kind);
        if (text[i] == '\0')
            to = mempcpy(to, NBJSON_NUL, 2);
        else if (kind == UTF8_CHAR)
            to = mempcpy(to, text + i, step);
        else
            to = mempcpy(to, UTF8_REPLACEMENT, 3);
    }
    *to = '\0';
    return item;
}
