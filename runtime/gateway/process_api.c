#include "runtime/gateway/process_api.h"

#include "runtime/gateway/events.h"
#include "runtime/gateway/process_request.h"
#include "runtime/gateway/processes.h"
#include "runtime/gateway/server_priv.h"
#include "runtime/gateway/session_api.h"
#include "runtime/text/json_write.h"
#include "runtime/text/quantity.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <string.h>

/* A client may be so far behind its process; then the process waits. */
#define HOLD_BYTES (256u << 10)

/* ---- which, and what is told ---- */

struct gateway_process *hutch_process_api_find(struct exchange *x)
{
    struct gateway_session *session = hutch_session_api_find(x);
    struct gateway_process *p = NULL;
    struct hutch_err ignored;
    uint64_t number;

    if (!session)
        return NULL;
    if (hutch_parse_u64(x->params[1], &number, &ignored) == 0)
        p = hutch_gateway_processes_find(session, number);
    if (!p)
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "there is no such process");
    return p;
}

void hutch_process_api_refuse(struct exchange *x, const struct hutch_error *error)
{
    if (error->code == EPIPE || error->code == EBUSY)
        hutch_exchange_refuse(x, GATEWAY_CONFLICT, "%s", error->message);
    else
        hutch_exchange_refuse_error(x, error, GATEWAY_CONFLICT, GATEWAY_NOT_FOUND);
}

void hutch_process_api_add_end(struct text_buffer *t, const struct hutch_process_end *end)
{
    hutch_text_addf(t, end->exit_code >= 0 ? "\"exit_code\":%d" : "\"exit_code\":null", end->exit_code);
    hutch_text_addf(t, end->signal ? ",\"signal\":%d" : ",\"signal\":null", end->signal);
    hutch_text_add_string(t, ",\"message\":");
    if (end->why[0])
        hutch_json_quote(t, end->why, strlen(end->why));
    else
        hutch_text_add_string(t, "null");
    hutch_text_addf(t, ",\"truncated\":%s,\"run_ms\":%.3f", end->truncated ? "true" : "false", end->run_ms);
}

static void answer_done(struct exchange *x)
{
    hutch_exchange_answer(x, 204, NULL, strdup(""), 0);
}

/* ---- a stream of what it writes ---- */

/* What an exchange has besides while it listens. */
struct listening {
    struct gateway_process *process;
    struct events stream;
    bool is_held;
};

static void on_gone(struct exchange *x)
{
    struct listening *l = x->work;

    hutch_gateway_process_detach(l->process, x);
    hutch_exchange_break_off(x);
}

static void break_off(struct exchange *x)
{
    struct listening *l = x->work;

    hutch_gateway_process_detach(l->process, x);
    hutch_exchange_end(x, false);
}

static void send_event(struct exchange *x, const char *event, struct text_buffer *t)
{
    struct listening *l = x->work;

    if (t->is_broken || !hutch_events_send(&l->stream, x, event, t->data, t->len))
        l->stream.is_behind = true;
    hutch_text_done(t);
}

/* True when it is to wait until the client has taken what there is. */
static void hold_back(struct exchange *x)
{
    struct listening *l = x->work;

    if (l->is_held || x->backlog.len - x->n_sent < HOLD_BYTES)
        return;
    l->is_held = true;
    hutch_gateway_process_hold(l->process, true);
}

static void on_drained(struct exchange *x)
{
    struct listening *l = x->work;

    if (!l->is_held || !l->process)
        return;
    l->is_held = false;
    hutch_gateway_process_hold(l->process, false);
}

static void on_dropped(void *owner, uint64_t bytes)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_text_addf(&t, "{\"bytes\":%" PRIu64 "}", bytes);
    send_event(owner, "dropped", &t);
}

static void on_output(void *owner, int stream, const char *data, size_t len)
{
    struct exchange *x = owner;
    struct listening *l = x->work;

    if (!l->stream.is_behind)
        hutch_events_output(&l->stream, x, stream, data, len);
    if (l->stream.is_behind)
        break_off(x); /* memory was short */
    else
        hold_back(x);
}

