/* run_warm.h - one run through an engine of its own: what `hutch run --warm` does. It is for comparing the two ways, and for
 * putting the warm one through the tests of the other: starting an engine takes longer than a run. */
#ifndef HUTCH_CLI_RUN_WARM_H
#define HUTCH_CLI_RUN_WARM_H

#include "sandbox/err.h"
#include "runtime/config/profile.h"
#include "runtime/run/result.h"
#include "sandbox/spec.h"

struct warm_run_request {
    const struct profile *profile;
    const struct sandbox_spec *program; /* argv and file as hutch_program_set_...() have them */
    char *const *args;                  /* NULL-terminated: what follows the program */
    const char *code;                   /* of -c; NULL: a file, or standard input */
    int stdin_fd;
    int stdout_fd, stderr_fd;           /* -1: into the result */
    int signal_fd;                      /* as in struct run_request */
};

/* As hutch_run(). */
int hutch_run_warm(const struct warm_run_request *request, struct run_result *ret, struct hutch_err *err);

#endif
