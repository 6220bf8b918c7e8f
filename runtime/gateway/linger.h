/* linger.h - connections that are over for us while their client still sends what was refused: it is read for nothing.
 *
 * A socket that is closed with something unread is reset, and a client may lose the answer that it has not read yet
 * (RFC 9112, section 9.6). */
#ifndef HUTCH_GATEWAY_LINGER_H
#define HUTCH_GATEWAY_LINGER_H

#include "runtime/gateway/poller.h"

#include <sys/queue.h>

#define LINGER_MS 2000 /* then it is closed, whatever still comes */
#define LINGER_MOST 64 /* connections at once; further ones are closed at once */

struct lingerer;
TAILQ_HEAD(lingerers, lingerer);

struct lingering {
    struct poller *poller;
    struct lingerers rows; /* in the order of their deadlines, as all have the same time */
    unsigned n;
};

/* @poller: of the loop that calls hutch_linger_expire(); it outlives @l. */
void hutch_linger_init(struct lingering *l, struct poller *poller);
void hutch_linger_done(struct lingering *l);

/* Takes over from @fd's owner, who closes it now: a duplicate is kept. Where that fails, the connection is closed. */
void hutch_linger_take(struct lingering *l, int fd);

/* When the next one is closed, in milliseconds of the clock; negative: there is none. */
double hutch_linger_deadline(const struct lingering *l);
void hutch_linger_expire(struct lingering *l, double now_ms);

#endif