static void on_end(void *owner, const struct hutch_process_end *end)
{
    struct exchange *x = owner;
    struct listening *l = x->work;
    struct text_buffer t = TEXT_BUFFER_INIT;

    l->process = NULL;
    hutch_events_flush(&l->stream, x);
    hutch_text_add_string(&t, "{");
    hutch_process_api_add_end(&t, end);
    hutch_text_add_string(&t, "}");
    send_event(x, "end", &t);
    hutch_exchange_end(x, !l->stream.is_behind);
}

static void on_replaced(void *owner)
{
    hutch_exchange_end(owner, false);
}

static const struct process_listener stream_listener = { on_dropped, on_output, on_end, on_replaced };

static void listen_to(struct exchange *x, struct gateway_process *p, enum events_format format)
{
    struct listening *l = calloc(1, sizeof(*l));
    struct text_buffer t = TEXT_BUFFER_INIT;

    x->work = l;
    if (!l) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the request");
        return;
    }
    l->process = p;
    hutch_exchange_wait(x, on_gone);
    hutch_events_begin(&l->stream, x, format);
    x->on_drained = on_drained;
    hutch_text_addf(&t, "{\"id\":%" PRIu64 "}", p->number);
    send_event(x, "process", &t);
    hutch_gateway_process_attach(p, &stream_listener, x);
}

void hutch_process_api_output(struct exchange *x)
{
    enum events_format format = hutch_events_asked(x);
    struct gateway_process *p = hutch_process_api_find(x);

    if (p)
        listen_to(x, p, format == EVENTS_NONE ? EVENTS_NDJSON : format);
}

/* ---- begin, list ---- */

static void spawn(struct exchange *x, struct gateway_session *session, struct process_request *request)
{
    enum events_format format = hutch_events_asked(x);
    struct text_buffer t = TEXT_BUFFER_INIT;
    struct hutch_error error;
    struct gateway_process *p = hutch_gateway_processes_spawn(x->server, session, &request->options,
                                                              request->ends_with_client, x->token, &error);

    if (!p) {
        hutch_exchange_refuse_error(x, &error, GATEWAY_QUEUE_FULL, GATEWAY_NOT_FOUND);
        return;
    }
    if (format != EVENTS_NONE) {
        listen_to(x, p, format);
        return;
    }
    hutch_text_addf(&t, "{\"id\":%" PRIu64 "}\n", p->number);
    hutch_exchange_answer_json(x, 201, &t);
}

void hutch_process_api_spawn(struct exchange *x)
{
    struct gateway_session *session = hutch_session_api_find(x);
    struct process_request request;
    struct hutch_err err;

    if (!session)
        return;
    if (hutch_process_request_parse(x->body.data, x->body.len, &request, &err) < 0)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else
        spawn(x, session, &request);
    hutch_process_request_done(&request);
}

static void add_ended(struct text_buffer *t, const struct gateway_session *session)
{
    const struct gateway_process *p;
    bool has_one = false;

    TAILQ_FOREACH(p, &session->processes, in_list) {
        if (!p->has_ended)
            continue;
        hutch_text_addf(t, "%s{\"id\":%" PRIu64 ",", has_one ? "," : "", p->number);
        hutch_process_api_add_end(t, &p->end);
        hutch_text_add_string(t, "}");
        has_one = true;
    }
}

void hutch_process_api_list(struct exchange *x)
{
    const struct gateway_session *session = hutch_session_api_find(x);
    struct text_buffer t = TEXT_BUFFER_INIT;
    auto_free char *live = NULL;
    struct hutch_error error;

    if (!session)
        return;
    live = hutch_session_processes(x->server->engine, session->number, &error);
    if (!live) {
        hutch_process_api_refuse(x, &error);
        return;
    }
    hutch_text_add_string(&t, "{\"processes\":");
    hutch_text_add_string(&t, live);
    hutch_text_add_string(&t, ",\"ended\":[");
    add_ended(&t, session);
    hutch_text_add_string(&t, "]}\n");
    hutch_exchange_answer_json(x, 200, &t);
}

