/* run.h - one run: a sandbox from its start to its result, with the streams, clocks and limits that are watched from
 * outside. Knows nothing of the command line. */
#ifndef HUTCH_RUN_RUN_H
#define HUTCH_RUN_RUN_H

#include "sandbox/err.h"
#include "runtime/run/result.h"
#include "runtime/run/stream.h"
#include "sandbox/spec.h"

struct project_copy;

struct run_request {
    struct sandbox_spec *spec; /* everything but /mnt/data and the error report, which the run adds; not owned */
    const char *home;          /* hutch's own directory */
    const char *data_dir;      /* host directory bound at /mnt/data, its real path; NULL: a fresh one */
    const struct project_copy *project; /* NULL: none, or it is a mount of the spec. With one, may_unshare is true */
    int stdin_fd;              /* copied to the program; -1: empty. Not owned. */
    int stdout_fd, stderr_fd;  /* where the program's output goes as it comes; -1: into the result */
    struct stream_shaper *stdout_shaper, *stderr_shaper; /* what they get instead, NULL: as it is. Not owned. */
    bool may_unshare;            /* the calling process may take namespaces of its own: cold_data.h */
    int signal_fd;             /* signalfd(2) whose SIGINT, SIGTERM, … are passed on; -1: none. Not owned. */
};

/* Runs to the end and fills @ret (initialised by the caller, who releases it) even when it fails: a result with verdict
 * setup_failed says why. -1 only for what is not a result: a broken request, no memory. */
int hutch_run(const struct run_request *request, struct run_result *ret, struct hutch_err *err);

#endif
