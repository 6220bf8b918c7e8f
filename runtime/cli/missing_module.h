/* missing_module.h - where the Python module is that a program has not found. */
#ifndef HUTCH_CLI_MISSING_MODULE_H
#define HUTCH_CLI_MISSING_MODULE_H

struct hutch_result;
struct run_opts;

/* A sentence, for the caller to free, when the program ended with ModuleNotFoundError, and the module lies beside its
 * file outside, or its image lacks it and another one in the store has it. Else NULL. */
char *hutch_missing_module_explain(const struct run_opts *opts, const struct hutch_result *result);

#endif
