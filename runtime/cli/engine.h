/* engine.h - the engine of one command: what a command line asks of a sandbox, and one sandbox that is kept prepared. */
#ifndef HUTCH_CLI_ENGINE_H
#define HUTCH_CLI_ENGINE_H

#include "sandbox/err.h"

struct hutch_engine;
struct hutch_error;
struct profile;

#define CLI_ENGINE_MAX_MODULES 16

/* With an interpreter that can run cells. @profile's strings have to live as long as the engine. @modules: imported by the interpreter
 * beyond what cells need, NULL-terminated; or NULL. */
int hutch_cli_engine_open(const struct profile *profile, const char *const *modules, struct hutch_engine **ret,
                          struct hutch_err *err);
/* For programs only: nothing is imported. */
int hutch_cli_engine_open_bare(const struct profile *profile, struct hutch_engine **ret, struct hutch_err *err);

/* What the engine says went wrong. -1. */
int hutch_cli_engine_fail(struct hutch_err *err, const struct hutch_error *error);

#endif
