/* worker.h - one of several processes that serve together, from within: where its connections and orders come from. */
#ifndef HUTCH_GATEWAY_WORKER_H
#define HUTCH_GATEWAY_WORKER_H

#include "sandbox/err.h"

struct connection;
struct server;
struct sockaddr;

/* Watches its channel, in place of listeners and signals. */
int hutch_worker_begin(struct server *s, struct hutch_err *err);
/* Once in each turn of the loop, which is to have one each second at least. */
void hutch_worker_turn(struct server *s);
/* What MHD tells of a connection: sets what the channel said of it. */
void hutch_worker_describe(struct server *s, struct connection *c, const struct sockaddr *address);
/* A connection has ended. */
void hutch_worker_forget(struct server *s, const struct connection *c);

#endif
