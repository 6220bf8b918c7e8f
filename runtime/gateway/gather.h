/* gather.h - a question that all workers are asked, each for itself, this one among them; and one answer of all. */
#ifndef HUTCH_GATEWAY_GATHER_H
#define HUTCH_GATEWAY_GATHER_H

#include "runtime/gateway/merge.h"

#include <stdbool.h>

struct exchange;

/* From here on the exchange is answered so. True; it may be refused. */
bool hutch_gather_take(struct exchange *x, merge_function *merge);

#endif
