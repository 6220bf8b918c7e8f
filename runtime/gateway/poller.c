#include "runtime/gateway/poller.h"

#include "sandbox/fd.h"

int hutch_poller_open(struct poller *ret, struct hutch_err *err)
{
    *ret = (struct poller)POLLER_INIT;
    ret->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    return ret->epoll_fd < 0 ? hutch_err_set(err, errno, "make an epoll descriptor") : 0;
}

void hutch_poller_done(struct poller *p)
{
    hutch_fd_closep(&p->epoll_fd);
}

int hutch_poller_add(struct poller *p, struct watch *watch, int fd, uint32_t events, struct hutch_err *err)
{
    struct epoll_event event = { .events = events, .data.ptr = watch };

    if (epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        return hutch_err_set(err, errno, "watch descriptor %d", fd);
    watch->fd = fd;
    return 0;
}

int hutch_poller_change(struct poller *p, struct watch *watch, uint32_t events, struct hutch_err *err)
{
    struct epoll_event event = { .events = events, .data.ptr = watch };

    if (epoll_ctl(p->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event) < 0)
        return hutch_err_set(err, errno, "watch descriptor %d", watch->fd);
    return 0;
}

void hutch_poller_remove(struct poller *p, struct watch *watch)
{
    if (watch->fd < 0)
        return;
    epoll_ctl(p->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    watch->fd = -1;
    for (int i = 0; i < p->n_batch; i++)
        if (p->batch[i].data.ptr == watch)
            p->batch[i].data.ptr = NULL;
}

int hutch_poller_wait(struct poller *p, int timeout_ms, struct hutch_err *err)
{
    int n = epoll_wait(p->epoll_fd, p->batch, POLLER_BATCH, timeout_ms);

    if (n < 0 && errno != EINTR)
        return hutch_err_set(err, errno, "wait for events");
    p->n_batch = n < 0 ? 0 : n;
    for (int i = 0; i < p->n_batch; i++) {
        struct watch *watch = p->batch[i].data.ptr;

        if (watch)
            watch->on_ready(watch->owner, p->batch[i].events);
    }
    p->n_batch = 0;
    return 0;
}
