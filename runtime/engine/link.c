#include "runtime/engine/link.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/fdpass.h"
#include "sandbox/log.h"

#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <stdlib.h>
#include <sys/socket.h>

#define PACKETS_AT_ONCE 16 /* from one link, before others have their turn */
#define PAUSE_MIN_MS 5
#define PAUSE_MAX_MS 200

struct packet {
    struct packet *next;
    size_t len, n_fds;
    int fds[LINK_MAX_FDS]; /* owned copies */
    char data[];
};

static void free_packet(struct packet *p)
{
    for (size_t i = 0; i < p->n_fds; i++)
        close(p->fds[i]);
    free(p);
}

static void drop_first(struct link *l)
{
    struct packet *p = l->first;

    l->first = p->next;
    if (!l->first)
        l->last = NULL;
    free_packet(p);
}

/* Why the socket takes no more now. Any other failure is the end of the link, which its hang-up tells. */
enum why_full {
    NOT_FULL,
    FULL_SOCKET, /* EPOLLOUT tells when it is not any more */
    FULL_USER,   /* ETOOMANYREFS: all of the user's processes have too many descriptors on their way, unix(7). No event
                  * tells when that ends, and the socket stays writable: who waits for that turns in circles */
};

static enum why_full why_full(ssize_t n)
{
    if (n >= 0)
        return NOT_FULL;
    return errno == EAGAIN ? FULL_SOCKET : errno == ENOBUFS || errno == ETOOMANYREFS ? FULL_USER : NOT_FULL;
}

static void await_room(struct link *l, enum why_full why)
{
    struct loop *loop = l->watch.loop;

    hutch_watch_change(&l->watch, why == FULL_SOCKET ? EPOLLIN | EPOLLOUT : EPOLLIN);
    if (why == FULL_USER) {
        l->pause_ms = l->pause_ms * 2 < PAUSE_MIN_MS ? PAUSE_MIN_MS : l->pause_ms * 2;
        if (l->pause_ms > PAUSE_MAX_MS)
            l->pause_ms = PAUSE_MAX_MS;
        hutch_loop_set_deadline(loop, &l->again, hutch_clock_ms() + l->pause_ms);
    }
}

static void send_waiting(struct link *l)
{
    while (l->first) {
        enum why_full why = why_full(hutch_fdpass_send(l->fd, l->first->data, l->first->len, l->first->fds,
                                                       l->first->n_fds, MSG_DONTWAIT));

        if (why != NOT_FULL) {
            await_room(l, why);
            return;
        }
        drop_first(l);
        l->pause_ms = 0;
    }
    hutch_watch_change(&l->watch, EPOLLIN);
}

static void on_again(void *owner, double now)
{
    (void)now;
    send_waiting(owner);
}

static void receive(struct link *l)
{
    char *buf = l->watch.loop->scratch;

    for (int i = 0; i < PACKETS_AT_ONCE && l->fd >= 0; i++) {
        union {
            struct cmsghdr align;
            char buf[CMSG_SPACE(LINK_MAX_FDS * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
        } control;
        struct iovec part = { buf, LOOP_SCRATCH_BYTES };
        struct msghdr msg = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)
        };
        ssize_t n = TEMP_FAILURE_RETRY(recvmsg(l->fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT));
        int fds[LINK_MAX_FDS];
        size_t n_fds = 0;
        struct ucred sender = { 0 };

        if (n < 0 && errno == EAGAIN)
            return;
        for (struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
            if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS) {
                memcpy(&sender, CMSG_DATA(c), sizeof(sender));
            } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
                n_fds = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                memcpy(fds, CMSG_DATA(c), n_fds * sizeof(int));
            }
        }
        /* Descriptors are missing when this process may not have that many: no fault of who sent them. Whoever needs
         * them looks. */
        if (n > 0 && !(msg.msg_flags & MSG_TRUNC)) {
            l->heard_at = hutch_clock_ms();
            l->on_packet(l, buf, (size_t)n, fds, n_fds, sender.pid);
            continue;
        }
        for (size_t k = 0; k < n_fds; k++)
            close(fds[k]);
        /* once, in front of its last words: it ended before it had read all of ours */
        if (n < 0 && errno == ECONNRESET)
            continue;
        l->on_hangup(l);
        return;
    }
}

static void on_ready(struct watch *w, uint32_t events)
{
    struct link *l = w->owner;

    if (events & EPOLLOUT)
        send_waiting(l);
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        receive(l);
}

int hutch_link_open(struct link *l, struct loop *loop, int fd, struct hutch_err *err)
{
    int on = 1;

    l->fd = fd;
    l->again = (struct deadline)DEADLINE_INIT(on_again, l);
    l->pause_ms = 0;
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0 || setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0) {
        hutch_err_set(err, errno, "set up a socket");
        hutch_fd_closep(&l->fd);
        return -1;
    }
    if (hutch_watch_add(&l->watch, loop, fd, EPOLLIN, on_ready, l, err) < 0) {
        hutch_fd_closep(&l->fd);
        return -1;
    }
    return 0;
}

static int keep_packet(struct link *l, const void *head, size_t head_len, const void *tail, size_t tail_len,
                       const int *fds, size_t n_fds, struct hutch_err *err)
{
    struct packet *p = malloc(sizeof(*p) + head_len + tail_len);

    if (!p)
        return hutch_err_set(err, ENOMEM, "keep a packet");
    p->next = NULL;
    p->len = head_len + tail_len;
    memcpy(p->data, head, head_len);
    if (tail_len)
        memcpy(p->data + head_len, tail, tail_len);
    for (p->n_fds = 0; p->n_fds < n_fds; p->n_fds++) {
        p->fds[p->n_fds] = fcntl(fds[p->n_fds], F_DUPFD_CLOEXEC, 3);
        if (p->fds[p->n_fds] < 0) {
            hutch_err_set(err, errno, "keep a packet's descriptors");
            free_packet(p);
            return -1;
        }
    }
    if (l->last)
        l->last->next = p;
    else
        l->first = p;
    l->last = p;
    return 0;
}

int hutch_link_send(struct link *l, const void *head, size_t head_len, const void *tail, size_t tail_len,
                    const int *fds, size_t n_fds, struct hutch_err *err)
{
    enum why_full why;
    ssize_t n;

    if (l->fd < 0)
        return 0;
    if (l->first)
        return keep_packet(l, head, head_len, tail, tail_len, fds, n_fds, err);
    n = hutch_fdpass_send2(l->fd, head, head_len, tail, tail_len, fds, n_fds, MSG_DONTWAIT);
    why = why_full(n);
    if (why == NOT_FULL) {
        if (n < 0)
            hutch_log_debug("engine: send to a helper: %s", strerrordesc_np(errno));
        return 0;
    }
    if (keep_packet(l, head, head_len, tail, tail_len, fds, n_fds, err) < 0)
        return -1;
    await_room(l, why);
    return 0;
}

void hutch_link_close(struct link *l)
{
    if (l->fd >= 0)
        hutch_loop_set_deadline(l->watch.loop, &l->again, LOOP_NEVER);
    hutch_watch_remove(&l->watch);
    while (l->first)
        drop_first(l);
    hutch_fd_closep(&l->fd);
}
