/* format_priv.h - from a record to a task: one function for each format, and what two of them share. */
#ifndef HUTCH_BATCH_FORMAT_PRIV_H
#define HUTCH_BATCH_FORMAT_PRIV_H

#include "runtime/batch/fields_priv.h"
#include "runtime/batch/task.h"

/* Each fills @t, but for its id and, where that is Python, its language. What it made of @t is freed with it, also on
 * failure. */
int hutch_batch_read_generic(const struct batch_fields *f, const struct batch_task_options *options,
                             struct batch_task *t);
int hutch_batch_read_humaneval(const struct batch_fields *f, const struct batch_task_options *options,
                               struct batch_task *t);
int hutch_batch_read_mbpp(const struct batch_fields *f, const struct batch_task_options *options, struct batch_task *t);
int hutch_batch_read_stdio(const struct batch_fields *f, const struct batch_task_options *options,
                           struct batch_task *t);

/* Makes room for @n more cases. */
int hutch_batch_task_reserve_cases(const struct batch_fields *f, size_t n, struct batch_task *t);
/* The language that @object names: "python" has many names, another language has its own. */
int hutch_batch_task_read_language(const struct batch_fields *f, struct json_view object, struct batch_task *t);

#endif
