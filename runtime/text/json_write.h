/* json_write.h - what the JSON that hutch writes is made of, where cJSON alone would not do: any bytes as a string,
 * exact numbers, paths. */
#ifndef HUTCH_TEXT_JSON_WRITE_H
#define HUTCH_TEXT_JSON_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cJSON;
struct text_buffer;

/* Any bytes as a JSON string, quotes included: what a terminal would obey is escaped (hutch_ansi_obeys()), NUL
 * among it, and each ill-formed part of a UTF-8 sequence becomes U+FFFD, as with Python's errors="replace". */
void hutch_json_quote(struct text_buffer *t, const char *data, size_t len);
/* The text of an nbjson string as Python's json.dumps(ensure_ascii=False) has it: DEL stands as it is, NBJSON_NUL is
 * NUL. */
void hutch_json_quote_python(struct text_buffer *t, const char *text);

/* ---- on cJSON's objects ----
 *
 * Each function adds to @object under @key, which is static text and not copied. False on ENOMEM, also when @object
 * is NULL because making it failed: so a row of them needs one test. */

/* Takes @item, on failure too. NULL is a failure. */
bool hutch_json_add(struct cJSON *object, const char *key, struct cJSON *item);
/* The same for an object or array, which is returned to be filled; NULL on failure. */
struct cJSON *hutch_json_add_new(struct cJSON *object, const char *key, struct cJSON *item);

/* As hutch_json_quote(). */
bool hutch_json_add_text(struct cJSON *object, const char *key, const char *data, size_t len);
bool hutch_json_add_string(struct cJSON *object, const char *key, const char *text); /* NULL: null */
bool hutch_json_add_bool(struct cJSON *object, const char *key, bool value);
bool hutch_json_add_u64(struct cJSON *object, const char *key, uint64_t value);
bool hutch_json_add_ms(struct cJSON *object, const char *key, double ms); /* three decimals */

/* A text at the end of @list: an array, or NULL, which is a failure. */
bool hutch_json_append_string(struct cJSON *list, const char *text);

/* @name, and where it is not UTF-8 its bytes under @base64_key; both keys are static text. */
bool hutch_json_add_name(struct cJSON *object, const char *key, const char *base64_key, const char *name);
/* "path", and "path_base64" where it is not UTF-8: docs/results.md. */
bool hutch_json_add_path(struct cJSON *object, const char *path);

#endif
