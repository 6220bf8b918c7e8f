/* run_report.h - what `hutch run` says of a result, and the exit status that it has for it. */
#ifndef HUTCH_CLI_RUN_REPORT_H
#define HUTCH_CLI_RUN_REPORT_H

#include "runtime/hutch.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

struct run_opts;

struct run_report {
    int status;     /* the program's, or what stands for it */
    char *json;     /* owned; with --json, else NULL */
    char *messages; /* owned; lines for standard error */
    size_t messages_len;
};
#define RUN_REPORT_INIT { .json = NULL }

int hutch_run_exit_status(const struct hutch_result *result);

/* Where the result is there; it is not looked at later. Errors: ENOMEM. */
int hutch_run_report_make(const struct run_opts *opts, const struct hutch_result *result, struct run_report *ret,
                          struct hutch_err *err);
/* Behind all of the program's output. @lost_output: the errno that some of it was lost for; 0: none. Returns the exit
 * status. -1: it could not be printed. */
int hutch_run_report_print(const struct run_report *report, int lost_output, struct hutch_err *err);
/* With --json, when hutch failed before there was a result: one that says so, with exit status @status. */
void hutch_run_report_print_failure(int status, const struct hutch_err *why);
void hutch_run_report_done(struct run_report *report);

#endif
