/* link.h - a packet socket to a process of the engine's: whole packets with descriptors, in order, and never
 * waiting. */
#ifndef HUTCH_ENGINE_LINK_H
#define HUTCH_ENGINE_LINK_H

#include "runtime/engine/loop.h"
#include "sandbox/err.h"

#include <stddef.h>
#include <sys/types.h>

#define LINK_MAX_FDS 64

struct link {
    struct watch watch;
    int fd; /* owned; -1 when closed */
    struct packet *first, *last; /* not sent yet */
    struct deadline again;       /* when the first of them is tried again, where no event can tell that it would go */
    double pause_ms;             /* until then; grows with each attempt */
    double heard_at; /* when the last packet came; 0: none has */
    /* @fds are the handler's to close. @sender: its pid as this process sees it, 0 when unknown. */
    void (*on_packet)(struct link *l, void *data, size_t len, int *fds, size_t n_fds, pid_t sender);
    void (*on_hangup)(struct link *l); /* it closes the link */
    void *owner;
};
#define LINK_INIT { .watch = WATCH_INIT, .fd = -1 }

/* Takes @fd over, on failure too. The other fields are set by the caller, before. */
int hutch_link_open(struct link *l, struct loop *loop, int fd, struct hutch_err *err);
/* Sends, or keeps for later, @head and @tail as one packet with copies of @fds. A packet that the kernel does not take
 * for want of a counter of the whole user (descriptors on their way, buffers) is tried again after a pause. That the
 * other end is gone is no error here: on_hangup tells. Errors: ENOMEM; EMFILE, as descriptors are copied where the
 * packet has to wait. */
int hutch_link_send(struct link *l, const void *head, size_t head_len, const void *tail, size_t tail_len,
                    const int *fds, size_t n_fds, struct hutch_err *err);
void hutch_link_close(struct link *l);

#endif
