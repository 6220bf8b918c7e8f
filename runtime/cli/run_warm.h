/* run_warm.h - one run through an engine of its own: what `hutch run --warm` does. It is for comparing the two ways,
 * and for putting the warm one through the tests of the other: starting an engine takes longer than a run. */
#ifndef HUTCH_CLI_RUN_WARM_H
#define HUTCH_CLI_RUN_WARM_H

#include "runtime/cli/run_report.h"
#include "sandbox/err.h"

struct cli_engine_options;
struct run_opts;
struct sandbox_spec;

struct warm_run_request {
    const struct cli_engine_options *engine;
    const struct run_opts *opts;
    const char *data;                   /* the real path of --data; NULL: none */
    const struct sandbox_spec *program; /* argv and file as hutch_program_set_...() have them */
    char *const *args;                  /* NULL-terminated: what follows the program */
    int signal_fd;                      /* as in struct run_request */
};

/* Runs to the end and passes output on as it comes, unless it is a part of the result. @ret: for
 * hutch_run_report_print(). *@ret_lost_output: the errno that output was lost for, 0 for none. -1 for what is not a
 * result. */
int hutch_run_warm(const struct warm_run_request *request, struct run_report *ret, int *ret_lost_output,
                   struct hutch_err *err);

#endif
