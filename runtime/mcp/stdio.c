#include "runtime/mcp/stdio.h"

#include "runtime/hutch.h"
#include "runtime/mcp/face.h"
#include "runtime/mcp/lines.h"
#include "runtime/mcp/rpc.h"
#include "runtime/mcp/server.h"
#include "runtime/text/buffer.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>

#define READ_PIECE (64u << 10)
#define WRITE_PIECE 4096       /* what a pipe that can be written takes for certain: pipe(7) */
#define WRITES_AT_ONCE 64
#define BEHIND (1u << 20)      /* bytes that wait for the client: progress is left out then, and calls wait */
#define FULL (4u << 20)        /* … and nothing more is read from it */
#define LAST_WORDS_MS 500      /* that a client has to read what waits for it, once it has ended its input */

struct stdio_server {
    const struct mcp_stdio_options *options;
    struct hutch_engine *engine; /* owned; NULL: it was not needed yet, or is lost */
    struct mcp_sessions sessions;
    struct mcp_server *server;   /* owned */
    struct lines lines;
    struct text_buffer out;      /* from @written on, it waits for the client */
    size_t written;
    bool is_over;                /* the input has ended, or the output is broken */
    bool is_short;               /* of memory */
    int signal;                  /* that ends it; 0: none */
};

static size_t waiting(const struct stdio_server *s)
{
    return s->out.len - s->written;
}

/* --- the transport ---------------------------------------------------------------------------------------------- */

static void on_send(void *owner, void *exchange, int kind, const char *json, size_t len)
{
    struct stdio_server *s = owner;

    (void)exchange;
    (void)kind;
    hutch_text_add(&s->out, json, len);
    hutch_text_add(&s->out, "\n", 1);
    s->is_short |= s->out.is_broken;
}

static void on_end(void *owner, void *exchange)
{
    (void)owner;
    (void)exchange;
}

static bool is_behind(void *owner)
{
    return waiting(owner) > BEHIND;
}

static struct hutch_engine *get_engine(void *owner, struct hutch_err *err)
{
    struct stdio_server *s = owner;

    if (!s->engine && s->options->open_engine(s->options->user, &s->engine, err) < 0) {
        s->engine = NULL;
        s->options->log(s->options->user, err->msg);
    }
    return s->engine;
}

static void on_fail(void *owner)
{
    struct stdio_server *s = owner;

    s->is_short = true;
}

static const struct mcp_transport transport = {
    .send = on_send, .end = on_end, .is_behind = is_behind, .engine = get_engine, .fail = on_fail,
};

/* --- input ------------------------------------------------------------------------------------------------------ */

static void on_line(void *owner, const char *line, size_t len)
{
    struct stdio_server *s = owner;

    hutch_mcp_server_receive(s->server, NULL, line, len);
}

static void on_long(void *owner)
{
    struct stdio_server *s = owner;

    hutch_mcp_server_refuse_long(s->server, NULL);
}

static const struct line_events line_events = { on_line, on_long };

static int read_input(struct stdio_server *s, struct hutch_err *err)
{
    char piece[READ_PIECE];
    ssize_t n = read(s->options->in_fd, piece, sizeof(piece));

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n < 0 && errno != EIO && errno != ECONNRESET) /* a terminal or peer that is gone is an end like any other */
        return hutch_err_set(err, errno, "read standard input");
    s->is_over |= n <= 0;
    if (n > 0 && hutch_lines_feed(&s->lines, piece, (size_t)n) < 0)
        s->is_short = true;
    return 0;
}

/* --- output ----------------------------------------------------------------------------------------------------- */

/* After poll(2) said POLLOUT. */
static void write_output(struct stdio_server *s)
{
    struct pollfd p = { .fd = s->options->out_fd, .events = POLLOUT };
    bool was_behind = is_behind(s);

    for (int i = 0; i < WRITES_AT_ONCE && waiting(s) > 0; i++) {
        size_t len = waiting(s) < WRITE_PIECE ? waiting(s) : WRITE_PIECE;
        ssize_t n;

        if (i > 0 && (poll(&p, 1, 0) != 1 || !(p.revents & POLLOUT)))
            break;
        n = write(s->options->out_fd, s->out.data + s->written, len);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            s->is_over = true; /* nobody reads */
        if (n <= 0)
            break;
        s->written += (size_t)n;
    }
    if (waiting(s) == 0) {
        s->written = 0;
        s->out.len = 0;
        if (s->out.room > BEHIND)
            hutch_text_done(&s->out);
    } else if (s->written > s->out.len / 2) {
        memmove(s->out.data, s->out.data + s->written, waiting(s));
        s->out.len = waiting(s);
        s->written = 0;
    }
    if (was_behind && !is_behind(s))
        hutch_mcp_server_tick(s->server); /* what had to wait */
}

