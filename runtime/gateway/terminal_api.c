#include "runtime/gateway/terminal_api.h"

#include "runtime/gateway/process_api.h"
#include "runtime/gateway/process_request.h"
#include "runtime/gateway/processes.h"
#include "runtime/gateway/query.h"
#include "runtime/gateway/server_priv.h"
#include "runtime/gateway/session_api.h"
#include "runtime/gateway/websocket.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* A client may be so far behind its process; then the process waits. */
#define HOLD_BYTES (256u << 10)
/* Of input that the process does not take; then the client waits. */
#define PAUSE_BYTES (64u << 10)

/* In x->work. */
struct attachment {
    struct websocket ws;
    uint64_t number;            /* of the process */
    struct gateway_process *process; /* that it listens to; NULL: not yet, or no more */
    int stream;                 /* whose output comes now */
    bool is_own;                /* the process was begun for this WebSocket */
    bool is_held;
    bool closes_stdin;          /* when @input is written */
    bool is_deaf;               /* the process takes no more input, and that was told */
    struct text_buffer input;   /* that it has not taken yet */
};

/* ---- what is told ---- */

/* @t: JSON; emptied. */
static void tell(struct attachment *a, const char *event, struct text_buffer *t)
{
    struct text_buffer line = TEXT_BUFFER_INIT;

    hutch_text_addf(&line, "{\"event\":\"%s\",\"data\":", event);
    hutch_text_add(&line, t->data, t->len);
    hutch_text_add_string(&line, "}");
    if (t->is_broken || line.is_broken)
        hutch_websocket_close(&a->ws, WS_CODE_TRY_LATER, "the server has no memory for a message");
    else
        hutch_websocket_send(&a->ws, WS_TEXT, line.data, line.len);
    hutch_text_done(&line);
    hutch_text_done(t);
}

static void tell_error(struct attachment *a, const char *message)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (hutch_websocket_backlog(&a->ws) > HOLD_BYTES)
        return; /* to a client that reads nothing */
    hutch_text_add_string(&t, "{\"message\":");
    hutch_json_quote(&t, message, strlen(message));
    hutch_text_add_string(&t, "}");
    tell(a, "error", &t);
}

/* ---- what is heard of the process ---- */

static void on_dropped(void *owner, uint64_t bytes)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_text_addf(&t, "{\"bytes\":%" PRIu64 "}", bytes);
    tell(owner, "dropped", &t);
}

static void on_output(void *owner, int stream, const char *data, size_t len)
{
    struct attachment *a = owner;
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (stream != a->stream) {
        a->stream = stream;
        hutch_text_addf(&t, "{\"stream\":\"%s\"}", stream == 1 ? "stdout" : "stderr");
        tell(a, "stream", &t);
    }
    hutch_websocket_send(&a->ws, WS_BINARY, data, len);
    if (a->process && !a->is_held && hutch_websocket_backlog(&a->ws) > HOLD_BYTES) {
        a->is_held = true;
        hutch_gateway_process_hold(a->process, true);
    }
}

static void on_end(void *owner, const struct hutch_process_end *end)
{
    struct attachment *a = owner;
    struct text_buffer t = TEXT_BUFFER_INIT;

    a->process = NULL;
    hutch_text_add_string(&t, "{");
    hutch_process_api_add_end(&t, end);
    hutch_text_add_string(&t, "}");
    tell(a, "end", &t);
    hutch_websocket_close(&a->ws, WS_CODE_NORMAL, "the process has ended");
}

static void on_replaced(void *owner)
{
    struct attachment *a = owner;

    hutch_gateway_process_forget_writer(a->process, a);
    a->process = NULL;
    hutch_websocket_close(&a->ws, WS_CODE_REPLACED, "another client listens to the process");
}

static const struct process_listener websocket_listener = { on_dropped, on_output, on_end, on_replaced };

/* ---- its input ---- */

static void refuse_input(struct attachment *a, const char *message)
{
    hutch_exchange_let_go(a->ws.x, a->input.len);
    hutch_text_done(&a->input);
    if (!a->is_deaf)
        tell_error(a, message);
    a->is_deaf = true;
}

