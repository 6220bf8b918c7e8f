/* batch_json.h - JSON text read in place: checked once, then looked at where it stands.
 *
 * For task and sample files, which other programs wrote: unlike json.h, which reads policies, it takes what Python's json
 * module writes (NaN, Infinity, half surrogates, any key), keeps every value's own spelling so that it can be passed on
 * byte for byte, and makes no tree: a record may hold many megabytes of test cases. */
#ifndef HUTCH_TEXT_BATCH_JSON_H
#define HUTCH_TEXT_BATCH_JSON_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BATCH_JSON_MAX_DEPTH 200

/* One value within a text that was checked. Not owned. */
struct batch_json {
    const char *text; /* NULL: there is none */
    size_t len;
};
#define BATCH_JSON_NONE ((struct batch_json){ NULL, 0 })

/* Checks that @len bytes are one value, in UTF-8, with nothing but white space around it. Errors name @what, and line and
 * column, where the text begins at @line and @column (from 1). */
int hutch_batch_json_check(const char *what, uint64_t line, uint64_t column, const char *text, size_t len,
                           struct batch_json *ret, struct hutch_err *err);

bool hutch_batch_json_is_object(struct batch_json value);
bool hutch_batch_json_is_array(struct batch_json value);
bool hutch_batch_json_is_string(struct batch_json value);
bool hutch_batch_json_is_null(struct batch_json value); /* null, or none */

/* Walks over an array or object: begin, then next until it says false. A key keeps its quotes. */
struct batch_json_walk {
    const char *p, *end;
    bool is_object;
};
struct batch_json_walk hutch_batch_json_walk(struct batch_json container);
bool hutch_batch_json_next(struct batch_json_walk *walk, struct batch_json *ret_key, struct batch_json *ret_value);
size_t hutch_batch_json_count(struct batch_json container);

/* The value of a key that is written without escapes; the last one, as Python has it, when it is there twice. */
struct batch_json hutch_batch_json_get(struct batch_json object, const char *key);

/* The text of a string as UTF-8, NUL-terminated, for the caller to free; NUL bytes within count in @ret_len. Half a surrogate
 * pair becomes the three bytes that nobody else writes. @value must be a string. Errors: ENOMEM. */
int hutch_batch_json_text(struct batch_json value, char **ret, size_t *ret_len, struct hutch_err *err);

/* A number that is whole and fits; false when it is something else. */
bool hutch_batch_json_integer(struct batch_json value, int64_t *ret);

/* A growing text. Once memory was short everything that follows is dropped, and taking it fails. */
struct batch_text {
    char *data; /* owned */
    size_t len, room;
    bool is_broken;
};
#define BATCH_TEXT_INIT { NULL, 0, 0, false }
void hutch_batch_text_add(struct batch_text *t, const char *data, size_t len);
void hutch_batch_text_addf(struct batch_text *t, const char *fmt, ...) HUTCH_PRINTF(2, 3);
/* As a JSON string, quotes included. Ill-formed UTF-8 becomes U+FFFD. */
void hutch_batch_text_add_quoted(struct batch_text *t, const char *data, size_t len);
/* NUL-terminated; the caller's from here on. NULL when memory was short. */
char *hutch_batch_text_take(struct batch_text *t, size_t *ret_len);
void hutch_batch_text_done(struct batch_text *t);

#endif
