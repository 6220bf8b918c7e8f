/* engine.h - the engine of one command: what a command line asks of a sandbox, and one sandbox that is kept
 * prepared. */
#ifndef HUTCH_CLI_ENGINE_H
#define HUTCH_CLI_ENGINE_H

#include "runtime/hutch.h"
#include "sandbox/err.h"

struct run_opts;

/* What an engine is opened with. Its pointers are those of @opts, and of the texts here. */
struct cli_engine_options {
    struct hutch_engine_options options; /* for one run or session at a time, without zygotes */
    struct hutch_limits limits;
    char *launcher, *policy_dir; /* owned */
};

/* @home: hutch's own directory. @ret points to itself and so must not be moved; hutch_cli_engine_done() in any
 * case. */
int hutch_cli_engine_options(const struct run_opts *opts, const char *home, struct cli_engine_options *ret,
                             struct hutch_err *err);
void hutch_cli_engine_done(struct cli_engine_options *options);

/* With an interpreter that can execute cells. */
int hutch_cli_engine_open(const struct cli_engine_options *options, struct hutch_engine **ret, struct hutch_err *err);
/* For programs only: nothing is imported. */
int hutch_cli_engine_open_bare(const struct cli_engine_options *options, struct hutch_engine **ret,
                               struct hutch_err *err);

#endif
