/* notebook.h - hutch run NOTEBOOK.ipynb: executes a notebook's cells in one session and writes the notebook. */
#ifndef HUTCH_CLI_NOTEBOOK_H
#define HUTCH_CLI_NOTEBOOK_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cli_engine_options;

struct notebook_opts {
    const char *path;              /* the notebook, as given */
    const char *output; /* where it is written; "-" for stdout; NULL: beside the notebook, as NAME.out.ipynb */
    const struct cli_engine_options *engine;
    const char *data;              /* the real path of --data; NULL: none */
    const char *const *params;     /* "NAME=VALUE"; VALUE is JSON, or else a text */
    size_t n_params;
    uint64_t cell_timeout_ms;      /* 0: none of its own */
    size_t llm_budget;             /* tokens; 0: the default */
    int signal_fd;                 /* of SIGINT, SIGTERM, SIGHUP and SIGQUIT, which are blocked */
    bool allow_errors, interrupt_on_timeout, json, llm, quiet, verbose;
};

/* Returns the exit status: 0, 1 after an exception, 124 on a timeout, 125 when an interpreter could not be had. -1:
 * nothing was executed or nothing could be written, and @err says why. */
int hutch_cmd_notebook(const struct notebook_opts *opts, struct hutch_err *err);

/* With --json, when nothing was executed or written: an object that says so. */
void hutch_notebook_print_failure(const struct hutch_err *why);

#endif
