/* run.h - executes a notebook in one session, cell by cell, as nbclient does. */
#ifndef HUTCH_NOTEBOOK_RUN_H
#define HUTCH_NOTEBOOK_RUN_H

#include "sandbox/err.h"
#include "runtime/hutch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct notebook;

struct notebook_order {
    const struct hutch_engine_options *engine; /* but for its zygotes */
    const char *data;              /* host directory for /mnt/data; NULL: a fresh one */
    uint64_t cell_timeout_ms;      /* 0: the engine's wall limit */
    bool allow_errors;             /* go on after an exception */
    bool interrupt_on_timeout;     /* what takes too long is interrupted, and goes on as if interrupted by itself */
    /* SIGINT interrupts the cell and ends the run, the second and all others end it at once */
    int signal_fd;
    /* Callbacks, any of them NULL. Cells count from 1 here, as people count them. */
    void (*on_begin)(void *user, size_t nth, size_t n, size_t cell); /* the @nth of @n that are to be executed */
    void (*on_tick)(void *user);                                     /* about once a second */
    void (*on_result)(void *user, size_t cell, const struct hutch_cell_result *result);
    void *user;
};

struct notebook_outcome {
    enum hutch_verdict verdict; /* of the cell that it ended with */
    size_t cell;                /* which that is, from 1; 0: none */
    size_t n, n_executed;       /* cells with code; those that were begun */
    int signal;                 /* that the caller got; 0: none */
    double ms;
    char *message;              /* owned; one sentence, NULL when all is well */
    char *traceback;            /* owned; of the exception that it ended with, with colours; NULL without */
    /* owned; where files of /mnt/data were kept; NULL: none were, or they are in the order's data */
    char *directory;
};
#define NOTEBOOK_OUTCOME_INIT { .verdict = HUTCH_OK }

/* Outputs, counts and times go into @nb as they come, so it is to be written however this ends. -1: no cell was
 * executed, and nothing was changed. */
int hutch_notebook_run(struct notebook *nb, const struct notebook_order *order, struct notebook_outcome *ret,
                       struct hutch_err *err);
void hutch_notebook_outcome_done(struct notebook_outcome *outcome);

#endif
