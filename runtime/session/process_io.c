/* process_io.c - what a process reads and writes: pipes, or a terminal that it has made itself. */
#include "runtime/session/process_priv.h"

#include "runtime/session/session_priv.h"
#include "sandbox/fd.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#define READ_TURNS    16   /* buffers of one stream, before others have their turn */
#define LAST_TERMINAL (64u << 10) /* bytes of a terminal that are read when its process has ended */
#define PTMX_MAJOR    5
#define PTMX_MINOR    2

static struct loop *loop_of(const struct process *p)
{
    return &p->session->sessions->core->loop;
}

/* --- its output --------------------------------------------------------------------------------------------------- */

static void close_stream(struct process_stream *stream)
{
    hutch_watch_remove(&stream->watch);
    hutch_fd_closep(&stream->fd);
    if (stream->process->state == PROCESS_ENDED)
        hutch_session_ask_for_work(stream->process->session);
}

static void tell_output(struct process_stream *stream, const char *data, size_t len)
{
    struct process *p = stream->process;
    uint64_t room = p->options.output_bytes == HUTCH_NO_LIMIT ? UINT64_MAX : p->options.output_bytes - p->told_bytes;

    if (len > room) {
        len = (size_t)room;
        p->end.truncated = 1;
    }
    p->told_bytes += len;
    if (len > 0 && p->options.on_output)
        p->options.on_output(p->options.user, p->session->id, p->id, stream->number, data, len);
    if (p->end.truncated && p->state == PROCESS_RUNNING && !p->why[0]) {
        snprintf(p->why, sizeof(p->why), "it wrote more than %" PRIu64 " bytes", p->options.output_bytes);
        hutch_process_kill(p, SIGKILL);
    }
}

/* Takes what is there. Where there may be more, the loop tells again: others have their turn first. */
static void read_stream(struct process_stream *stream)
{
    struct process *p = stream->process;
    char *buf = loop_of(p)->scratch;

    for (int turns = 0; turns < READ_TURNS; turns++) {
        size_t want = LOOP_SCRATCH_BYTES;
        ssize_t n;

        if (stream->fd < 0 || p->is_held)
            return;
        if (p->state == PROCESS_ENDED && stream->left < want)
            want = stream->left;
        n = want > 0 ? TEMP_FAILURE_RETRY(read(stream->fd, buf, want)) : 0;
        /* EIO: nothing has the terminal open just now. Closing it would be a SIGHUP for a program on its way out. */
        if (n < 0 && (errno == EAGAIN || (errno == EIO && p->options.terminal)) && p->state != PROCESS_ENDED)
            return;
        if (n <= 0) {
            close_stream(stream);
            return;
        }
        if (p->state == PROCESS_ENDED)
            stream->left -= (size_t)n;
        tell_output(stream, buf, (size_t)n);
    }
    if (stream->fd >= 0)
        hutch_watch_change(&stream->watch, EPOLLIN | EPOLLET);
}

static void on_output(struct watch *w, uint32_t events)
{
    (void)events;
    read_stream(w->owner);
}

void hutch_process_read(struct process *p)
{
    for (int i = 0; i < 2; i++)
        read_stream(&p->streams[i]);
}

void hutch_process_set_held(struct process *p, bool is_held)
{
    p->wants_read = p->is_held && !is_held; /* not here: the caller may be within on_output */
    p->is_held = is_held;
    if (p->wants_read)
        hutch_session_ask_for_work(p->session);
}

void hutch_process_bound_output(struct process *p)
{
    int there;

    for (int i = 0; i < 2; i++)
        if (p->options.terminal)
            p->streams[i].left = LAST_TERMINAL;
        else
            p->streams[i].left = ioctl(p->streams[i].fd, FIONREAD, &there) == 0 && there > 0 ? (size_t)there : 0;
}

void hutch_process_close_streams(struct process *p)
{
    hutch_process_close_input(p);
    for (int i = 0; i < 2; i++)
        close_stream(&p->streams[i]);
}

/* --- its input ---------------------------------------------------------------------------------------------------- */

void hutch_process_close_input(struct process *p)
{
    hutch_watch_remove(&p->in);
    hutch_fd_closep(&p->in_fd);
    p->has_room = p->wants_room;
    if (p->has_room)
        hutch_session_ask_for_work(p->session);
}

static void on_room(struct watch *w, uint32_t events)
{
    struct process *p = w->owner;

    if (events & (EPOLLERR | EPOLLHUP) && !p->options.terminal) {
        hutch_process_close_input(p);
    } else if (p->wants_room) {
        p->has_room = true;
        hutch_session_ask_for_work(p->session);
    }
}

