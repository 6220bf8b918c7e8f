/* run_options.h - the options of the commands that run code of the caller's: hutch run and hutch repl. */
#ifndef HUTCH_CLI_RUN_OPTIONS_H
#define HUTCH_CLI_RUN_OPTIONS_H

#include "sandbox/err.h"
#include "runtime/config/profile.h"
#include "runtime/hutch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RUN_MAX_REPEATED 256 /* of each option that may be given several times */

struct run_repeated {
    const char *values[RUN_MAX_REPEATED + 1]; /* ends with NULL */
    size_t n;
};

/* As given; NULL for what was not. Nothing is owned. */
struct run_opts {
    const char *image, *rootfs, *policy, *code, *data, *workdir, *network, *memory, *cpus, *pids, *timeout, *cpu_time;
    const char *output, *cell_timeout, *context, *images, *llm_budget;
    struct run_repeated env, volumes, tmpfs, params;
    bool json, quiet, verbose, help, warm, rich, llm, allow_errors;
};

enum run_command { RUN_COMMAND_RUN, RUN_COMMAND_REPL };

/* Options end at the first word that is none, so that a program's own options stay its own. A notebook has none: behind its name they go
 * on, and the name is moved to behind them. *ret_first: index of that word, or name. */
int hutch_run_options_parse(enum run_command command, int argc, char **argv, struct run_opts *ret, int *ret_first,
                            struct hutch_err *err);
#define RUN_NOTEBOOK_ENDING ".ipynb"
/* @word: what follows the options, or NULL. */
bool hutch_run_options_is_notebook(const struct run_opts *opts, const char *word);
void hutch_run_options_print(enum run_command command);

/* Limits that are given, the others 0. */
int hutch_run_options_limits(const struct run_opts *opts, struct hutch_limits *ret, struct hutch_err *err);
/* What they ask of the sandbox. @home and @data: as in struct profile; all of it has to live as long as @ret. */
int hutch_run_options_profile(const struct run_opts *opts, const char *home, const char *data, struct profile *ret,
                              struct hutch_err *err);
/* The real path of --data, the caller's to free, NULL without it. */
int hutch_run_options_data(const struct run_opts *opts, char **ret, struct hutch_err *err);
/* --llm's budget in tokens; 0 without one. */
int hutch_run_options_budget(const struct run_opts *opts, size_t *ret, struct hutch_err *err);

/* SIGINT, SIGTERM, SIGHUP and SIGQUIT are blocked and come from a signalfd(2) that does not wait, the caller's to close. */
int hutch_run_watch_signals(int *ret_fd, struct hutch_err *err);

#endif
