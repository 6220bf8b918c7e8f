/* json_view.h - JSON text read in place: checked once, then looked at where it stands.
 *
 * For task and sample files, which other programs wrote: unlike json.h, which reads policies, it takes what Python's
 * json module writes (NaN, Infinity, half of a surrogate pair, any key), keeps every value's own spelling so that it
 * can be passed on byte for byte, and makes no tree: a record may hold many megabytes of test cases. */
#ifndef HUTCH_TEXT_JSON_VIEW_H
#define HUTCH_TEXT_JSON_VIEW_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_scan;

/* One value within a text that was checked. Not owned. */
struct json_view {
    const char *text; /* NULL: there is none */
    size_t len;
};
#define JSON_VIEW_NONE ((struct json_view){ NULL, 0 })

/* Checks that @len bytes are one value, in UTF-8, with nothing but white space around it. Errors name @what, and
 * line and column, where the text begins at @line and @column (from 1). */
int hutch_json_view_check(const char *what, uint64_t line, uint64_t column, const char *text, size_t len,
                          struct json_view *ret, struct hutch_err *err);
/* The same as strict as @scan is made, from its begin on. */
int hutch_json_view_scan(struct json_scan *scan, struct json_view *ret);

bool hutch_json_view_is_object(struct json_view value);
bool hutch_json_view_is_array(struct json_view value);
bool hutch_json_view_is_string(struct json_view value);
bool hutch_json_view_is_null(struct json_view value); /* null, or none */
/* A string or key that is written without escapes as @text. */
bool hutch_json_view_is(struct json_view value, const char *text);

/* Walks over an array or object: begin, then next until it says false. A key keeps its quotes. */
struct json_walk {
    const char *p, *end;
    bool is_object;
};
struct json_walk hutch_json_view_walk(struct json_view container);
bool hutch_json_view_next(struct json_walk *walk, struct json_view *ret_key, struct json_view *ret_value);
size_t hutch_json_view_count(struct json_view container);

/* The value of a key that is written without escapes; the last one, as Python has it, when it is there twice. */
struct json_view hutch_json_view_get(struct json_view object, const char *key);

/* The text of a string as UTF-8, NUL-terminated, for the caller to free; NUL bytes within count in @ret_len. Half of a
 * surrogate pair becomes three bytes, as Python's "surrogatepass" has it. @value must be a string. Errors: ENOMEM. */
int hutch_json_view_text(struct json_view value, char **ret, size_t *ret_len, struct hutch_err *err);

/* A number that is whole and fits; false when it is something else. */
bool hutch_json_view_integer(struct json_view value, int64_t *ret);

#endif
