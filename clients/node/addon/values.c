#include "values.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXTS_MAX 4096
#define EXACT_MAX 9007199254740992.0 /* 2^53 */

/* ---- what is kept, and what is wrong ---- */

void hutch_node_values_wrong(struct values *v, const char *key, const char *is)
{
    if (!v->wrong[0])
        snprintf(v->wrong, sizeof(v->wrong), "'%s' %s", key, is);
}

static void *keep(struct values *v, void *memory)
{
    if (memory && v->n == v->room) {
        void **more = realloc(v->owned, (v->room + 64) * sizeof(*more));

        v->owned = more ? more : v->owned;
        v->room += more ? 64 : 0;
    }
    if (memory && v->n < v->room) {
        v->owned[v->n++] = memory;
        return memory;
    }
    free(memory);
    if (!v->wrong[0])
        snprintf(v->wrong, sizeof(v->wrong), "there is no memory for the options");
    return NULL;
}

void *hutch_node_alloc(struct values *v, size_t size)
{
    return keep(v, calloc(1, size));
}

void hutch_node_values_done(struct values *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->owned[i]);
    free(v->owned);
    v->owned = NULL;
    v->n = v->room = 0;
}

bool hutch_node_values_throw(const struct values *v)
{
    if (v->wrong[0])
        napi_throw_type_error(v->env, NULL, v->wrong);
    return v->wrong[0];
}

/* ---- one value ---- */

/* NULL: it is undefined or null. */
static napi_value present(struct values *v, napi_value value, napi_valuetype *ret_type)
{
    *ret_type = napi_undefined;
    if (!value || napi_typeof(v->env, value, ret_type) != napi_ok || *ret_type == napi_undefined ||
        *ret_type == napi_null)
        return NULL;
    return value;
}

napi_value hutch_node_field(struct values *v, napi_value object, const char *key)
{
    napi_valuetype type;
    napi_value value;

    object = present(v, object, &type);
    if (!object || type != napi_object || napi_get_named_property(v->env, object, key, &value) != napi_ok)
        return NULL;
    return present(v, value, &type);
}

/* With a NUL behind it. NULL: something is wrong. */
static char *read_text(struct values *v, napi_value value, const char *key, bool may_be_bytes, size_t *ret_len)
{
    bool is_buffer = false;
    size_t len = 0;
    char *text;
    void *data;

    if (may_be_bytes && napi_is_buffer(v->env, value, &is_buffer) == napi_ok && is_buffer &&
        napi_get_buffer_info(v->env, value, &data, &len) == napi_ok) {
        text = hutch_node_alloc(v, len + 1);
        if (text && len)
            memcpy(text, data, len);
    } else if (napi_get_value_string_utf8(v->env, value, NULL, 0, &len) == napi_ok) {
        text = hutch_node_alloc(v, len + 1);
        if (text)
            napi_get_value_string_utf8(v->env, value, text, len + 1, &len);
    } else {
        hutch_node_values_wrong(v, key, "is no text");
        return NULL;
    }
    *ret_len = len;
    return text;
}

static char *read_plain(struct values *v, napi_value value, const char *key, bool may_be_bytes)
{
    size_t len;
    char *text = read_text(v, value, key, may_be_bytes, &len);

    if (text && strlen(text) != len)
        hutch_node_values_wrong(v, key, "has a NUL in it");
    return text;
}

const char *hutch_node_plain(struct values *v, napi_value value, const char *key)
{
    const char *text = read_plain(v, value, key, true);

    return text ? text : "";
}

const char *hutch_node_text(struct values *v, napi_value object, const char *key, size_t *ret_len)
{
    napi_value value = hutch_node_field(v, object, key);

    if (ret_len)
        *ret_len = 0;
    if (!value || v->wrong[0])
        return NULL;
    return ret_len ? read_text(v, value, key, true, ret_len) : read_plain(v, value, key, false);
}

static uint64_t read_number(struct values *v, napi_value object, const char *key, double min, double max)
{
    napi_value value = hutch_node_field(v, object, key);
    double number = 0;
    char is[64];

    if (!value || v->wrong[0])
        return 0;
    if (napi_get_value_double(v->env, value, &number) == napi_ok && number >= min && number <= max &&
        number == floor(number))
        return (uint64_t)number;
    snprintf(is, sizeof(is), "is no whole number from %.0f to %.0f", min, max);
    hutch_node_values_wrong(v, key, is);
    return 0;
}

uint64_t hutch_node_number(struct values *v, napi_value object, const char *key)
{
    return read_number(v, object, key, 1, EXACT_MAX);
}

unsigned hutch_node_count(struct values *v, napi_value object, const char *key)
{
    return (unsigned)read_number(v, object, key, 0, INT_MAX);
}

int hutch_node_flag(struct values *v, napi_value object, const char *key)
{
    napi_value value = hutch_node_field(v, object, key);
    bool flag = false;

    if (value && napi_get_value_bool(v->env, value, &flag) != napi_ok)
        hutch_node_values_wrong(v, key, "is neither true nor false");
    return flag;
}

/* ---- arrays ---- */

uint32_t hutch_node_length(struct values *v, napi_value array, const char *key, uint32_t max)
{
    bool is_array = false;
    uint32_t n = 0;

    if (napi_is_array(v->env, array, &is_array) != napi_ok || !is_array ||
        napi_get_array_length(v->env, array, &n) != napi_ok)
        hutch_node_values_wrong(v, key, "is no array");
    else if (n > max)
        hutch_node_values_wrong(v, key, "has too many elements");
    return v->wrong[0] ? 0 : n;
}

const char *const *hutch_node_texts(struct values *v, napi_value object, const char *key)
{
    napi_value array = hutch_node_field(v, object, key), element;
    uint32_t n;
    char **texts;

    if (!array || v->wrong[0])
        return NULL;
    n = hutch_node_length(v, array, key, TEXTS_MAX);
    texts = hutch_node_alloc(v, (n + 1) * sizeof(*texts));
    for (uint32_t i = 0; texts && i < n && !v->wrong[0]; i++)
        if (napi_get_element(v->env, array, i, &element) == napi_ok)
            texts[i] = read_plain(v, element, key, false);
    return (const char *const *)texts;
}
