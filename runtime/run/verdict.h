/* verdict.h - what a supervised run came to: the verdict with its sentence, usage, error report and times. */
#ifndef HUTCH_RUN_VERDICT_H
#define HUTCH_RUN_VERDICT_H

#include "runtime/hutch.h"
#include "sandbox/err.h"

struct sandbox_end;
struct supervisor;

/* Fills the result of @s, which is drained. -1 on ENOMEM. */
int hutch_verdict_decide(struct supervisor *s, const struct sandbox_end *end, struct hutch_err *err);

#endif
