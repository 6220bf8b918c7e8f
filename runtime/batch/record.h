/* record.h - what is written about one sample: its own record with the verdict added, as the reference runner of
 * HumanEval has it, so that a reader of those files can read ours. docs/batch.md describes the keys. */
#ifndef HUTCH_BATCH_RECORD_H
#define HUTCH_BATCH_RECORD_H

#include "runtime/batch/plan.h"
#include "runtime/batch/verdict.h"
#include "runtime/hutch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct batch_outcome {
    enum batch_verdict verdict;
    char text[BATCH_TEXT_MAX];
    uint8_t *cases;  /* owned: enum batch_verdict of each that ran */
    size_t n_run, n_passed;
    uint64_t cpu_ms; /* of all its runs */
    double wall_ms;
    bool is_retried, is_together;
    char *details;   /* owned: further keys as JSON, each with a comma before it; NULL */
};

/* What a program that runs as it is has printed, for batch_outcome.details. NULL: ENOMEM. */
char *hutch_batch_record_details(const struct hutch_result *result);

/* The record on one line, with its newline, for the caller to free. NULL: ENOMEM. */
char *hutch_batch_record_make(const struct batch_plan *plan, const struct batch_item *item,
                              const struct batch_loaded *loaded, const struct batch_outcome *outcome, size_t *ret_len);

#endif