static int watch_streams(struct process *p, struct hutch_err *err)
{
    for (int i = 0; i < 2; i++)
        if (p->streams[i].fd >= 0 && hutch_watch_add(&p->streams[i].watch, loop_of(p), p->streams[i].fd,
                                                     EPOLLIN | EPOLLET, on_output, &p->streams[i], err) < 0)
            return -1;
    if (p->in_fd < 0)
        return 0;
    return hutch_watch_add(&p->in, loop_of(p), p->in_fd, EPOLLOUT | EPOLLET, on_room, p, err);
}

int hutch_process_give(struct process *p, const char *data, size_t len, struct hutch_err *err)
{
    bool is_early = p->state == PROCESS_WAITING || (p->options.terminal && p->state == PROCESS_ORDERED);
    ssize_t n;

    if (len > INT_MAX)
        len = INT_MAX;
    if (is_early && (p->options.has_input || p->options.terminal)) {
        p->wants_room = true;
        return hutch_err_say(err, EAGAIN, "the process's input is not there yet");
    }
    if (p->in_fd < 0)
        return hutch_err_say(err, EPIPE, "the process has no input, or it is closed");
    n = TEMP_FAILURE_RETRY(hutch_stream_write(p->in_fd, data, len));
    if (n >= 0)
        return (int)n;
    if (errno == EAGAIN) {
        p->wants_room = true;
        hutch_watch_change(&p->in, EPOLLOUT | EPOLLET);
        return hutch_err_say(err, EAGAIN, "the process's input is full");
    }
    return hutch_err_set(err, errno == EIO ? EPIPE : errno, "write to the process");
}

int hutch_process_end_input(struct process *p, struct hutch_err *err)
{
    static const char end_of_file = 4; /* Ctrl-D */

    if (p->options.terminal)
        return hutch_process_give(p, &end_of_file, 1, err) < 0 ? -1 : 0;
    p->options.has_input = 0; /* from the beginning, where it has not begun */
    hutch_process_close_input(p);
    return 0;
}

/* --- what these are ----------------------------------------------------------------------------------------------- */

/* @theirs: stdin, stdout, stderr. */
int hutch_process_make_streams(struct process *p, int theirs[3], struct hutch_err *err)
{
    if (p->options.terminal)
        return 0;
    if (hutch_stream_make_pipe(&p->in_fd, &theirs[0], false, err) < 0 ||
        hutch_stream_make_pipe(&p->streams[0].fd, &theirs[1], true, err) < 0 ||
        hutch_stream_make_pipe(&p->streams[1].fd, &theirs[2], true, err) < 0)
        return -1;
    if (!p->options.has_input)
        hutch_fd_closep(&p->in_fd);
    return watch_streams(p, err);
}

/* Anything can come from inside: it is the master of a pseudo-terminal, or it is not used. */
static bool is_terminal_master(int fd)
{
    struct statfs fs;
    struct stat st;

    return fd >= 0 && fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(PTMX_MAJOR, PTMX_MINOR) &&
           fstatfs(fd, &fs) == 0 && fs.f_type == DEVPTS_SUPER_MAGIC;
}

int hutch_process_take_terminal(struct process *p, int *fd, struct hutch_err *err)
{
    struct winsize size = { .ws_row = (unsigned short)p->options.rows, .ws_col = (unsigned short)p->options.cols };

    if (!is_terminal_master(*fd))
        return hutch_err_set(err, 0, "the process came without its terminal");
    p->streams[0].fd = hutch_fd_take(fd);
    p->in_fd = fcntl(p->streams[0].fd, F_DUPFD_CLOEXEC, 3);
    if (p->in_fd < 0 || fcntl(p->in_fd, F_SETFL, O_NONBLOCK) < 0 || ioctl(p->in_fd, TIOCSWINSZ, &size) < 0)
        return hutch_err_set(err, errno, "set up a terminal");
    return watch_streams(p, err);
}

int hutch_process_set_size(struct process *p, unsigned rows, unsigned cols, struct hutch_err *err)
{
    struct winsize size = { .ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols };

    if (!p->options.terminal)
        return hutch_err_say(err, EINVAL, "the process has no terminal");
    if (rows == 0 || cols == 0 || rows > UINT16_MAX || cols > UINT16_MAX)
        return hutch_err_say(err, EINVAL, "a terminal of %u rows and %u columns: 1 to %d of each can be", rows, cols,
                             UINT16_MAX);
    p->options.rows = rows; /* where it is not there yet, it is made like that */
    p->options.cols = cols;
    if (p->in_fd >= 0 && ioctl(p->in_fd, TIOCSWINSZ, &size) < 0)
        return hutch_err_set(err, errno, "set the terminal's size");
    return 0;
}
