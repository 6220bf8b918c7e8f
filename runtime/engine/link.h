/* link.h - what an engine waits for: descriptors in its epoll set, and packet sockets to its helper processes. */
#ifndef HUTCH_ENGINE_LINK_H
#define HUTCH_ENGINE_LINK_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct hutch_engine;

/* One descriptor in the epoll set. Part of the object that it wakes. */
struct watch {
    struct hutch_engine *engine;
    int fd; /* not owned; -1: not in the set */
    void (*on_ready)(struct watch *w, uint32_t events); /* EPOLLIN, … */
    void *owner;
};
#define WATCH_INIT { .fd = -1 }

/* Errors: ENOMEM, ENOSPC (fs.epoll.max_user_watches). */
int hutch_watch_add(struct watch *w, struct hutch_engine *engine, int fd, uint32_t events,
                    void (*on_ready)(struct watch *w, uint32_t events), void *owner, struct hutch_err *err);
void hutch_watch_change(struct watch *w, uint32_t events);
/* Before its descriptor is closed: a copy of the process that somebody forked keeps the set's entry alive otherwise. */
void hutch_watch_remove(struct watch *w);

#define LINK_MAX_FDS 64

/* A SOCK_SEQPACKET to a process of ours: whole packets with descriptors, in order, and never waiting. */
struct link {
    struct watch watch;
    int fd; /* owned; -1 when closed */
    struct packet *first, *last; /* not sent yet */
    /* @fds are the handler's to close. @sender: its pid as this process sees it, 0 when unknown. */
    void (*on_packet)(struct link *l, const void *data, size_t len, int *fds, size_t n_fds, pid_t sender);
    void (*on_hangup)(struct link *l); /* it closes the link */
    void *owner;
};
#define LINK_INIT { .watch = WATCH_INIT, .fd = -1 }

/* Takes @fd over, on failure too. The other fields are set by the caller, before. */
int hutch_link_open(struct link *l, struct hutch_engine *engine, int fd, struct hutch_err *err);
/* Sends, or keeps for later, @head and @tail as one packet with copies of @fds. That nobody is there any more is no error here:
 * on_hangup tells. Errors: ENOMEM; EMFILE, as descriptors are copied where the packet has to wait. */
int hutch_link_send(struct link *l, const void *head, size_t head_len, const void *tail, size_t tail_len, const int *fds,
                    size_t n_fds, struct hutch_err *err);
void hutch_link_close(struct link *l);

#endif
