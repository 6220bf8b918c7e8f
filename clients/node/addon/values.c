#include "values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEXTS_MAX 4096
#define EXACT_MAX 9007199254740992.0 /* 2^53 */

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
    v->wrong = "there is no memory for the options";
    return NULL;
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
    if (v->wrong)
        napi_throw_type_error(v->env, NULL, v->wrong);
    return v->wrong != NULL;
}

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

/* Without what it keeps. */
static char *read_text(struct values *v, napi_value value, size_t *ret_len)
{
    size_t len = 0;
    bool is_buffer = false;
    char *text;
    void *data;

    if (ret_len && napi_is_buffer(v->env, value, &is_buffer) == napi_ok && is_buffer &&
        napi_get_buffer_info(v->env, value, &data, &len) == napi_ok) {
        text = malloc(len + 1);
        if (text && len)
            memcpy(text, data, len);
        *ret_len = len;
        return text;
    }
    if (napi_get_value_string_utf8(v->env, value, NULL, 0, &len) != napi_ok) {
        v->wrong = "an option that is to be a text is none";
        return strdup("");
    }
    text = malloc(len + 1);
    if (text)
        napi_get_value_string_utf8(v->env, value, text, len + 1, &len);
    if (text && !ret_len && strlen(text) != len)
        v->wrong = "a text has a NUL in it";
    if (ret_len)
        *ret_len = len;
    return text;
}

const char *hutch_node_text(struct values *v, napi_value object, const char *key, size_t *ret_len)
{
    napi_value value = hutch_node_field(v, object, key);

    if (ret_len)
        *ret_len = 0;
    return value && !v->wrong ? keep(v, read_text(v, value, ret_len)) : NULL;
}

uint64_t hutch_node_number(struct values *v, napi_value object, const char *key)
{
    napi_value value = hutch_node_field(v, object, key);
    double number = 0;

    if (!value)
        return 0;
    if (napi_get_value_double(v->env, value, &number) != napi_ok || !(number >= 0) || number > EXACT_MAX ||
        number != floor(number))
        v->wrong = "an option that is to be a whole number is none";
    return v->wrong ? 0 : (uint64_t)number;
}

int hutch_node_flag(struct values *v, napi_value object, const char *key)
{
    napi_value value = hutch_node_field(v, object, key);
    bool flag = false;

    if (value && napi_get_value_bool(v->env, value, &flag) != napi_ok)
        v->wrong = "an option that is to be true or false is neither";
    return flag;
}

const char *const *hutch_node_texts(struct values *v, napi_value object, const char *key)
{
    napi_value array = hutch_node_field(v, object, key), element;
    uint32_t n = 0;
    char **texts;
    bool is_array = false;

    if (!array || v->wrong)
        return NULL;
    if (napi_is_array(v->env, array, &is_array) != napi_ok || !is_array ||
        napi_get_array_length(v->env, array, &n) != napi_ok || n > TEXTS_MAX) {
        v->wrong = "an option that is to be an array of texts is none, or too long";
        return NULL;
    }
    texts = keep(v, calloc(n + 1, sizeof(*texts)));
    for (uint32_t i = 0; texts && i < n && !v->wrong; i++)
        if (napi_get_element(v->env, array, i, &element) == napi_ok)
            texts[i] = keep(v, read_text(v, element, NULL));
    return (const char *const *)texts;
}
