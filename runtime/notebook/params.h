/* params.h - a notebook's parameters: a cell that sets them, as papermill puts it in. */
#ifndef HUTCH_NOTEBOOK_PARAMS_H
#define HUTCH_NOTEBOOK_PARAMS_H

#include "sandbox/err.h"

#include <stddef.h>

struct notebook;

/* Errors: @param is not "NAME=VALUE" with a name that Python takes. */
int hutch_notebook_check_param(const char *param, struct hutch_err *err);
/* @params: each checked. VALUE is JSON, else a word or number of Python's, else a text; of equal names the last counts.
 * The cell follows the first that is tagged "parameters", or is the first of all; one that an earlier time put in is
 * replaced. */
int hutch_notebook_set_params(struct notebook *nb, const char *const *params, size_t n_params, struct hutch_err *err);

#endif
