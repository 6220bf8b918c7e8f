/* channel.h - what the processes of a server with workers tell each other, and the connections that they hand over: a
 * pair of sockets for each of them, which all others write to. Nothing of it has a name in the file system.
 *
 * Source: unix(7), SCM_RIGHTS. */
#ifndef HUTCH_GATEWAY_CHANNEL_H
#define HUTCH_GATEWAY_CHANNEL_H

#include "sandbox/err.h"

enum channel_kind {
    CHANNEL_CLIENT,     /* a client's connection, from a unix socket */
    CHANNEL_TCP_CLIENT,
    CHANNEL_INNER,      /* another worker's, with the request of such a client */
    CHANNEL_TCP_INNER,
    CHANNEL_READY,      /* a worker's pool has been filled; to the workers: that of each */
    CHANNEL_FAILED,     /* a worker could not begin, and says why */
    CHANNEL_DRAIN,      /* as SIGTERM */
    CHANNEL_RELOAD,     /* as SIGHUP */
    CHANNEL_KIND_COUNT
};

struct channel_message {
    enum channel_kind kind;
    unsigned from;                /* the worker's number */
    char text[sizeof(((struct hutch_err *)0)->msg)];
};

struct channel {
    int in, out; /* owned; read by one process, written to by all */
};
#define CHANNEL_INIT { -1, -1 }

int hutch_channel_open(struct channel *ret, struct hutch_err *err);
void hutch_channel_done(struct channel *c);

/* @fd: handed over, and the caller's to close all the same; -1: none. -1 with errno: EAGAIN when it is full. */
int hutch_channel_send(const struct channel *c, const struct channel_message *message, int fd);
/* 1: *ret, and *ret_fd, the caller's, or -1. 0: there is nothing to read. */
int hutch_channel_receive(const struct channel *c, struct channel_message *ret, int *ret_fd);

#endif
