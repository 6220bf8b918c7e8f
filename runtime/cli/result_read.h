/* result_read.h - the result of a run from its JSON (docs/results.md), as far as a report on a terminal needs it. */
#ifndef HUTCH_CLI_RESULT_READ_H
#define HUTCH_CLI_RESULT_READ_H

#include "runtime/run/result.h"
#include "sandbox/err.h"

#include <stddef.h>

struct cJSON;

/* hutch_result_done() in any case. -1: it is none, or ENOMEM. */
int hutch_result_read(const struct cJSON *json, struct run_result *ret, struct hutch_err *err);

#endif
