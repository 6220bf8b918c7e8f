/* snapshot.h - the files of a data directory as they are at a moment: kept, brought back, exchanged for another
 * branch's.
 *
 * A state is a directory below a store, with the contents of the data directory; the data directory itself stays the
 * inode it is, because it is mounted, and some process's working directory. Done by the disk worker
 * (runtime/launcher/disk.h), whose rights files with mode 000 need.
 *
 * Kept: contents (holes as holes), hard links within the tree, symbolic links, FIFOs and sockets, modes without
 * set-user-ID bits, times, user.* attributes, and owners as far as the process may give files away. Not kept, and so
 * refused: devices, and whatever is mounted in the tree. The tree may change meanwhile: a file that does is copied as
 * it is found, no link is followed, and no FIFO is waited for.
 *
 * Nothing is lost: what fails leaves the data directory as it was and removes what it had begun. Where that fails, too,
 * the rest stays in the store. An order that was broken off, because the process was killed, goes on where it was when
 * it is given again with the same names, and SNAPSHOT_RESUMES; any other sets aside what one that failed has
 * left. */
#ifndef HUTCH_DATA_SNAPSHOT_H
#define HUTCH_DATA_SNAPSHOT_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stdint.h>

struct snapshot_bounds {
    uint64_t max_bytes;   /* contents, symbolic links and attributes; 0: no bound */
    uint64_t max_entries; /* 0: no bound */
    unsigned max_depth;   /* of directories in each other; 0: SNAPSHOT_MAX_DEPTH, which is also the most */
};
#define SNAPSHOT_MAX_DEPTH 200 /* one descriptor each */

struct snapshot_report {
    uint64_t entries;
    /* that share their blocks with the original until one of them is written: ioctl_ficlone(2) */
    uint64_t bytes_cloned;
    uint64_t bytes_copied;
    uint64_t bytes_kept; /* hutch_snapshot_switch(): disk space of @keep; UINT64_MAX: it could not be measured */
};
/* "reflink", "copied", "both"; "nothing" when there were no contents. */
const char *hutch_snapshot_how(const struct snapshot_report *report);

#define SNAPSHOT_NAME_MAX 23 /* bytes of a state's name: letters, digits, '-', '_' */

/* Copies the contents of @data_dirfd into the new directory @name of @store_dirfd. Errors: E2BIG (over a bound),
 * EEXIST, ENOSPC, EACCES, and a sentence for what cannot be kept. */
int hutch_snapshot_take(int data_dirfd, int store_dirfd, const char *name, const struct snapshot_bounds *bounds,
                        struct snapshot_report *ret, struct hutch_err *err);

#define SNAPSHOT_RESUMES (1u << 0) /* the order was broken off */
/* The data directory is a file system of its own, in memory, and nobody but the sandbox has its files: where it is too
 * full for two states, those that go are emptied first, as one that is open would keep its memory. */
#define SNAPSHOT_EMPTIES (1u << 1)

/* The data directory becomes a copy of state @name, which stays. What was in it goes. @flags: SNAPSHOT_... */
int hutch_snapshot_restore(int data_dirfd, int store_dirfd, const char *name, unsigned flags,
                           const struct snapshot_bounds *bounds, struct snapshot_report *ret, struct hutch_err *err);

/* What is in the data directory becomes the state @keep, which is new; the state @name becomes the contents of the data
 * directory, and is no state any more. Nothing is copied, unless store and data directory are on different file
 * systems. */
int hutch_snapshot_switch(int data_dirfd, int store_dirfd, const char *name, const char *keep, unsigned flags,
                          struct snapshot_report *ret, struct hutch_err *err);

#endif
