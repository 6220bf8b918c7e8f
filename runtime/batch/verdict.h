/* verdict.h - from a run's result to a verdict: by what the judge reported, or by comparing what was printed. */
#ifndef HUTCH_BATCH_VERDICT_H
#define HUTCH_BATCH_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct batch_run;
struct batch_task;
struct hutch_result;

enum batch_verdict {
    BATCH_PASS,
    BATCH_WRONG_ANSWER,
    BATCH_RUNTIME_ERROR,
    BATCH_TIMEOUT,
    BATCH_MEMORY_LIMIT,
    BATCH_OUTPUT_LIMIT,
    BATCH_COMPILE_ERROR,
    BATCH_INTERNAL, /* not the program's doing: it counts for nothing */
    BATCH_VERDICT_COUNT
};
/* "pass", "wrong_answer", … */
const char *hutch_batch_verdict_name(enum batch_verdict verdict);
int hutch_batch_verdict_parse(const char *name, size_t len, enum batch_verdict *ret);

#define BATCH_TEXT_MAX 4000 /* of what a verdict says */

struct batch_run_verdict {
    enum batch_verdict kind;
    char text[BATCH_TEXT_MAX]; /* why; "" for a pass */
    bool wants_judge;          /* the judge was not there: run again and let it carry that */
    bool wants_together;       /* its tests pass what cannot leave their process: run again, together */
    bool is_exposed;           /* the kernel did not keep the program out of the judge's memory */
    bool is_killed;            /* by something that may have come from outside: worth a second run */
    bool is_backstop;          /* the wall clock ended it, not its own CPU time */
    uint64_t cpu_ms;           /* of all its processes, as far as it is known */
};
/* @index: of the case that was run. */
void hutch_batch_verdict_reach(const struct batch_run *run, const struct batch_task *task, size_t index,
                               const struct hutch_result *result, struct batch_run_verdict *ret);

#endif
