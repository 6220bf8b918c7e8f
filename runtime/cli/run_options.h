/* run_options.h - the options of the commands that make a sandbox by them: hutch run, hutch repl and hutch mcp. */
#ifndef HUTCH_CLI_RUN_OPTIONS_H
#define HUTCH_CLI_RUN_OPTIONS_H

#include "runtime/cli/commands.h"
#include "runtime/config/profile.h"
#include "runtime/hutch.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

/* The option that makes sense only for a program, text or notebook from outside of the image; NULL: there is none. */
const char *hutch_run_options_from_outside(const struct run_opts *opts);

/* Options end at the first word that is none, so that a program's own options stay its own. A notebook has none: behind
 * its name they go on, and the name is moved to behind them. *ret_first: index of that word, or name. */
int hutch_run_options_parse(enum command_id command, int argc, char **argv, struct run_opts *ret, int *ret_first,
                            struct hutch_err *err);
#define RUN_NOTEBOOK_ENDING ".ipynb"
/* @word: what follows the options, or NULL. */
bool hutch_run_options_is_notebook(const struct run_opts *opts, const char *word);

/* Limits that are given, the others 0. */
int hutch_run_options_limits(const struct run_opts *opts, struct hutch_limits *ret, struct hutch_err *err);
/* What they ask of the sandbox. @home and @data: as in struct profile; all of it has to live as long as @ret. */
int hutch_run_options_profile(const struct run_opts *opts, const char *home, const char *data, struct profile *ret,
                              struct hutch_err *err);
/* The real path of --data, the caller's to free, NULL without it. */
int hutch_run_options_data(const struct run_opts *opts, char **ret, struct hutch_err *err);
/* The budget in tokens of --llm, or of the option @name that stands in its place; 0 without one. */
int hutch_run_options_budget(const struct run_opts *opts, const char *name, size_t *ret, struct hutch_err *err);

/* SIGINT, SIGTERM, SIGHUP and SIGQUIT are blocked and come from a signalfd(2) that does not wait, the caller's to
 * close. */
int hutch_run_watch_signals(int *ret_fd, struct hutch_err *err);

#endif
