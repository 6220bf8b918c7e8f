/* run.h - from a task and a program to a run.
 *
 * Programs that tests call are run by the judge. All others run as they are, and their output is compared
 * outside. */
#ifndef HUTCH_BATCH_RUN_H
#define HUTCH_BATCH_RUN_H

#include "runtime/batch/files.h"
#include "runtime/batch/plan.h"
#include "runtime/batch/task.h"
#include "runtime/hutch.h"
#include "runtime/text/json_view.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How programs are judged, whatever the task says. */
struct batch_manner {
    struct batch_limits limits; /* where a task has none of its own */
    bool is_together;           /* tests run in the program's own process */
    bool carries_judge;         /* no zygote keeps the judge: it goes with each run */
    int files_fd;               /* directory for the files of tasks, and its path */
    const char *files_path;
};

#define BATCH_TOKEN_LEN 32 /* hexadecimal digits of 128 random bits */

/* A run, ready to be submitted. */
struct batch_run {
    struct hutch_request request; /* but for callbacks and user */
    char *code, *input;           /* owned */
    char **args, **env;           /* owned */
    char token[BATCH_TOKEN_LEN + 1]; /* that the judge was given; "" when it does not run */
    struct batch_files files;
};
#define BATCH_RUN_INIT { .files = BATCH_FILES_INIT }

/* Sets up the run of one case (0 when there is but one). @number makes names unique. */
int hutch_batch_run_make(const struct batch_manner *manner, const struct batch_task *task,
                         const struct batch_sample *sample, size_t index, uint64_t number, struct batch_run *ret,
                         struct hutch_err *err);
/* Its files go too. */
void hutch_batch_run_done(struct batch_run *run);

/* The text of a value in a task, where an array is lines, and null is nothing; NUL-terminated, the caller's to free.
 * Errors: ENOMEM. */
int hutch_batch_run_decode(struct json_view value, char **ret, size_t *ret_len, struct hutch_err *err);

#endif
