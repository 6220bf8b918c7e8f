/* tally.h - what has come of the samples of a batch, those of earlier runs included. */
#ifndef HUTCH_BATCH_TALLY_H
#define HUTCH_BATCH_TALLY_H

#include "runtime/batch/plan.h"
#include "runtime/batch/record.h"
#include "runtime/batch/verdict.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct batch_tally {
    size_t verdicts[BATCH_VERDICT_COUNT]; /* samples, those of earlier runs included */
    size_t n_done;             /* samples of this run */
    size_t n_left;             /* samples that this run began with */
    uint64_t n_runs, n_retried, n_exposed;
    uint32_t *judged, *passed; /* owned, by group: samples */
    bool is_interrupted;
    char internal[512];        /* the first reason why something could not be judged; "" */
};

/* Counts what earlier runs have found out. */
int hutch_batch_tally_begin(const struct batch_plan *plan, struct batch_tally *ret, struct hutch_err *err);
void hutch_batch_tally_add(struct batch_tally *tally, const struct batch_item *item, const struct batch_task *task,
                           const struct batch_outcome *outcome);
void hutch_batch_tally_done(struct batch_tally *tally);

#endif
