/* missing_module.h - which image has the Python module that a program has not found in its own. */
#ifndef HUTCH_CLI_MISSING_MODULE_H
#define HUTCH_CLI_MISSING_MODULE_H

struct hutch_result;

/* A sentence, for the caller to free, when the program ended with ModuleNotFoundError, its image @image (NULL: the
 * default one) lacks the module, and another one in the store has it. Else NULL. */
char *hutch_missing_module_explain(const char *image, const struct hutch_result *result);

#endif
