/* waiting.h - what an exchange has besides while its cell or order is the session's. */
#ifndef HUTCH_GATEWAY_WAITING_H
#define HUTCH_GATEWAY_WAITING_H

#include "runtime/gateway/events.h"

#include <stdint.h>

struct exchange;
struct gateway_session;
struct hutch_error;
struct hutch_reply;

struct waiting {
    struct gateway_session *session; /* it ends after the answers to all of its cells and orders */
    uint64_t cell;                   /* its number; 0: it is an order */
    struct events stream;
};

/* Becomes the work of @x. NULL: the exchange is refused. */
struct waiting *hutch_waiting_create(struct exchange *x, struct gateway_session *session);
/* Before the library is asked: what cannot be done at all is answered within the call. */
void hutch_waiting_begin(struct exchange *x, void (*on_gone)(struct exchange *x));
/* The answer is there. */
void hutch_waiting_end(struct exchange *x);
/* The library has not taken it: the end, and the answer. */
void hutch_waiting_refuse(struct exchange *x, const struct hutch_error *error);

#endif