static void close_stdin(struct attachment *a)
{
    struct hutch_error error;

    a->closes_stdin = false;
    if (hutch_process_close_stdin(a->ws.x->server->engine, a->process->session->number, a->number, &error) < 0)
        tell_error(a, error.message);
}

static void on_writable(void *owner);

/* As much of @input as it takes. */
static void write_input(struct attachment *a)
{
    const struct process_writer who = { on_writable, a };
    struct hutch_error error;
    size_t n_written = 0;
    ssize_t n = 1;

    while (n > 0 && n_written < a->input.len) {
        n = hutch_gateway_process_write(a->process, PROCESS_WRITER_WEBSOCKET, a->input.data + n_written,
                                        a->input.len - n_written, &who, &error);
        n_written += n > 0 ? (size_t)n : 0;
    }
    if (n < 0 && error.code != EBUSY) { /* EBUSY: it waits already */
        refuse_input(a, error.message);
        return;
    }
    hutch_exchange_let_go(a->ws.x, n_written);
    if (n_written == a->input.len) {
        hutch_text_done(&a->input);
    } else {
        memmove(a->input.data, a->input.data + n_written, a->input.len - n_written);
        a->input.len -= n_written;
    }
    if (a->closes_stdin && a->input.len == 0)
        close_stdin(a);
    hutch_websocket_pause(&a->ws, a->input.len >= PAUSE_BYTES);
}

static void on_writable(void *owner)
{
    struct attachment *a = owner;

    if (a->process)
        write_input(a);
}

static void on_binary(void *owner, const char *data, size_t len)
{
    struct attachment *a = owner;
    bool waits = a->input.len > 0;

    if (!a->process || a->is_deaf)
        return;
    hutch_text_add(&a->input, data, len);
    if (a->input.is_broken || !hutch_exchange_hold(a->ws.x, len))
        hutch_websocket_close(&a->ws, WS_CODE_TRY_LATER, "the server has no memory for the input");
    else if (!waits)
        write_input(a);
    else
        hutch_websocket_pause(&a->ws, a->input.len >= PAUSE_BYTES);
}

/* ---- what it is told ---- */

static void control(struct attachment *a, const struct control_message *m)
{
    struct hutch_engine *engine = a->ws.x->server->engine;
    uint64_t session = a->process->session->number;
    struct hutch_error error;
    int rc = 0;

    switch (m->type) {
    case CONTROL_RESIZE:
        rc = hutch_process_resize(engine, session, a->number, m->rows, m->cols, &error);
        break;
    case CONTROL_SIGNAL:
        rc = hutch_process_signal(engine, session, a->number, m->signal, &error);
        break;
    case CONTROL_CLOSE_STDIN:
        a->closes_stdin = true;
        if (a->input.len == 0)
            close_stdin(a);
        break;
    }
    if (rc < 0)
        tell_error(a, error.message);
}

static void on_text(void *owner, const char *text, size_t len)
{
    struct attachment *a = owner;
    struct control_message message;
    struct hutch_err err;

    if (hutch_control_message_parse(text, len, &message, &err) < 0)
        hutch_websocket_close(&a->ws, WS_CODE_POLICY, err.msg);
    else if (a->process)
        control(a, &message);
}

/* ---- its life ---- */

/* The process that the WebSocket is for: it may be gone since that was asked for. */
static struct gateway_process *find_again(const struct attachment *a)
{
    const struct exchange *x = a->ws.x;
    const struct gateway_session *session =
        hutch_gateway_sessions_find(&x->server->sessions, x->params[0], x->token);

    return session ? hutch_gateway_processes_find(session, a->number) : NULL;
}

static void on_open(void *owner)
{
    struct attachment *a = owner;
    struct gateway_process *p = find_again(a);
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (!p) {
        hutch_websocket_close(&a->ws, WS_CODE_GONE, "the process is gone");
        return;
    }
    hutch_text_addf(&t, "{\"id\":%" PRIu64 "}", a->number);
    tell(a, "process", &t);
    a->process = p;
    hutch_gateway_process_attach(p, &websocket_listener, a);
}

