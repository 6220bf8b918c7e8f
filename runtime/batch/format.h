/* format.h - the forms in which task files come. docs/batch.md describes them. */
#ifndef HUTCH_BATCH_FORMAT_H
#define HUTCH_BATCH_FORMAT_H

#include "runtime/text/json_view.h"
#include "sandbox/err.h"

enum batch_format { BATCH_AUTO, BATCH_GENERIC, BATCH_HUMANEVAL, BATCH_MBPP, BATCH_STDIO, BATCH_FORMAT_COUNT };

const char *hutch_batch_format_name(enum batch_format format);
int hutch_batch_format_parse(const char *name, enum batch_format *ret, struct hutch_err *err);
/* What a record looks like; BATCH_GENERIC when like none of the others. */
enum batch_format hutch_batch_format_guess(struct json_view record);

#endif
