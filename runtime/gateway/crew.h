/* crew.h - the processes of one server with workers: how each reaches the others, and what all see of each. */
#ifndef HUTCH_GATEWAY_CREW_H
#define HUTCH_GATEWAY_CREW_H

#include "runtime/gateway/channel.h"
#include "runtime/gateway/place.h"
#include "sandbox/err.h"

#include <stdatomic.h>
#include <stdbool.h>

/* In memory that all share. */
struct crew_counts {
    atomic_uint handed;   /* connections of clients that were sent to it, ever */
    atomic_uint taken;    /* … that it has received, whatever became of them: the rest is on its way to it */
    atomic_uint clients;  /* … that it has */
    atomic_uint turns;    /* of its loop: a worker whose number stands still hangs */
};

struct crew {
    unsigned n;
    struct channel parent, workers[WORKERS_MAX];
    struct crew_counts *counts; /* of each worker; owned */
};

/* @n: 2 to WORKERS_MAX. hutch_crew_done() in any case. */
int hutch_crew_open(struct crew *c, unsigned n, struct hutch_err *err);
void hutch_crew_done(struct crew *c);
/* In worker @index: what it reads is its own alone. */
void hutch_crew_keep(struct crew *c, unsigned index);

/* A connection to worker @to, as from a client of a unix socket or of TCP; it may be this one itself. The caller's, and
 * does not block. -1: it takes none just now. */
int hutch_crew_connect(const struct crew *c, unsigned to, bool is_tcp, struct hutch_err *err);
/* Connections of clients that worker @index has, or that are on their way to it. */
unsigned hutch_crew_clients(const struct crew *c, unsigned index);
/* To the parent. @text may be NULL. */
void hutch_crew_tell(const struct crew *c, unsigned from, enum channel_kind kind, const char *text);

#endif