/* What was answered before the end of the input. A client that does not read it is not waited for. */
static void write_last_words(struct stdio_server *s)
{
    double until = hutch_clock_ms() + LAST_WORDS_MS, left;

    while (waiting(s) > 0 && (left = until - hutch_clock_ms()) > 0) {
        struct pollfd p = { .fd = s->options->out_fd, .events = POLLOUT };
        size_t before = waiting(s);

        if (poll(&p, 1, (int)left + 1) < 0 && errno != EINTR)
            return;
        if (p.revents & POLLOUT)
            write_output(s);
        if ((p.revents & (POLLERR | POLLNVAL)) && waiting(s) == before)
            return;
    }
}

/* --- the loop --------------------------------------------------------------------------------------------------- */

static void hear_signals(struct stdio_server *s)
{
    struct signalfd_siginfo info;

    while (read(s->options->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        if (!s->signal)
            s->signal = (int)info.ssi_signo;
}

/* The engine can run nothing any more. The next call opens another. */
static void lose_engine(struct stdio_server *s, const char *why)
{
    struct hutch_engine *engine = s->engine;

    s->options->log(s->options->user, why);
    s->engine = NULL;
    hutch_mcp_server_lose_engine(s->server, why);
    hutch_engine_free(engine);
}

static int timeout_of(const struct stdio_server *s)
{
    double due = hutch_mcp_server_deadline(s->server), left;

    if (due < 0)
        return -1;
    left = due - hutch_clock_ms();
    return left <= 0 ? 0 : left > 60000 ? 60000 : (int)left + 1;
}

static int turn_loop(struct stdio_server *s, struct hutch_err *err)
{
    struct pollfd p[] = {
        { .fd = waiting(s) > FULL ? -1 : s->options->in_fd, .events = POLLIN },
        { .fd = waiting(s) > 0 ? s->options->out_fd : -1, .events = POLLOUT },
        { .fd = s->options->signal_fd, .events = POLLIN },
        { .fd = s->engine ? hutch_engine_fd(s->engine) : -1, .events = POLLIN },
    };
    struct hutch_error error;

    if (poll(p, ARRAY_SIZE(p), timeout_of(s)) < 0)
        return errno == EINTR ? 0 : hutch_err_set(err, errno, "wait for the client");
    if (p[2].revents)
        hear_signals(s);
    if (p[1].revents & POLLOUT)
        write_output(s);
    else if (p[1].revents)
        s->is_over = true; /* its reader is gone */
    if (p[3].revents && hutch_engine_dispatch(s->engine, &error) < 0)
        lose_engine(s, error.message);
    if (p[0].revents && read_input(s, err) < 0)
        return -1;
    hutch_mcp_server_tick(s->server);
    return s->is_short ? hutch_err_set(err, ENOMEM, "answer the client") : 0;
}

int hutch_mcp_stdio_run(const struct mcp_stdio_options *options, struct hutch_err *err)
{
    struct stdio_server s = { .options = options, .out = TEXT_BUFFER_INIT };
    int rc = 0;

    hutch_lines_init(&s.lines, &line_events, &s, RPC_MAX_BYTES);
    hutch_mcp_sessions_init(&s.sessions, options->settings);
    s.server = hutch_mcp_server_create(&transport, &s, &hutch_mcp_usual_face, &s.sessions, options->version);
    if (!s.server)
        return hutch_err_set(err, ENOMEM, "begin to serve");
    while (rc == 0 && !s.is_over && !s.signal)
        rc = turn_loop(&s, err);
    if (rc == 0 && !s.signal)
        write_last_words(&s);
    hutch_engine_free(s.engine);
    hutch_mcp_server_free(s.server);
    hutch_mcp_sessions_done(&s.sessions);
    hutch_lines_done(&s.lines);
    hutch_text_done(&s.out);
    return rc < 0 ? -1 : s.signal;
}
