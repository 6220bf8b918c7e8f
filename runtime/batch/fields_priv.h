/* fields_priv.h - the fields of one record of a task or sample file, with the words in which one is refused. */
#ifndef HUTCH_BATCH_FIELDS_PRIV_H
#define HUTCH_BATCH_FIELDS_PRIV_H

#include "runtime/batch/format.h"
#include "runtime/text/json_view.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

#define BATCH_ID_MAX 256
#define BATCH_NAME_MAX 40 /* of a way to compare, a language, … */
#define BATCH_PROGRAM_MAX (4u << 20) /* bytes of a program in the record's own spelling */

struct batch_fields {
    const char *where; /* the record's place, for messages */
    struct json_view record;
    struct hutch_err *err;
};

enum batch_need { OPTIONAL, REQUIRED };

/* Is the key there, and not null? */
bool hutch_batch_has(struct json_view record, const char *key);

/* Fills err with the record's place and the reason. Returns -1. */
int hutch_batch_refuse(const struct batch_fields *f, const char *fmt, ...) HUTCH_PRINTF(2, 3);

/* A string, or none where it is null or missing. */
int hutch_batch_read_text(const struct batch_fields *f, const char *key, size_t max, enum batch_need need,
                          struct json_view *ret);
/* A string, or an array of strings. */
int hutch_batch_read_texts(const struct batch_fields *f, const char *key, size_t max, struct json_view *ret);
/* What a string of @key spells, for the caller to free. Errors: a NUL byte in it; ENOMEM. */
int hutch_batch_read_string(const struct batch_fields *f, const char *key, struct json_view value, char **ret);
/* The task that the record is or belongs to, as it is written, and as text for the caller to free. */
int hutch_batch_read_id(const struct batch_fields *f, enum batch_format format, struct json_view *ret_json, char **ret);

#endif
