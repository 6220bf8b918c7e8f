/* run_limits.h - the limits of a run that are tighter than those of the prepared sandbox that it has got. */
#ifndef HUTCH_ENGINE_RUN_LIMITS_H
#define HUTCH_ENGINE_RUN_LIMITS_H

#include "runtime/engine/run.h"

/* Sets them in the run's slot, which is entered, and in its job. 0: they hold; 1: they hold from the slot's on_limited
 * on, and nothing may run before; -1: the slot is of no use. */
int hutch_run_lower_limits(struct engine_run *run, struct hutch_err *err);

#endif
