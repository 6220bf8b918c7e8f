/* scratch.h - the directory of a batch in $TMPDIR for the files of its tasks.
 *
 * Its flock(2) is held as long as the batch lives, so that the next batch of the same user finds those that a killed
 * one left, and removes them. */
#ifndef HUTCH_BATCH_SCRATCH_H
#define HUTCH_BATCH_SCRATCH_H

#include "sandbox/err.h"

#include <limits.h>

struct batch_scratch {
    char path[PATH_MAX]; /* "" for none */
    int dirfd;           /* owned */
};
#define BATCH_SCRATCH_INIT { .dirfd = -1 }

/* Removes what killed batches left, and makes an empty one. */
int hutch_batch_scratch_make(struct batch_scratch *ret, struct hutch_err *err);

/* It has to be empty: each run removes its own files. */
int hutch_batch_scratch_remove(struct batch_scratch *s, struct hutch_err *err);

#endif
