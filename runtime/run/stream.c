#include "runtime/run/stream.h"

#include "sandbox/fd.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>

/* poll(2) promises room for this much in a writable pipe (PIPE_BUF, pipe(7)); a larger write to a pipe that its owner
 * left blocking could stop us, and with us the clock that ends the run. */
#define SINK_CHUNK 4096

static void close_pipe(int *pipe_fd, bool (*on_close)(void *, int), void *user)
{
    if (*pipe_fd >= 0 && on_close && on_close(user, *pipe_fd))
        *pipe_fd = -1;
    hutch_fd_closep(pipe_fd);
}

void hutch_out_stream_close(struct out_stream *s)
{
    struct stream_shaper *shaper = s->shaper;

    s->shaper = NULL;
    if (shaper && s->sink_fd >= 0 && !s->is_sink_broken && STREAM_BUF - s->end >= STREAM_SHAPED(0))
        s->end += shaper->end(shaper, s->buf + s->end);
    close_pipe(&s->pipe_fd, s->on_close, s->user);
}

void hutch_in_stream_close(struct in_stream *s)
{
    close_pipe(&s->pipe_fd, s->on_close, s->user);
}

/* How much memory belongs to @len kept bytes: powers of two, so that the capacity need not be kept too. */
static size_t capacity_for(size_t len)
{
    size_t cap = 4096;

    while (cap < len)
        cap *= 2;
    return cap;
}

static int capture(struct out_stream *s, const char *data, size_t len)
{
    struct run_output *out = s->capture;

    if (s->on_data) {
        if (len)
            s->on_data(s->user, s, data, len);
        return 0;
    }
    if (len == 0)
        return 0;
    /* One more for a NUL: a caller that passes the text on as a string need not copy it. */
    if (!out->data || capacity_for(out->len + len + 1) != capacity_for(out->len + 1)) {
        char *bigger = realloc(out->data, capacity_for(out->len + len + 1));

        if (!bigger)
            return -1;
        out->data = bigger;
    }
    memcpy(out->data + out->len, data, len);
    out->len += len;
    out->data[out->len] = '\0';
    return 0;
}

int hutch_stream_make_pipe(int *ret_mine, int *ret_theirs, bool i_read, struct hutch_err *err)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return hutch_err_set(err, errno, "make a pipe");
    *ret_mine = fds[i_read ? 0 : 1];
    *ret_theirs = fds[i_read ? 1 : 0];
    /* A program may open /dev/stdout, which asks for permission on the pipe again. When root calls, the program is
     * another user than the pipe's owner. The mode lets in no one else: a pipe has no name but in /proc/PID/fd of the
     * processes that hold it, proc(5). */
    if (fchmod(fds[0], 0666) < 0 || fcntl(*ret_mine, F_SETFL, O_NONBLOCK) < 0)
        return hutch_err_set(err, errno, "set up a pipe");
    return 0;
}

void hutch_out_stream_init(struct out_stream *s)
{
    memset(s, 0, offsetof(struct out_stream, tail));
    s->pipe_fd = s->sink_fd = -1;
}

void hutch_out_stream_poll(const struct out_stream *s, struct pollfd *pipe, struct pollfd *sink)
{
    bool has_room = s->sink_fd < 0 || s->is_sink_broken || s->end - s->start < STREAM_BUF / 2;

    *pipe = (struct pollfd){ .fd = has_room ? s->pipe_fd : -1, .events = POLLIN };
    *sink = (struct pollfd){ .fd = s->end > s->start ? s->sink_fd : -1, .events = POLLOUT };
}

/* As read(2): no more than the limit lets through gets into the buffer, shaped. */
static ssize_t read_shaped(struct out_stream *s, size_t max)
{
    size_t room = STREAM_BUF - s->end, wanted;
    char raw[4096];
    ssize_t n;

    if (room < STREAM_SHAPED(sizeof(raw)) + STREAM_SHAPED(0)) { /* half of it is, see hutch_out_stream_poll() */
        errno = EAGAIN;
        return -1;
    }
    n = TEMP_FAILURE_RETRY(read(s->pipe_fd, raw, max < sizeof(raw) ? max : sizeof(raw)));
    wanted = n > 0 ? (size_t)n : 0;
    if (s->limit && wanted > s->limit - s->seen)
        wanted = (size_t)(s->limit - s->seen);
    s->end += s->shaper->shape(s->shaper, raw, wanted, s->buf + s->end);
    return n;
}

static void keep_tail(struct out_stream *s, const char *data, size_t len)
{
    if (len > STREAM_TAIL) {
        data += len - STREAM_TAIL;
        len = STREAM_TAIL;
    }
    if (s->n_tail + len > sizeof(s->tail)) { /* only its last half is ever asked for */
        memmove(s->tail, s->tail + s->n_tail - STREAM_TAIL, STREAM_TAIL);
        s->n_tail = STREAM_TAIL;
    }
    memcpy(s->tail + s->n_tail, data, len);
    s->n_tail += len;
}

size_t hutch_out_stream_tail(const struct out_stream *s, const char **ret)
{
    size_t len = s->n_tail < STREAM_TAIL ? s->n_tail : STREAM_TAIL;

    *ret = s->tail + s->n_tail - len;
    return len;
}

