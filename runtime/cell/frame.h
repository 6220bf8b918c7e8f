/* frame.h - one frame of an interpreter that executes cells: an object of JSON, checked, as all of it is hostile.
 *
 * Its "is" says what it is. Arrays and objects from the third level on stay text (cJSON_Raw): see
 * runtime/text/nbjson.h. */
#ifndef HUTCH_CELL_FRAME_H
#define HUTCH_CELL_FRAME_H

#include "sandbox/err.h"

#include <stddef.h>
#include <stdint.h>

struct cJSON;

/* @ret is freed with cJSON_Delete(). Errors: not JSON, no "is", a member that such a frame must have is missing or
 * of another type, no good number "n". */
int hutch_cell_frame_parse(const char *text, size_t len, struct cJSON **ret, struct hutch_err *err);

const struct cJSON *hutch_cell_frame_get(const struct cJSON *frame, const char *key); /* NULL: it has none */
const char *hutch_cell_frame_kind(const struct cJSON *frame); /* its "is" */
int64_t hutch_cell_frame_integer(const struct cJSON *frame, const char *key, int64_t otherwise);
/* Its first 64 KiB, for the caller to free; NULL: it is no text, or ENOMEM. */
char *hutch_cell_frame_text(const struct cJSON *frame, const char *key);

#endif
