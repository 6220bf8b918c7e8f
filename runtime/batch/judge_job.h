/* judge_job.h - what the judge is to do, as JSON: a program and its tests. runtime/batch/judge/judge.py reads it. */
#ifndef HUTCH_BATCH_JUDGE_JOB_H
#define HUTCH_BATCH_JUDGE_JOB_H

#include "sandbox/err.h"

#include <stdbool.h>

struct batch_sample;
struct batch_task;
struct text_buffer;

/* The judge's standard input. @is_together: the tests run in the program's own process. Errors: a case that is no JSON;
 * ENOMEM. */
int hutch_batch_judge_job_add(struct text_buffer *t, const struct batch_task *task, const struct batch_sample *sample,
                              const char *token, bool is_together, struct hutch_err *err);

#endif