/* ---- its input ---- */

/* What an exchange has besides while stdin does not take it all. */
struct writing {
    struct gateway_process *process;
    char *data; /* owned */
    size_t len, n_written;
};

static void free_writing(struct exchange *x)
{
    const struct writing *w = x->work;

    if (w)
        free(w->data);
}

static void on_writer_gone(struct exchange *x)
{
    struct writing *w = x->work;

    hutch_gateway_process_forget_writer(w->process, x);
    hutch_exchange_break_off(x);
}

static void on_writable(void *owner);

static void write_on(struct exchange *x)
{
    const struct process_writer who = { on_writable, x };
    struct writing *w = x->work;
    struct text_buffer t = TEXT_BUFFER_INIT;
    struct hutch_error error;
    ssize_t n = 1;

    while (w->n_written < w->len && n > 0) {
        n = hutch_gateway_process_write(w->process, PROCESS_WRITER_REQUEST, w->data + w->n_written,
                                        w->len - w->n_written, &who, &error);
        w->n_written += n > 0 ? (size_t)n : 0;
    }
    if (n == 0) {
        if (!x->is_pending)
            hutch_exchange_wait(x, on_writer_gone);
    } else if (n < 0) {
        hutch_process_api_refuse(x, &error);
    } else {
        hutch_text_addf(&t, "{\"written\":%zu}\n", w->len);
        hutch_exchange_answer_json(x, 200, &t);
    }
}

static void on_writable(void *owner)
{
    write_on(owner);
}

static void begin_writing(struct exchange *x, struct gateway_process *p, char *data, size_t len)
{
    struct writing *w = calloc(1, sizeof(*w));

    if (!w || !hutch_exchange_hold(x, len)) {
        free(w);
        free(data);
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the input");
        return;
    }
    w->process = p;
    w->data = data;
    w->len = len;
    x->work = w;
    x->on_free = free_writing;
    write_on(x);
}

void hutch_process_api_stdin(struct exchange *x)
{
    struct gateway_process *p = hutch_process_api_find(x);
    struct hutch_err err;
    size_t len;
    char *data;

    if (!p)
        return;
    if (hutch_input_request_parse(x->body.data, x->body.len, &data, &len, &err) < 0)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else
        begin_writing(x, p, data, len);
}

void hutch_process_api_close_stdin(struct exchange *x)
{
    const struct gateway_process *p = hutch_process_api_find(x);
    struct hutch_error error;

    if (!p)
        return;
    if (hutch_process_close_stdin(x->server->engine, p->session->number, p->number, &error) < 0)
        hutch_process_api_refuse(x, &error);
    else
        answer_done(x);
}

/* ---- signals, sizes ---- */

void hutch_process_api_signal(struct exchange *x)
{
    const struct gateway_process *p = hutch_process_api_find(x);
    struct hutch_error error;
    struct hutch_err err;
    int number;

    if (!p)
        return;
    if (hutch_signal_request_parse(x->body.data, x->body.len, &number, &err) < 0)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else if (hutch_process_signal(x->server->engine, p->session->number, p->number, number, &error) < 0)
        hutch_process_api_refuse(x, &error);
    else
        answer_done(x);
}

void hutch_process_api_resize(struct exchange *x)
{
    const struct gateway_process *p = hutch_process_api_find(x);
    struct hutch_error error;
    struct hutch_err err;
    unsigned rows, cols;

    if (!p)
        return;
    if (hutch_size_request_parse(x->body.data, x->body.len, &rows, &cols, &err) < 0)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else if (hutch_process_resize(x->server->engine, p->session->number, p->number, rows, cols, &error) < 0)
        hutch_process_api_refuse(x, &error);
    else
        answer_done(x);
}
