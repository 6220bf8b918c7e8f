/* run_server.h - one run by the server that listens on the default socket: what `hutch run` does where that can be, and
 * makes no difference but the time and Ctrl-C.
 *
 * The server has to be this user's, and its sandboxes are to be made as the command's would be (settings.h); what it
 * cannot be asked for is done without it. Nothing is done twice: a request that was refused is run without the
 * server, one that broke off after it was sent is not, as it may have run. */
#ifndef HUTCH_CLI_RUN_SERVER_H
#define HUTCH_CLI_RUN_SERVER_H

#include "runtime/cli/run_report.h"
#include "sandbox/err.h"

struct run_opts;
struct sandbox_spec;

struct server_run_request {
    const struct run_opts *opts;
    const char *home;
    const char *data;                   /* the real path of --data; NULL: none */
    const struct sandbox_spec *program; /* as in struct warm_run_request */
    char *const *args;
    int signal_fd;
};

/* 1: it was done, with *@ret for hutch_run_report_print() as hutch_run_warm() has it. 0: nothing was, and @err says
 * why. -1: it failed. */
int hutch_run_by_server(const struct server_run_request *request, struct run_report *ret, int *ret_lost_output,
                        struct hutch_err *err);

#endif
