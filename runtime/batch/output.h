/* output.h - the results of a batch: one record each, on a line, and the file of them is the journal to resume from.
 *
 * A record is written by one write(2) and says which program it is about (task, sample, hash), so after any
 * interruption the complete lines are what is done. In input order, what ends early waits for its turn in memory. */
#ifndef HUTCH_BATCH_OUTPUT_H
#define HUTCH_BATCH_OUTPUT_H

#include "runtime/batch/journal.h"
#include "runtime/batch/plan.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct batch_output {
    char *path;      /* owned; NULL: standard output */
    int fd;          /* owned but for standard output */
    bool in_order;
    struct batch_plan *plan;
    char **held;     /* owned: records by item that wait for their turn */
    size_t *held_len;
    size_t next;     /* the item whose turn it is */
    size_t n_held;
    struct batch_record *records; /* owned: what stands in the file */
    size_t n_records, records_room;
    uint64_t size;
    size_t n_kept;    /* records that were there already and count */
    size_t n_dropped; /* that were there and did not: of an earlier version of a program, or not judged */
    bool is_torn;     /* the last line had not been written to its end */
};
#define BATCH_OUTPUT_INIT { .path = NULL, .fd = -1 }

/* @path NULL or "-" is standard output. @resume: the file may be there; what it has is marked as done in @plan.
 * Otherwise it must be absent or empty. Errors: EEXIST; it holds something else than results of these tasks. */
int hutch_batch_output_open(const char *path, bool resume, bool in_order, struct batch_plan *plan,
                            struct batch_output *ret, struct hutch_err *err);

/* Takes over the record of an item, which ends with a newline. */
int hutch_batch_output_add(struct batch_output *out, size_t item, char *record, size_t len, struct hutch_err *err);

/* Writes what still waits. @is_complete: everything is done, so a file that was resumed is put into input order too. */
int hutch_batch_output_finish(struct batch_output *out, bool is_complete, struct hutch_err *err);
void hutch_batch_output_done(struct batch_output *out);

#endif
