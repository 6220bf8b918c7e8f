/* result_json.h - the result of a cell as JSON: hutch_cell_result_to_json() of hutch.h. docs/sessions.md describes
 * every key. */
#ifndef HUTCH_CELL_RESULT_JSON_H
#define HUTCH_CELL_RESULT_JSON_H

#include "runtime/hutch.h"

#include <stddef.h>

struct cJSON;
struct file_changes;

/* What struct hutch_cell_result has no field for; its .internal points here, or is NULL. Nothing is owned. */
struct hutch_cell_details {
    const char *code;                 /* the cell's own, NUL-terminated; NULL: not known */
    const char *cause;                /* of the error, as the interpreter says; NULL: not known */
    const struct file_changes *files; /* runtime/data/changes.h; NULL: they were not looked for */
    const char *directory;            /* of /mnt/data on the host; NULL: none, or not to be told */
};

/* The outputs of @result as nbformat stores them, without display ids; see nbjson.h, JSON values of theirs are text.
 * To be freed with cJSON_Delete(). NULL: ENOMEM. */
struct cJSON *hutch_cell_parse_outputs(const struct hutch_cell_result *result);
/* The text that @object has under @key, lines joined, NUL-terminated, for the caller to free. NULL: it has none
 * there; ENOMEM. */
char *hutch_cell_member_text(const struct cJSON *object, const char *key, size_t *ret_len);

#endif
