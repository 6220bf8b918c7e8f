/* values.h - from values of JavaScript to those of hutch.h. What is read lives until hutch_node_values_done(). */
#ifndef HUTCH_NODE_VALUES_H
#define HUTCH_NODE_VALUES_H

#include <node_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct values {
    napi_env env;
    void **owned;    /* and each of them */
    size_t n, room;
    char wrong[128]; /* what is wrong with the first that is; "": nothing */
};

void hutch_node_values_done(struct values *v);
/* True when an exception was thrown for what is wrong. */
bool hutch_node_values_throw(const struct values *v);
/* "'KEY' IS", unless something else is wrong already. */
void hutch_node_values_wrong(struct values *v, const char *key, const char *is);

/* Fields of @object; NULL or 0 where it has none, or is undefined or null itself. With @ret_len a text may have NULs,
 * and may be a Buffer. */
const char *hutch_node_text(struct values *v, napi_value object, const char *key, size_t *ret_len);
/* From 1 on. */
uint64_t hutch_node_number(struct values *v, napi_value object, const char *key);
unsigned hutch_node_count(struct values *v, napi_value object, const char *key);
int hutch_node_flag(struct values *v, napi_value object, const char *key);
/* An array of texts, which ends with NULL. */
const char *const *hutch_node_texts(struct values *v, napi_value object, const char *key);
napi_value hutch_node_field(struct values *v, napi_value object, const char *key);
/* Its elements; 0 and something is wrong when it is none, or has more than @max. */
uint32_t hutch_node_length(struct values *v, napi_value array, const char *key, uint32_t max);
void *hutch_node_alloc(struct values *v, size_t size); /* zeros; NULL: something is wrong */
/* The text or Buffer @value, without NULs; "" when something is wrong. */
const char *hutch_node_plain(struct values *v, napi_value value, const char *key);

#endif
