/* schedule.h - runs a plan on an engine: so many attempts at once, and every outcome written down. */
#ifndef HUTCH_BATCH_SCHEDULE_H
#define HUTCH_BATCH_SCHEDULE_H

#include "runtime/batch/engine.h"
#include "runtime/batch/output.h"
#include "runtime/batch/plan.h"
#include "runtime/batch/progress.h"
#include "runtime/batch/run.h"
#include "runtime/batch/tally.h"
#include "sandbox/err.h"

#include <stdbool.h>

struct batch_settings {
    unsigned jobs;             /* runs at the same time */
    bool all_cases;            /* do not stop at a sample's first failing case */
    struct batch_manner manner;
    int stop_fd;               /* readable: stop; -1: never */
    struct batch_progress *progress;
    const char *proc;          /* "/proc" */
};

/* Errors: the engine can run nothing; the output cannot be written. What was done until then is written and
 * counted. */
int hutch_batch_schedule(struct batch_plan *plan, struct batch_output *output, const struct batch_engine *engine,
                         const struct batch_settings *settings, struct batch_tally *ret_tally, struct hutch_err *err);

#endif
