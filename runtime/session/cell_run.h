/* cell_run.h - the kind of run that is one cell: the result has what it displayed. */
#ifndef HUTCH_SESSION_CELL_RUN_H
#define HUTCH_SESSION_CELL_RUN_H

#include "sandbox/err.h"

#include <stddef.h>

struct cell_run;
struct engine_run;

/* Makes @run the execution of one cell, @code. */
int hutch_cell_run_create(struct engine_run *run, const char *code, size_t len, struct hutch_err *err);
/* What the worker is told to recognise orders by. */
const char *hutch_cell_run_token(const struct engine_run *run);

#endif
