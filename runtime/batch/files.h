/* files.h - the files that a task has, in a directory of one run. */
#ifndef HUTCH_BATCH_FILES_H
#define HUTCH_BATCH_FILES_H

#include "runtime/text/json_view.h"
#include "sandbox/err.h"

#include <stdint.h>

struct batch_files {
    int dirfd;     /* of the directory above; not owned */
    char name[24]; /* of the run's directory in it, "" for none */
    char *path;    /* owned */
};
#define BATCH_FILES_INIT { .dirfd = -1 }

/* Makes a directory called @number in @dirfd, whose path is @path, with what @files names: an object of texts by path.
 * On failure @ret may name a directory that is made in part, and is removed as usual. */
int hutch_batch_files_make(int dirfd, const char *path, uint64_t number, struct json_view files,
                           struct batch_files *ret, struct hutch_err *err);
void hutch_batch_files_remove(struct batch_files *files);

#endif
