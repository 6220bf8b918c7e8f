/* fields.h - the JSON of E2B's requests. The format is not strict: keys that are not known are passed over, and null is
 * the same as none. */
#ifndef HUTCH_E2B_FIELDS_H
#define HUTCH_E2B_FIELDS_H

#include "runtime/text/json_view.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define E2B_MAX_DEPTH 16
#define E2B_MAX_VARIABLES 1024

/* An object, within @text. No bytes at all are an empty one. */
int hutch_e2b_fields_parse(const char *text, size_t len, struct json_view *ret, struct hutch_err *err);

/* In all of these *ret is untouched where the key is not there or null; then they return 0. */

/* A text without NUL, of at most @max bytes as it is written; the caller's to free. */
int hutch_e2b_fields_text(struct json_view object, const char *key, size_t max, char **ret, struct hutch_err *err);
/* A whole number. */
int hutch_e2b_fields_number(struct json_view object, const char *key, uint64_t min, uint64_t max, uint64_t *ret,
                            struct hutch_err *err);
int hutch_e2b_fields_bool(struct json_view object, const char *key, bool *ret, struct hutch_err *err);
/* A value of this kind; it stays where it is. */
int hutch_e2b_fields_object(struct json_view object, const char *key, struct json_view *ret, struct hutch_err *err);
/* An object of texts as NAME=VALUE, ends with NULL, for hutch_e2b_fields_env_free(), on failure too. */
int hutch_e2b_fields_env(struct json_view object, const char *key, char ***ret, struct hutch_err *err);
void hutch_e2b_fields_env_free(char **env);

#endif
