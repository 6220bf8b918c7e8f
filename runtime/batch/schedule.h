/* schedule.h - runs a plan on an engine: so many at once, again what must be, and every verdict written down. */
#ifndef HUTCH_BATCH_SCHEDULE_H
#define HUTCH_BATCH_SCHEDULE_H

#include "runtime/batch/output.h"
#include "runtime/batch/plan.h"
#include "runtime/batch/progress.h"
#include "runtime/batch/run.h"
#include "runtime/batch/verdict.h"
#include "runtime/hutch.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The part of hutch.h that is needed here; the unit test brings an engine of its own. */
struct batch_engine {
    struct hutch_engine *engine;
    int (*submit)(struct hutch_engine *, const struct hutch_request *, uint64_t *, struct hutch_error *);
    int (*cancel)(struct hutch_engine *, uint64_t);
    int (*fd)(const struct hutch_engine *);
    int (*dispatch)(struct hutch_engine *, struct hutch_error *);
};

struct batch_settings {
    unsigned jobs;             /* runs at the same time */
    bool all_cases;            /* do not stop at a sample's first failing case */
    struct batch_manner manner;
    int stop_fd;               /* readable: stop; -1: never */
    struct batch_progress *progress;
    const char *proc;          /* "/proc" */
};

struct batch_tally {
    size_t verdicts[BATCH_VERDICT_COUNT]; /* samples, those of earlier runs included */
    size_t n_done;             /* samples of this run */
    uint64_t n_runs, n_retried, n_exposed;
    uint32_t *judged, *passed; /* owned, by group: samples */
    bool is_interrupted;
    char internal[512];        /* the first reason why something could not be judged; "" */
};

/* Errors: the engine can run nothing; the output cannot be written. What was done until then is written. */
int hutch_batch_schedule(struct batch_plan *plan, struct batch_output *output, const struct batch_engine *engine,
                         const struct batch_settings *settings, struct batch_tally *ret, struct hutch_err *err);
void hutch_batch_tally_done(struct batch_tally *tally);

#endif
