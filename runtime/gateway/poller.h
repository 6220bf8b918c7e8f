/* poller.h - waits for descriptors: the one epoll(7) instance of the server, level-triggered.
 *
 * MHD's own epoll descriptor, the engine's, the listening sockets, the signals and the connections whose clients wait
 * are watched in it. */
#ifndef HUTCH_GATEWAY_POLLER_H
#define HUTCH_GATEWAY_POLLER_H

#include "sandbox/err.h"

#include <stdint.h>
#include <sys/epoll.h>

#define POLLER_BATCH 64

/* One descriptor and what to call. Its owner keeps it in place while it is watched; it is -1 when it is not. */
struct watch {
    int fd; /* not owned */
    void (*on_ready)(void *owner, uint32_t events);
    void *owner;
};
#define WATCH_INIT { .fd = -1, .on_ready = NULL, .owner = NULL }

struct poller {
    int epoll_fd; /* owned */
    struct epoll_event batch[POLLER_BATCH];
    int n_batch;
};
#define POLLER_INIT { .epoll_fd = -1, .n_batch = 0 }

int hutch_poller_open(struct poller *ret, struct hutch_err *err);
void hutch_poller_done(struct poller *p);

/* @events: EPOLLIN and the like. */
int hutch_poller_add(struct poller *p, struct watch *watch, int fd, uint32_t events, struct hutch_err *err);
int hutch_poller_change(struct poller *p, struct watch *watch, uint32_t events, struct hutch_err *err);
/* Fine when it is not watched. Within a callback, too: nothing more is called for it. */
void hutch_poller_remove(struct poller *p, struct watch *watch);

/* Waits at most @timeout_ms (-1: for ever) and calls what is ready. A signal is no error. */
int hutch_poller_wait(struct poller *p, int timeout_ms, struct hutch_err *err);

#endif
