/* journal.h - the results that stand in a file already, read back into the plan.
 *
 * A result counts when it was judged, and its program, task and settings are still those of the plan, as their hash
 * says. */
#ifndef HUTCH_BATCH_JOURNAL_H
#define HUTCH_BATCH_JOURNAL_H

#include "runtime/batch/plan.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Where a record stands in the file. */
struct batch_record {
    uint32_t item;
    uint32_t len; /* with its newline */
    uint64_t offset;
};

struct batch_journal {
    const char *path;
    struct batch_plan *plan;
    FILE *file;      /* owned */
    char *line;      /* owned */
    size_t line_room, line_number;
    uint64_t offset; /* of the next record */
    bool is_torn;    /* the last line had not been written to its end */
    /* Samples of a task in the order of the input, to be found by number: items of a group are spread over the plan. */
    size_t *first;   /* owned: by group, where its items begin in @items */
    uint32_t *items; /* owned */
};
#define BATCH_JOURNAL_INIT { .path = NULL }

/* Reads what @fd has from where it stands; @path is for messages and must outlive @ret. */
int hutch_batch_journal_open(int fd, const char *path, struct batch_plan *plan, struct batch_journal *ret,
                             struct hutch_err *err);
/* The next record; 1, or 0 when there is none. *ret_counts: its item is marked as done in the plan; else *ret has no
 * item. Errors: this is no result of these tasks. */
int hutch_batch_journal_next(struct batch_journal *j, struct batch_record *ret, bool *ret_counts,
                             struct hutch_err *err);
void hutch_batch_journal_done(struct batch_journal *j);

#endif