static void on_drained(void *owner)
{
    struct attachment *a = owner;

    if (!a->is_held || !a->process)
        return;
    a->is_held = false;
    hutch_gateway_process_hold(a->process, false);
}

/* One that was begun for a client that never came ends, too. */
static void abandon(struct attachment *a)
{
    const struct gateway_process *p = a->is_own && !a->ws.is_open ? find_again(a) : NULL;
    struct hutch_error ignored;

    if (p && p->ends_with_client)
        hutch_process_signal(p->server->engine, p->session->number, p->number, SIGKILL, &ignored);
}

static void on_close(void *owner)
{
    struct attachment *a = owner;
    struct gateway_process *p = a->process;

    a->process = NULL;
    hutch_text_done(&a->input);
    if (p) {
        hutch_gateway_process_forget_writer(p, a);
        hutch_gateway_process_detach(p, a);
    } else {
        abandon(a);
    }
}

static const struct websocket_events attachment_events = { on_open, on_binary, on_text, on_drained, on_close };

static struct attachment *create_attachment(struct exchange *x)
{
    struct attachment *a = calloc(1, sizeof(*a));

    x->work = a;
    if (a)
        a->stream = 1;
    else
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the request");
    return a;
}

void hutch_terminal_api_attach(struct exchange *x)
{
    const struct gateway_process *p = hutch_process_api_find(x);
    struct attachment *a;

    if (!p || !hutch_websocket_is_asked(x))
        return;
    a = create_attachment(x);
    if (!a)
        return;
    a->number = p->number;
    hutch_websocket_accept(&a->ws, x, &attachment_events, a);
}

/* ?rows=24, 1 to 65535; as usual where it is not said. -1: it is no such number. */
static int read_size(struct exchange *x, const char *name, unsigned *ret)
{
    struct hutch_err err;
    auto_free char *text = hutch_exchange_query(x, name, &err);

    if (!text && !err.errnum)
        return 0;
    if (text && hutch_query_number(text, UINT16_MAX, ret) == 0)
        return 0;
    hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s is to be a number from 1 to %d", name, UINT16_MAX);
    return -1;
}

static int read_keep(struct exchange *x, bool *ret)
{
    struct hutch_err err;
    auto_free char *text = hutch_exchange_query(x, "keep", &err);
    int is_true = 0;

    *ret = false;
    if (!text && !err.errnum)
        return 0;
    if (text && hutch_query_flag(text, &is_true) == 0) {
        *ret = is_true;
        return 0;
    }
    hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "keep is to be true or false");
    return -1;
}

void hutch_terminal_api_open(struct exchange *x)
{
    static const char *const env[] = { "TERM=xterm-256color", NULL };
    struct gateway_session *session = hutch_session_api_find(x);
    struct hutch_process_options options;
    const struct gateway_process *p;
    struct hutch_error error;
    struct attachment *a;
    bool is_kept;

    hutch_process_options_init(&options);
    if (!session || !hutch_websocket_is_asked(x) || read_size(x, "rows", &options.rows) < 0 ||
        read_size(x, "cols", &options.cols) < 0 || read_keep(x, &is_kept) < 0)
        return;
    a = create_attachment(x);
    if (!a)
        return;
    options.shell = "command -v bash >/dev/null && exec bash; exec sh";
    options.env = env;
    options.terminal = 1;
    options.output_bytes = HUTCH_NO_LIMIT; /* somebody sits at it */
    p = hutch_gateway_processes_spawn(x->server, session, &options, !is_kept, x->token, &error);
    if (!p) {
        hutch_exchange_refuse_error(x, &error, GATEWAY_QUEUE_FULL, GATEWAY_NOT_FOUND);
        return;
    }
    a->number = p->number;
    a->is_own = true;
    hutch_websocket_accept(&a->ws, x, &attachment_events, a);
}
