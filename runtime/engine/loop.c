#include "runtime/engine/loop.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#define EVENTS_AT_ONCE 64
#define NEXT_TURN_MS   1e-3
#define LATE_MS        500 /* a deadline that is called so late was not kept by the loop */

/* --- watches ------------------------------------------------------------------------------------------------------ */

int hutch_watch_add(struct watch *w, struct loop *loop, int fd, uint32_t events,
                    void (*on_ready)(struct watch *w, uint32_t events), void *owner, struct hutch_err *err)
{
    struct epoll_event event = { .events = events, .data.ptr = w };

    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        return hutch_err_set(err, errno, "wait for one more descriptor");
    *w = (struct watch){ .loop = loop, .fd = fd, .on_ready = on_ready, .owner = owner };
    return 0;
}

void hutch_watch_change(struct watch *w, uint32_t events)
{
    struct epoll_event event = { .events = events, .data.ptr = w };

    if (w->fd >= 0)
        epoll_ctl(w->loop->epoll_fd, EPOLL_CTL_MOD, w->fd, &event);
}

void hutch_watch_remove(struct watch *w)
{
    if (w->fd >= 0)
        epoll_ctl(w->loop->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
    w->fd = -1;
}

/* --- the timer ---------------------------------------------------------------------------------------------------- */

static void on_timer(struct watch *w, uint32_t events)
{
    uint64_t count;

    (void)events;
    if (read(w->fd, &count, sizeof(count)) > 0)
        w->loop->armed = LOOP_NEVER;
}

static void arm(struct loop *loop, double at)
{
    struct itimerspec when = { .it_value = { .tv_nsec = 1 } }; /* 0 would disarm it */

    if (at >= loop->armed || at >= LOOP_NEVER)
        return;
    if (at > 1) {
        when.it_value.tv_sec = (time_t)(at / 1e3);
        when.it_value.tv_nsec = (long)((at - (double)when.it_value.tv_sec * 1e3) * 1e6);
    }
    if (timerfd_settime(loop->timer_fd, TFD_TIMER_ABSTIME, &when, NULL) == 0)
        loop->armed = at;
}

void hutch_loop_wake(struct loop *loop)
{
    if (!loop->is_in_turn)
        arm(loop, 0);
}

/* --- deadlines: a pairing heap ------------------------------------------------------------------------------------ */

static struct deadline *meld(struct deadline *a, struct deadline *b)
{
    struct deadline *first = !b || (a && a->at <= b->at) ? a : b, *second = first == a ? b : a;

    if (!second)
        return first;
    second->next = first->child;
    if (second->next)
        second->next->from = &second->next;
    second->from = &first->child;
    first->child = second;
    return first;
}

/* Children of one parent, melded two by two and then all, which keeps the heap flat. */
static struct deadline *meld_children(struct deadline *child)
{
    struct deadline *pairs = NULL, *all = NULL;

    while (child) {
        struct deadline *a = child, *b = a->next;

        child = b ? b->next : NULL;
        a->next = NULL;
        if (b)
            b->next = NULL;
        a = meld(a, b);
        a->next = pairs;
        pairs = a;
    }
    while (pairs) {
        struct deadline *a = pairs;

        pairs = a->next;
        a->next = NULL;
        all = meld(all, a);
    }
    return all;
}

static void set_first(struct loop *loop, struct deadline *d)
{
    loop->first = d;
    if (d)
        d->from = &loop->first;
}

static void take_out(struct loop *loop, struct deadline *d)
{
    struct deadline *below = meld_children(d->child);

    *d->from = d->next;
    if (d->next)
        d->next->from = d->from;
    d->child = d->next = NULL;
    d->from = NULL;
    d->at = LOOP_NEVER;
    set_first(loop, meld(loop->first, below));
}

void hutch_loop_set_deadline(struct loop *loop, struct deadline *d, double at)
{
    if (d->at < LOOP_NEVER)
        take_out(loop, d);
    if (at >= LOOP_NEVER)
        return;
    if (at <= 0)
        at = hutch_clock_ms(); /* or it would be as late as the machine is old */
    d->at = at > loop->due_now ? at : loop->due_now + NEXT_TURN_MS;
    set_first(loop, meld(loop->first, d));
    if (loop->first == d && !loop->is_in_turn)
        arm(loop, at);
}

void hutch_loop_advance_deadline(struct loop *loop, struct deadline *d, double at)
{
    if (at < d->at)
        hutch_loop_set_deadline(loop, d, at);
}

void hutch_loop_run_due(struct loop *loop)
{
    loop->due_now = hutch_clock_ms();
    while (loop->first && loop->first->at <= loop->due_now) {
        struct deadline *d = loop->first;

        loop->late_ms = loop->due_now - d->at;
        take_out(loop, d);
        d->on_due(d->owner, loop->due_now);
    }
    loop->due_now = loop->late_ms = 0;
}

double hutch_loop_stood_still(const struct loop *loop)
{
    return loop->late_ms >= LATE_MS ? loop->late_ms : 0;
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

int hutch_loop_open(struct loop *loop, struct hutch_err *err)
{
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (loop->epoll_fd < 0 || loop->timer_fd < 0)
        return hutch_err_set(err, errno, "make an event loop");
    return hutch_watch_add(&loop->timer, loop, loop->timer_fd, EPOLLIN, on_timer, loop, err);
}

void hutch_loop_begin_turn(struct loop *loop)
{
    struct epoll_event events[EVENTS_AT_ONCE];
    int n = TEMP_FAILURE_RETRY(epoll_wait(loop->epoll_fd, events, EVENTS_AT_ONCE, 0));

    loop->is_in_turn = true;
    for (int i = 0; i < n; i++) {
        struct watch *w = events[i].data.ptr;

        if (w->fd >= 0) /* an earlier one may have ended it */
            w->on_ready(w, events[i].events);
    }
}

void hutch_loop_free_doomed(struct loop *loop)
{
    while (loop->doomed) {
        struct doomed *d = loop->doomed;

        loop->doomed = d->next;
        d->free(d->object); /* which d is a part of */
    }
}

void hutch_loop_end_turn(struct loop *loop, bool more)
{
    hutch_loop_free_doomed(loop);
    loop->is_in_turn = false;
    arm(loop, more ? 0 : loop->first ? loop->first->at : LOOP_NEVER);
}

void hutch_loop_free_later(struct loop *loop, struct doomed *d, void *object, void (*free)(void *object))
{
    *d = (struct doomed){ .next = loop->doomed, .free = free, .object = object };
    loop->doomed = d;
}

void hutch_loop_done(struct loop *loop)
{
    hutch_loop_free_doomed(loop);
    hutch_watch_remove(&loop->timer);
    hutch_fd_closep(&loop->timer_fd);
    hutch_fd_closep(&loop->epoll_fd);
}
