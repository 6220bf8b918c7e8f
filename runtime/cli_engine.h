/* cli_engine.h - the engine of one command: what a command line asks of a sandbox, and one interpreter that can run cells. */
#ifndef HUTCH_CLI_ENGINE_H
#define HUTCH_CLI_ENGINE_H

#include "err.h"

struct hutch_engine;
struct profile;

#define CLI_ENGINE_MAX_MODULES 16

/* @profile's strings have to live as long as the engine. @modules: imported by the interpreter beyond what cells need,
 * NULL-terminated; or NULL. One sandbox is kept prepared. */
int hutch_cli_engine_open(const struct profile *profile, const char *const *modules, struct hutch_engine **ret,
                          struct hutch_err *err);

#endif
