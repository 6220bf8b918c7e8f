/* patience.h - how long a process at the other end of a link may say nothing after it was given an order.
 *
 * It is asked for a sign of life when half of that time is over, and hangs when the other half passes in silence. Time
 * in which the loop itself stood still, as when the machine was suspended, does not count. */
#ifndef HUTCH_ENGINE_PATIENCE_H
#define HUTCH_ENGINE_PATIENCE_H

#include "runtime/engine/core.h"
#include "runtime/engine/link.h"

#include <stdbool.h>
#include <stddef.h>

struct patience {
    const struct core *core; /* which has the time */
    struct link *link;
    unsigned share;     /* times the core's answer_ms */
    const void *ping;   /* the order that is answered at once; not owned */
    size_t ping_len;
    void (*on_silent)(void *owner);
    void *owner;
    struct deadline clock;
    bool was_ordered;   /* since the last ping */
    bool is_pinged;
    double pinged_at;
};

/* @p may not move from here on. */
void hutch_patience_init(struct patience *p, struct core *core, struct link *link, const void *ping, size_t ping_len,
                         void (*on_silent)(void *owner), void *owner);
/* An order was sent that a working process takes up soon. */
void hutch_patience_begin(struct patience *p);
/* Nothing is expected any more. Before its object goes. */
void hutch_patience_end(struct patience *p);

#endif
