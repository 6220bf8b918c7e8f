/* run_transfer.h - the files that a request puts into the data directory of its run before the start, and those that it
 * gets back after the end.
 *
 * Names are those of files.h, which follows no link: what is put meets the caller's directory, or an empty one, and
 * what is fetched is what hostile code has left. */
#ifndef HUTCH_ENGINE_RUN_TRANSFER_H
#define HUTCH_ENGINE_RUN_TRANSFER_H

#include "runtime/hutch.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define TRANSFER_MAX_PUT   1024
#define TRANSFER_MAX_BYTES (64u << 20) /* of all that are put: they are written in the loop */
#define TRANSFER_MAX_FETCH 64          /* each is a descriptor, as long as the result is told */

struct engine_run;

struct put_file {
    char *name; /* owned, as data; below the data directory */
    char *data; /* NULL when len is 0 */
    size_t len;
    mode_t mode;
};

struct run_transfer {
    struct put_file *puts; /* owned */
    size_t n_puts;
    struct hutch_fetched *fetched; /* owned, with the paths; as asked for */
    char **names;                  /* owned; of the same, below the data directory */
    size_t n_fetched;
};
#define RUN_TRANSFER_INIT { .puts = NULL }
void hutch_run_transfer_done(struct run_transfer *t);

/* What paths go by; not owned. */
struct transfer_places {
    const char *cwd;                 /* where the program starts */
    const char *const *data_targets; /* further names of the data directory, NULL-terminated; or NULL */
    const char *const *own_data_targets; /* the same, of this request alone */
};

/* What the request asks for, copied. Errors: EINVAL (a path that is not below the data directory, too many, too much),
 * ENOMEM. */
int hutch_run_transfer_take(struct run_transfer *t, const struct hutch_request *request,
                            const struct transfer_places *places, struct hutch_err *err);
/* Writes those that are put, in the data directory of its slot, in which no code runs. */
int hutch_run_transfer_put(struct engine_run *run, struct hutch_err *err);
/* Opens those that are fetched, when everything in the sandbox is dead and hutch_run_files_collect() was called, or
 * nothing lies there (@has_files). hutch_run_transfer_done() closes them. */
void hutch_run_transfer_fetch(struct engine_run *run, bool has_files);

#endif
