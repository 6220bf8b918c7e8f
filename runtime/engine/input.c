#include "runtime/engine/input.h"

#include "runtime/run/supervisor.h"
#include "sandbox/fd.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>

#define INPUT_TURNS 16

/* The supervisor closes the pipe at once: the end of the input is for the program to see now. */
static bool on_close(void *user, int fd)
{
    struct run_input *input = user;

    (void)fd;
    hutch_watch_remove(&input->pipe);
    input->supervisor = NULL;
    return false;
}

static void pump_source(struct run_input *input, struct loop *loop);

static void on_ready(struct watch *w, uint32_t events)
{
    struct run_input *input = w->owner;

    if (!input->supervisor)
        hutch_watch_remove(w);
    else if (input->source_fd >= 0)
        pump_source(input, w->loop);
    else
        input->on_room(input->owner, events & EPOLLERR ? POLLERR : POLLOUT);
}

/* As much as goes from the source to the program without waiting. The source may be a file, which an epoll set does not
 * take: what can be read is asked of poll(2), and the set wakes us for the rest. */
static void pump_source(struct run_input *input, struct loop *loop)
{
    struct supervisor *supervisor = input->supervisor;
    struct in_stream *in = &supervisor->in;
    struct hutch_err err;

    for (int i = 0; i < INPUT_TURNS && in->pipe_fd >= 0; i++) {
        struct pollfd p[2];

        hutch_in_stream_poll(in, &p[0], &p[1]);
        if (poll(p, ARRAY_SIZE(p), 0) <= 0)
            break;
        input->has_read_source |= p[0].revents != 0;
        hutch_in_stream_run(in, &p[0], &p[1]);
        if (in->source_errno) {
            hutch_supervisor_end(supervisor, END_INPUT);
            break;
        }
    }
    hutch_watch_remove(&input->source);
    if (in->pipe_fd < 0 || in->source_errno)
        return;
    if (input->pipe.fd < 0 && hutch_watch_add(&input->pipe, loop, in->pipe_fd, 0, on_ready, input, &err) < 0)
        hutch_supervisor_fail(supervisor, &err);
    if (in->end > in->start || hutch_watch_add(&input->source, loop, in->source_fd, EPOLLIN, on_ready, input, &err) < 0)
        hutch_watch_change(&input->pipe, EPOLLOUT);
    else
        hutch_watch_change(&input->pipe, 0); /* that it is read no more is always told */
}

void hutch_input_start(struct run_input *input, struct loop *loop, struct supervisor *supervisor)
{
    struct in_stream *in = &supervisor->in;
    struct pollfd none = { .fd = -1 }, p = { .fd = in->pipe_fd, .revents = POLLOUT };
    struct hutch_err err;

    input->supervisor = supervisor;
    in->on_close = on_close;
    in->user = input;
    if (input->source_fd >= 0) {
        in->source_fd = input->source_fd;
        pump_source(input, loop);
        return;
    }
    in->text = input->text;
    in->end = input->len;
    hutch_in_stream_run(in, &none, &p);
    if (in->pipe_fd >= 0 && hutch_watch_add(&input->pipe, loop, in->pipe_fd, EPOLLOUT, on_ready, input, &err) < 0)
        hutch_supervisor_fail(supervisor, &err);
}

void hutch_input_stop(struct run_input *input)
{
    hutch_watch_remove(&input->pipe);
    hutch_watch_remove(&input->source);
    if (input->supervisor)
        input->supervisor->in.on_close = NULL;
    input->supervisor = NULL;
}

void hutch_input_done(struct run_input *input)
{
    hutch_input_stop(input);
    hutch_fd_closep(&input->source_fd);
    free(input->text);
    *input = (struct run_input)RUN_INPUT_INIT;
}