static int read_pipe(struct out_stream *s)
{
    bool is_shaped = s->shaper && s->sink_fd >= 0;
    size_t room, begun;
    ssize_t n;

    if (s->start > 0) {
        memmove(s->buf, s->buf + s->start, s->end - s->start);
        s->end -= s->start;
        s->start = 0;
    }
    room = STREAM_BUF - s->end;
    if (s->is_finishing && s->left < room)
        room = s->left;
    begun = s->end;
    n = is_shaped ? read_shaped(s, room) : TEMP_FAILURE_RETRY(read(s->pipe_fd, s->buf + s->end, room));
    s->has_more = is_shaped ? n > 0 : n == (ssize_t)room;
    if (n < 0 && errno == EAGAIN && !s->is_finishing)
        return 0;
    if (n <= 0) {
        hutch_out_stream_close(s);
        return 0;
    }
    if (s->is_finishing) {
        s->left -= (size_t)n;
        if (s->left == 0)
            hutch_out_stream_close(s);
    }
    s->seen += (uint64_t)n;
    if (s->limit && s->seen > s->limit) {
        uint64_t extra = s->seen - s->limit;

        n = extra < (uint64_t)n ? n - (ssize_t)extra : 0;
        s->seen = s->limit;
        s->is_over_limit = true;
        if (s->capture)
            s->capture->truncated = true;
        s->end += is_shaped ? 0 : (size_t)n;
        hutch_out_stream_close(s); /* what still comes is unwanted */
    } else {
        s->end += is_shaped ? 0 : (size_t)n;
    }
    if (s->end > begun)
        keep_tail(s, s->buf + begun, s->end - begun);
    if (s->sink_fd < 0) {
        if (capture(s, s->buf, s->end) < 0)
            return -1;
        s->end = 0;
    }
    return 0;
}

int hutch_out_stream_run(struct out_stream *s, const struct pollfd *pipe, const struct pollfd *sink)
{
    if (sink->fd >= 0 && sink->revents && s->end > s->start) {
        size_t len = s->end - s->start;
        ssize_t n = write(s->sink_fd, s->buf + s->start, len > SINK_CHUNK ? SINK_CHUNK : len);

        if (n > 0)
            s->start += (size_t)n;
        else if (n < 0 && errno != EAGAIN && errno != EINTR) {
            /* It has no reader: the program inside is to notice that like any other, by SIGPIPE. */
            s->is_sink_broken = true;
            s->sink_errno = errno == EPIPE ? 0 : errno;
            s->start = s->end = 0;
            hutch_out_stream_close(s);
        }
    }
    if (pipe->fd >= 0 && pipe->revents && s->pipe_fd >= 0)
        return read_pipe(s);
    return 0;
}

void hutch_out_stream_finish(struct out_stream *s)
{
    int n = 0;

    if (s->pipe_fd < 0)
        return;
    s->is_finishing = true;
    s->left = ioctl(s->pipe_fd, FIONREAD, &n) < 0 || n < 0 ? 0 : (size_t)n;
    if (s->left == 0)
        hutch_out_stream_close(s);
}

bool hutch_out_stream_is_done(const struct out_stream *s)
{
    return s->pipe_fd < 0 && s->start == s->end;
}

void hutch_in_stream_init(struct in_stream *s)
{
    memset(s, 0, offsetof(struct in_stream, buf));
    s->source_fd = s->pipe_fd = -1;
}

/* A program that does not want its input must not end the process that offers it, and what that does about SIGPIPE is
 * its own affair: the signal is blocked for the moment, and taken back when it came of this write. */
ssize_t hutch_stream_write(int fd, const void *data, size_t len)
{
    static const struct timespec now = { 0 };
    sigset_t pipe_only, before, pending;
    ssize_t n;
    int e;

    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
    n = write(fd, data, len);
    e = errno;
    if (n < 0 && e == EPIPE && !sigismember(&pending, SIGPIPE))
        TEMP_FAILURE_RETRY(sigtimedwait(&pipe_only, NULL, &now));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = e;
    return n;
}

void hutch_in_stream_poll(const struct in_stream *s, struct pollfd *source, struct pollfd *pipe)
{
    bool has_data = s->end > s->start;

    *source = (struct pollfd){ .fd = s->pipe_fd >= 0 && !has_data ? s->source_fd : -1, .events = POLLIN };
    /* Without data only its end matters, which poll(2) always tells. */
    *pipe = (struct pollfd){ .fd = s->pipe_fd, .events = has_data ? POLLOUT : 0 };
}

void hutch_in_stream_run(struct in_stream *s, const struct pollfd *source, const struct pollfd *pipe)
{
    if (pipe->fd >= 0 && (pipe->revents & POLLERR)) {
        hutch_in_stream_close(s); /* the program closed its standard input */
        s->start = s->end = 0;
    } else if (pipe->fd >= 0 && (pipe->revents & POLLOUT) && s->end > s->start) {
        const char *from = s->text ? s->text : s->buf;
        ssize_t n = hutch_stream_write(s->pipe_fd, from + s->start, s->end - s->start); /* O_NONBLOCK: it is ours */

        if (n > 0)
            s->start += (size_t)n;
        else if (n < 0 && errno != EAGAIN && errno != EINTR) {
            s->pipe_errno = errno == EPIPE ? 0 : errno; /* the kernel had no memory for it, for instance */
            hutch_in_stream_close(s);
        }
    }
    if (source->fd >= 0 && source->revents) {
        ssize_t n = TEMP_FAILURE_RETRY(read(s->source_fd, s->buf, STREAM_BUF));

        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0 && errno != EIO) { /* EIO: a terminal, and we are in the background */
            s->source_errno = errno;
            return;
        }
        s->start = 0;
        s->end = n > 0 ? (size_t)n : 0;
        if (n <= 0)
            s->source_fd = -1;
    }
    if (s->source_fd < 0 && s->start == s->end)
        hutch_in_stream_close(s); /* end of file for the program */
}
