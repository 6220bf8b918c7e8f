#include "runtime/gateway/inner.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define READ_BLOCK (64u << 10)

static void end(struct inner *in, bool is_whole)
{
    if (in->is_over)
        return;
    in->is_over = true;
    hutch_poller_remove(in->poller, &in->watch);
    in->events->on_end(in->owner, is_whole);
}

static void watch_again(struct inner *in)
{
    uint32_t events = (in->is_paused ? 0 : EPOLLIN) | (hutch_inner_unsent(in) ? EPOLLOUT : 0);
    struct hutch_err ignored;
    int rc = 0;

    if (in->is_over || events == in->watched)
        return;
    if (!events) /* epoll(7) tells of a hang-up whatever is asked for, and what came before it is still to be read */
        hutch_poller_remove(in->poller, &in->watch);
    else if (!in->watched)
        rc = hutch_poller_add(in->poller, &in->watch, in->fd, events, &ignored);
    else
        rc = hutch_poller_change(in->poller, &in->watch, events, &ignored);
    in->watched = events;
    if (rc < 0)
        end(in, false);
}

static void flush(struct inner *in)
{
    while (hutch_inner_unsent(in)) {
        ssize_t n = send(in->fd, in->out.data + in->n_sent, hutch_inner_unsent(in), MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0)
            break; /* nobody takes more of it; the answer may have come before that, and is read */
        in->n_sent += (size_t)n;
    }
    hutch_text_done(&in->out);
    in->n_sent = 0;
}

/* What was read is told of. The owner may have ended it. */
static void tell(struct inner *in)
{
    if (in->reader.status && !in->has_told_head) {
        in->has_told_head = true;
        in->events->on_head(in->owner);
    }
    if (!in->is_over && in->reader.body.len)
        in->events->on_body(in->owner);
    if (!in->is_over && hutch_http_reader_is_over(&in->reader))
        end(in, true);
}

static void read_answer(struct inner *in)
{
    char buf[READ_BLOCK];
    struct hutch_err ignored;
    ssize_t n = recv(in->fd, buf, sizeof(buf), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || hutch_http_reader_feed(&in->reader, buf, (size_t)n, &ignored) < 0)
        end(in, false);
    else
        tell(in);
}

static void on_ready(void *owner, uint32_t events)
{
    struct inner *in = owner;

    if (events & EPOLLOUT && hutch_inner_unsent(in)) {
        flush(in);
        watch_again(in);
        if (!in->is_over && !hutch_inner_unsent(in))
            in->events->on_sent(in->owner);
        return; /* what there is to read is told in the next turn */
    }
    if (events & EPOLLIN)
        read_answer(in);
    else if (events & (EPOLLHUP | EPOLLERR))
        end(in, false);
}

int hutch_inner_begin(struct inner *in, struct poller *poller, int fd, const struct inner_events *events, void *owner,
                      struct hutch_err *err)
{
    *in = (struct inner){ .poller = poller, .events = events, .owner = owner, .fd = fd, .watch = WATCH_INIT,
                          .watched = EPOLLIN, .reader = HTTP_READER_INIT };
    in->reader.keeps_head = true;
    in->watch.on_ready = on_ready;
    in->watch.owner = in;
    if (hutch_poller_add(poller, &in->watch, fd, in->watched, err) == 0)
        return 0;
    in->is_over = true;
    hutch_fd_closep(&in->fd);
    return -1;
}

bool hutch_inner_send(struct inner *in, const char *data, size_t len)
{
    if (in->is_over)
        return true;
    hutch_text_add(&in->out, data, len);
    if (in->out.is_broken)
        return false;
    flush(in);
    watch_again(in);
    return true;
}

size_t hutch_inner_unsent(const struct inner *in)
{
    return in->out.len - in->n_sent;
}

void hutch_inner_pause(struct inner *in, bool is_paused)
{
    in->is_paused = is_paused;
    watch_again(in);
}

int hutch_inner_take(struct inner *in)
{
    int fd = in->fd;

    in->is_over = true;
    hutch_poller_remove(in->poller, &in->watch);
    in->fd = -1;
    return fd;
}

void hutch_inner_done(struct inner *in)
{
    if (!in->poller)
        return;
    in->is_over = true;
    hutch_poller_remove(in->poller, &in->watch);
    hutch_fd_closep(&in->fd);
    hutch_text_done(&in->out);
    hutch_http_reader_done(&in->reader);
    in->poller = NULL;
}
