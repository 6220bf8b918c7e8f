/* record.h - what a root tree consists of, written down when it is unpacked and compared later.
 *
 * One line an entry, sorted by path, so that two records of the same tree are equal:
 *     d 0755 etc
 *     f 0644 2837 <sha256> etc/passwd
 *     l etc/mtab<TAB>/proc/mounts
 * Names cannot hold tabs or newlines: the unpacker refuses control characters, and what is found later with one is
 * shown with '?'. A directory of mode 0 is not looked into. */
#ifndef HUTCH_RECORD_H
#define HUTCH_RECORD_H

#include "sandbox/err.h"

#include <stdint.h>
#include <stdio.h>

/* Called about once per MiB that was read. Not 0 ends the work (ECANCELED). */
typedef int record_progress_fn(void *ctx, uint64_t bytes);
/* Called for each difference: @what is "missing", "extra" or "changed". */
typedef void record_difference_fn(void *ctx, const char *what, const char *path);

struct record_totals {
    uint64_t bytes, entries;
};

/* Describes the tree @dirfd to @out. @progress may be NULL. */
int hutch_record_write(int dirfd, FILE *out, struct record_totals *ret, record_progress_fn *progress, void *ctx,
                       struct hutch_err *err);

/* No tree that fits in a store has a longer record: 30,000,000 names of usual length. */
#define RECORD_MAX_BYTES (4ull << 30)

/* A record that another user may have written: it blocks nobody, and is bounded. The caller closes it; NULL on failure.
 * Errors: 0 (not a regular file, or too large); those of open(2). */
FILE *hutch_record_open(int dirfd, const char *name, struct hutch_err *err);

/* Compares the tree @dirfd with the record @in. *@ret_n is the number of differences.
 * Errors: 0 (the record itself is broken, cut short, or has a line that no entry has); EIO and the like. */
int hutch_record_verify(int dirfd, FILE *in, uint64_t *ret_n, record_difference_fn *difference,
                        record_progress_fn *progress, void *ctx, struct hutch_err *err);

#endif
