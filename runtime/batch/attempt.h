/* attempt.h - one sample on its way to a verdict: its cases one after the other, and again what has to run again. */
#ifndef HUTCH_BATCH_ATTEMPT_H
#define HUTCH_BATCH_ATTEMPT_H

#include "runtime/batch/engine.h"
#include "runtime/batch/plan.h"
#include "runtime/batch/record.h"
#include "runtime/batch/run.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct batch_attempt;

/* What an attempt tells its owner, who frees it in the first two. */
struct batch_attempt_events {
    void (*on_concluded)(void *owner, struct batch_attempt *attempt); /* its outcome is final */
    void (*on_dropped)(void *owner, struct batch_attempt *attempt);   /* a run has ended after the batch was stopped */
    /* True: the owner calls hutch_batch_attempt_submit() later. False: nothing runs that could make room. */
    bool (*on_queue_full)(void *owner, struct batch_attempt *attempt);
    void (*on_no_memory)(void *owner);
};

/* What all attempts of a batch have in common. */
struct batch_attempts {
    struct batch_plan *plan;
    const struct batch_engine *engine;
    const struct batch_attempt_events *events;
    void *owner;
    struct batch_manner manner;
    bool all_cases;     /* do not stop at a sample's first failing case */
    const char *proc;   /* "/proc" */
    bool is_stopping;   /* set by the owner: results that still come are dropped */
    uint64_t n_made;    /* runs, for their names */
    uint64_t n_runs, n_retried, n_exposed;
};

struct batch_attempt {
    struct batch_attempts *all;
    struct batch_attempt *next, *previous, *next_waiting; /* the owner's */
    size_t item;
    struct batch_loaded loaded;
    struct batch_run run;
    uint64_t id;                    /* of what runs; 0: not submitted */
    size_t index;                   /* its case */
    unsigned tries;                 /* that failed for no fault of the program */
    bool is_together;
    struct batch_outcome outcome;
};

/* Reads the sample and its task; nothing runs yet. */
int hutch_batch_attempt_create(struct batch_attempts *all, size_t item, struct batch_attempt **ret,
                               struct hutch_err *err);
/* Begins. It may be concluded, and freed, before this returns. */
void hutch_batch_attempt_start(struct batch_attempt *attempt);
/* Submits once more what found the queue full. False when it is still full. */
bool hutch_batch_attempt_submit(struct batch_attempt *attempt);
void hutch_batch_attempt_free(struct batch_attempt *attempt);

#endif
