/* batch_judge.h - from a task and a program to a run, and from the run's result to a verdict.
 *
 * Programs that tests call are run by batch_judge.py inside the sandbox, which keeps the tests in a process of their own; it
 * reports on standard output, behind a token that only it knows. All others run as they are, and what they print is compared
 * here, outside. */
#ifndef HUTCH_BATCH_JUDGE_H
#define HUTCH_BATCH_JUDGE_H

#include "batch_plan.h"
#include "batch_task.h"
#include "err.h"
#include "hutch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BATCH_TEXT_MAX 4000 /* of what a verdict says */

/* What a zygote of a batch runs once, after its imports: it keeps batch_judge.py ready. The caller frees it. NULL: ENOMEM. */
char *hutch_batch_judge_warm_up(void);

/* How programs are judged, whatever the task says. */
struct batch_manner {
    struct batch_limits limits; /* where a task has none of its own */
    bool is_together;           /* tests run in the program's own process */
    bool carries_judge;         /* no zygote keeps batch_judge.py: it goes with each run */
    int files_fd;               /* directory for the files of tasks, and its path */
    const char *files_path;
};

/* A run, ready to be submitted. */
struct batch_run {
    struct hutch_request request; /* but for callbacks and user */
    char *code, *input;           /* owned */
    char **args, **env;           /* owned */
    char token[33];               /* that batch_judge.py was given; "" when it does not run */
    char files_name[24];          /* of its directory below files_fd, "" for none */
    char *files_path;             /* owned */
    int files_fd;
};
#define BATCH_RUN_INIT { .files_fd = -1 }

/* Sets up the run of one case (0 when there is but one). @number makes names unique. */
int hutch_batch_run_make(const struct batch_manner *manner, const struct batch_task *task, const struct batch_sample *sample,
                         size_t index, uint64_t number, struct batch_run *ret, struct hutch_err *err);
/* Its directory goes too. */
void hutch_batch_run_done(struct batch_run *run);

struct batch_opinion {
    enum batch_verdict verdict;
    char text[BATCH_TEXT_MAX]; /* why; "" for a pass */
    bool wants_judge;          /* batch_judge.py was not there: run again and let it carry that */
    bool wants_together;       /* its tests pass what cannot leave their process: run again, together */
    bool is_exposed;           /* the kernel did not keep the program out of the judge's memory */
    bool is_killed;            /* by something that may have come from outside: worth a second run */
    bool is_backstop;          /* the wall clock ended it, not its own CPU time */
    uint64_t cpu_ms;           /* of all its processes, as far as anybody knows */
};
void hutch_batch_judge(const struct batch_run *run, const struct batch_task *task, size_t index,
                       const struct hutch_result *result, struct batch_opinion *ret);

#endif
