/* sample.h - one program for a task: its own one, or a model's. */
#ifndef HUTCH_BATCH_SAMPLE_H
#define HUTCH_BATCH_SAMPLE_H

#include "runtime/batch/format.h"
#include "runtime/text/json_view.h"
#include "sandbox/err.h"

#include <stdbool.h>

struct batch_task;

struct batch_sample {
    struct json_view program;
    bool is_completion; /* goes on where the prompt ends */
};
/* The task that a record of a sample file is for, as text for the caller to free. */
int hutch_batch_sample_id(const char *where, enum batch_format format, struct json_view record, char **ret,
                          struct hutch_err *err);
/* @has_prompt: its task has a prompt, which a completion continues. */
int hutch_batch_sample_read(const char *where, struct json_view record, bool has_prompt, struct batch_sample *ret,
                            struct hutch_err *err);
/* The task's own program as a sample. Errors: it has none. */
int hutch_batch_sample_own(const char *where, const struct batch_task *task, struct batch_sample *ret,
                           struct hutch_err *err);

#endif
