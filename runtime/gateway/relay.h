/* relay.h - a request whose answer another worker has: it is given to that one as it comes, and so is the answer to the
 * client. It is checked before, as any other; the other worker checks it again, and it is that one that counts it, and
 * writes the line of the log. */
#ifndef HUTCH_GATEWAY_RELAY_H
#define HUTCH_GATEWAY_RELAY_H

#include <stdbool.h>

struct exchange;

/* After the route was found: whether this worker is not to answer it by itself. */
bool hutch_relay_is_wanted(struct exchange *x);
/* When the whole body is there, and may tell more: whether it was given to another worker just now, in place of being
 * answered. */
bool hutch_relay_body(struct exchange *x);
/* After all checks: what answers the exchange from here on. */
void hutch_relay_enter(struct exchange *x);

#endif
