#include "runtime/gateway/exchange.h"

#include "runtime/gateway/access.h"
#include "runtime/gateway/exchange_mhd.h"
#include "runtime/gateway/held.h"
#include "runtime/gateway/query.h"
#include "runtime/gateway/range.h"
#include "runtime/gateway/relay.h"
#include "runtime/gateway/server_priv.h"
#include "runtime/hutch.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define STREAM_BLOCK (32u << 10)
_Static_assert(EXCHANGE_UNKNOWN_LENGTH == MHD_SIZE_UNKNOWN, "an answer of unknown length is one to libmicrohttpd, too");

/* Of the body of a refused request so much is read for nothing: most clients listen only when they have sent it all. */
#define DISCARD_MAX (1u << 20)

/* ---- its life ---- */

static void hold(struct exchange *x, size_t len)
{
    x->n_held += len;
    hutch_held_add(x->server, x->token, len);
}

static void let_go(struct exchange *x, size_t len)
{
    x->n_held -= len;
    hutch_held_remove(x->server, x->token, len);
}

static bool has_room(const struct exchange *x, size_t len)
{
    return hutch_held_has_room(x->server, x->token, len);
}

bool hutch_exchange_hold(struct exchange *x, size_t len)
{
    if (!has_room(x, len))
        return false;
    hold(x, len);
    return true;
}

void hutch_exchange_let_go(struct exchange *x, size_t len)
{
    let_go(x, len);
}

void hutch_exchange_free(struct exchange *x)
{
    hutch_poller_remove(&x->server->poller, &x->hangup);
    hutch_silence_end(&x->silence);
    LIST_REMOVE(x, in_list);
    let_go(x, x->n_held);
    if (x->response)
        MHD_destroy_response(x->response);
    hutch_text_done(&x->body);
    hutch_text_done(&x->backlog);
    free(x->refusal);
    free(x->program);
    if (x->on_free)
        x->on_free(x);
    free(x->work);
    for (size_t i = 0; i < ROUTE_MAX_PARAMS; i++)
        free(x->params[i]);
    free(x);
}

static void resume(struct exchange *x)
{
    if (!x->is_suspended)
        return;
    hutch_poller_remove(&x->server->poller, &x->hangup);
    x->is_suspended = false;
    MHD_resume_connection(x->mhd);
    hutch_server_wake(x->server);
}

void hutch_exchange_leave(struct exchange *x)
{
    void (*on_gone)(struct exchange *) = x->is_pending ? x->on_gone : NULL;

    x->on_gone = NULL;
    if (on_gone)
        on_gone(x);
}

void hutch_exchange_abort(struct exchange *x)
{
    x->is_aborted = true;
    hutch_exchange_leave(x);
    resume(x);
}

static void on_hangup(void *owner, uint32_t events)
{
    (void)events;
    hutch_exchange_abort(owner);
}

/* Only from within a callback of MHD's. */
static void suspend(struct exchange *x)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct hutch_err err;

    MHD_suspend_connection(x->mhd);
    x->is_suspended = true;
    x->hangup.on_ready = on_hangup;
    x->hangup.owner = x;
    /* A connection that cannot be watched could leave unseen: it is ended. */
    if (!info || hutch_poller_add(&x->server->poller, &x->hangup, info->connect_fd, EPOLLRDHUP, &err) < 0)
        hutch_exchange_abort(x);
}

/* ---- answers ---- */

void hutch_exchange_add_header(struct exchange *x, const char *name, const char *value)
{
    if (x->response && MHD_add_response_header(x->response, name, value) != MHD_YES)
        x->is_aborted = true; /* memory was short: an answer without its headers could be taken for another one */
}

static void add_usual_headers(struct exchange *x, const char *type)
{
    if (type)
        hutch_exchange_add_header(x, "Content-Type", type);
    hutch_exchange_add_header(x, "Cache-Control", "no-store");
    hutch_exchange_add_header(x, "X-Content-Type-Options", "nosniff");
    hutch_access_add_headers(x);
}

/* Whatever was waited for has come. */
static void conclude(struct exchange *x)
{
    x->is_pending = false;
    if (x->mhd)
        resume(x);
    else
        hutch_exchange_free(x);
}

/* @response is taken. */
static void set_response(struct exchange *x, unsigned status, struct MHD_Response *response)
{
    if (x->status || !response) { /* the first answer counts */
        if (response)
            MHD_destroy_response(response);
        else
            x->is_aborted = true;
        return;
    }
    x->status = status;
    x->response = response;
}

/* Takes @body. */
static void set_answer(struct exchange *x, unsigned status, const char *type, char *body, size_t len)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(len, body, MHD_RESPMEM_MUST_FREE);

    if (!response)
        free(body);
    set_response(x, status, response);
    if (x->response) {
        hold(x, len);
        x->n_out = len;
        add_usual_headers(x, type);
    }
}

/* As its format words it; the caller's to free, NULL: memory was short. */
static char *write_refusal(const struct exchange *x, enum gateway_error error, const char *message, unsigned *status,
                           const char **type, size_t *ret_len)
{
    *status = hutch_gateway_errors[error].status;
    *type = "application/json";
    *ret_len = 0;
    if (x->format->refusal)
        return x->format->refusal(x, error, message, status, type, ret_len);
    return x->format->error_body ? x->format->error_body(error, message, status, ret_len)
                                 : hutch_gateway_error_json(error, message, ret_len);
}

static void set_refusal(struct exchange *x, enum gateway_error error, const char *message)
{
    const struct gateway_error_row *row = &hutch_gateway_errors[error];
    char seconds[16];
    const char *type;
    unsigned status;
    size_t len;
    char *json = write_refusal(x, error, message, &status, &type, &len);

    if (x->status) {
        free(json);
        return;
    }
    x->server->metrics.errors[error]++;
    x->code = row->code;
    if (json && x->body_len && !x->is_handled && (x->refusal = malloc(len))) {
        memcpy(x->refusal, json, len);
        x->refusal_len = len;
        x->refusal_type = type;
    }
    set_answer(x, status, type, json, len);
    if (x->response && row->retry_after) {
        snprintf(seconds, sizeof(seconds), "%u", row->retry_after);
        hutch_exchange_add_header(x, "Retry-After", seconds);
    }
    if (x->response && error == GATEWAY_UNAUTHORIZED)
        hutch_exchange_add_header(x, "WWW-Authenticate", "Bearer");
}

void hutch_exchange_answer(struct exchange *x, unsigned status, const char *type, char *body, size_t len)
{
    if (body)
        set_answer(x, status, type, body, len);
    else
        set_refusal(x, GATEWAY_OVERLOADED, "the server has no memory for the answer");
    if (x->is_pending)
        conclude(x);
}

void hutch_exchange_answer_json(struct exchange *x, unsigned status, struct text_buffer *t)
{
    size_t len = 0;
    char *text = hutch_text_take(t, &len);

    hutch_exchange_answer(x, status, "application/json", text, len);
}

static void set_file(struct exchange *x, int fd, const struct range *range, uint64_t size)
{
    struct MHD_Response *response = MHD_create_response_from_fd_at_offset64(range->len, fd, range->first);
    bool is_part = range->kind == RANGE_PART;
    char text[80];

    if (!response)
        close(fd);
    set_response(x, is_part ? MHD_HTTP_PARTIAL_CONTENT : MHD_HTTP_OK, response);
    if (!x->response)
        return;
    x->n_out = range->len;
    add_usual_headers(x, "application/octet-stream");
    hutch_exchange_add_header(x, "Content-Disposition", "attachment");
    hutch_exchange_add_header(x, "Accept-Ranges", "bytes");
    snprintf(text, sizeof(text), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, range->first, range->first + range->len - 1,
             size);
    if (is_part)
        hutch_exchange_add_header(x, "Content-Range", text);
}

void hutch_exchange_answer_file(struct exchange *x, int fd, const char *range, uint64_t size)
{
    struct range parsed = hutch_range_parse(range, size);
    char message[64];

    if (parsed.kind == RANGE_UNSATISFIABLE) {
        close(fd);
        snprintf(message, sizeof(message), "the file has %" PRIu64 " bytes", size);
        set_refusal(x, GATEWAY_RANGE, message);
    } else {
        set_file(x, fd, &parsed, size);
    }
    if (x->is_pending)
        conclude(x);
}

void hutch_exchange_refuse(struct exchange *x, enum gateway_error error, const char *fmt, ...)
{
    char message[600];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    set_refusal(x, error, message);
    if (x->is_pending)
        conclude(x);
}

void hutch_exchange_refuse_error(struct exchange *x, const struct hutch_error *error, enum gateway_error again,
                                 enum gateway_error absent)
{
    hutch_exchange_refuse(x, hutch_gateway_error_of(error->code, again, absent), "%s", error->message);
}

void hutch_exchange_wait(struct exchange *x, void (*on_gone)(struct exchange *x))
{
    x->is_pending = true;
    x->on_gone = on_gone;
}

void hutch_exchange_hold_back(struct exchange *x, void (*on_gone)(struct exchange *x))
{
    x->is_held_back = true;
    hutch_exchange_wait(x, on_gone);
}

void hutch_exchange_go_on(struct exchange *x)
{
    x->is_held_back = false;
    if (x->mhd)
        hutch_connection_enter(&x->server->connections, x->connection, CONNECTION_BODY);
    conclude(x);
}

void hutch_exchange_forget(struct exchange *x)
{
    x->is_pending = false;
}

/* ---- streams ---- */

/* MHD_ContentReaderCallback. */
static ssize_t read_stream(void *cls, uint64_t at, char *to, size_t size)
{
    struct exchange *x = cls;
    size_t len = x->backlog.len - x->n_sent;

    (void)at;
    if (x->is_aborted)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    len = len < size ? len : size;
    if (len == 0) {
        if (x->is_ended)
            return MHD_CONTENT_READER_END_OF_STREAM;
        suspend(x);
        return 0;
    }
    memcpy(to, x->backlog.data + x->n_sent, len);
    x->n_sent += len;
    x->n_out += len;
    let_go(x, len);
    if (x->n_sent == x->backlog.len) {
        hutch_text_done(&x->backlog);
        x->n_sent = 0;
        if (x->on_drained && x->is_pending)
            x->on_drained(x);
    }
    return (ssize_t)len;
}

void hutch_exchange_begin_answer(struct exchange *x, unsigned status, uint64_t size)
{
    set_response(x, status, MHD_create_response_from_callback(size, STREAM_BLOCK, read_stream, x, NULL));
    x->is_stream = true;
    resume(x);
}

void hutch_exchange_begin_stream(struct exchange *x, const char *type)
{
    hutch_exchange_begin_answer(x, MHD_HTTP_OK, EXCHANGE_UNKNOWN_LENGTH);
    if (x->response)
        add_usual_headers(x, type);
}

void hutch_exchange_break_silence(struct exchange *x, const char *sign, size_t len, double every_ms)
{
    hutch_silence_begin(&x->server->silences, &x->silence, x, sign, len, every_ms);
}

size_t hutch_exchange_behind(const struct exchange *x)
{
    return x->backlog.len - x->n_sent;
}

bool hutch_exchange_write(struct exchange *x, const char *data, size_t len)
{
    const size_t behind = hutch_exchange_behind(x);

    /* What is larger than that by itself goes to a client that has taken all before it. */
    if (x->mhd && !x->is_aborted && behind > 0 && behind + len > EXCHANGE_MAX_BEHIND)
        return false;
    return hutch_exchange_write_all(x, data, len);
}

bool hutch_exchange_write_all(struct exchange *x, const char *data, size_t len)
{
    if (!x->mhd || x->is_aborted)
        return true; /* nobody hears it, and on_gone has been called */
    if (!has_room(x, len))
        return false;
    if (x->n_sent > x->backlog.len / 2) { /* what was sent makes room */
        memmove(x->backlog.data, x->backlog.data + x->n_sent, x->backlog.len - x->n_sent);
        x->backlog.len -= x->n_sent;
        x->n_sent = 0;
    }
    hutch_text_add(&x->backlog, data, len);
    if (x->backlog.is_broken)
        return false;
    hold(x, len);
    hutch_silence_break(&x->silence);
    resume(x);
    return true;
}

void hutch_exchange_end(struct exchange *x, bool is_whole)
{
    x->is_ended = true;
    hutch_silence_end(&x->silence);
    if (!is_whole)
        x->is_aborted = true;
    conclude(x);
}

void hutch_exchange_break_off(struct exchange *x)
{
    x->is_ended = x->is_aborted = true;
    hutch_silence_end(&x->silence);
    x->is_pending = false;
    resume(x);
}

/* ---- another protocol ---- */

void hutch_exchange_upgrade(struct exchange *x, MHD_UpgradeHandler on_upgrade, void *cls)
{
    set_response(x, MHD_HTTP_SWITCHING_PROTOCOLS, MHD_create_response_for_upgrade(on_upgrade, cls));
}

/* ---- the request ---- */

struct hutch_engine *hutch_exchange_engine(const struct exchange *x)
{
    return x->server->engine;
}

const char *hutch_exchange_header(const struct exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, name);
}

struct sessions *hutch_exchange_sessions(const struct exchange *x)
{
    return &x->server->sessions;
}

const char *const *hutch_exchange_hosts(const struct exchange *x)
{
    return x->server->options->hosts;
}

bool hutch_exchange_is_draining(const struct exchange *x)
{
    return x->server->is_draining;
}

char *hutch_exchange_query(const struct exchange *x, const char *name, struct hutch_err *err)
{
    const char *value = MHD_lookup_connection_value(x->mhd, MHD_GET_ARGUMENT_KIND, name);

    err->errnum = 0;
    return value ? hutch_query_decode(value, err) : NULL;
}

void hutch_exchange_note_program(struct exchange *x, const char *code, size_t len)
{
    if (!x->server->options->logs_code || x->program)
        return;
    x->program = strndup(code, len < GATEWAY_LOG_PROGRAM_MAX ? len : GATEWAY_LOG_PROGRAM_MAX);
}

static const char *known_method(const char *method)
{
    static const char *const known[] = { "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS" };

    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (strcmp(known[i], method) == 0)
            return known[i];
    return "other";
}

static struct exchange *create(struct server *s, struct MHD_Connection *mhd, const char *method)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct exchange *x = info && info->socket_context ? calloc(1, sizeof(*x)) : NULL;

    if (!x)
        return NULL;
    x->server = s;
    x->mhd = mhd;
    x->connection = info->socket_context;
    x->connection->request = x;
    x->is_inner = x->connection->is_inner;
    x->method = known_method(method);
    x->format = &hutch_native_format;
    x->start_ms = hutch_clock_ms();
    x->hangup = (struct watch)WATCH_INIT;
    LIST_INSERT_HEAD(&s->exchanges, x, in_list);
    return x;
}

static void drop_body(struct exchange *x)
{
    let_go(x, x->body.len);
    hutch_text_done(&x->body);
}

static void take_body(struct exchange *x, const char *data, size_t len)
{
    struct server *s = x->server;

    x->n_in += len;
    hutch_connection_advance(&s->connections, x->connection, len);
    if (x->status || x->is_aborted || !x->route) { /* it was refused */
        x->is_discarding = true;
        return;
    }
    if (x->is_streamed) {
        x->handler->take(x, data, len);
        x->n_in -= x->n_untaken;
    } else if (x->body.len + len > s->options->max_body) {
        hutch_exchange_refuse(x, GATEWAY_BODY_TOO_LARGE, "the body is larger than %" PRIu64 " bytes",
                              s->options->max_body);
    } else if (!has_room(x, len)) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server holds as much of requests and answers as it may");
    } else {
        hutch_text_add(&x->body, data, len);
    }
    if (x->body.is_broken)
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the body");
    if (x->status) {
        x->is_discarding = true;
        drop_body(x);
    } else if (!x->is_streamed) {
        hold(x, len);
    }
}

/* Before the body is read, where there is too much of it: MHD closes the connection then. */
static bool is_answered_early(struct exchange *x)
{
    if (!x->status || x->body_len == EXCHANGE_UNKNOWN_LENGTH ||
        (x->body_len <= DISCARD_MAX && x->status != hutch_gateway_errors[GATEWAY_BODY_TOO_LARGE].status))
        return false;
    if (x->response) /* what is left of the body would be taken for the next request */
        hutch_exchange_add_header(x, "Connection", "close");
    x->connection->is_cut = true;
    return true;
}

/* So much has come of the body for nothing that it is not read to its end. MHD takes no answer before that. */
static enum MHD_Result cut(struct exchange *x)
{
    if (x->refusal)
        hutch_connection_say_last(x->connection, x->status, x->refusal_type, x->refusal, x->refusal_len);
    x->connection->is_cut = true;
    return MHD_NO;
}

static enum MHD_Result queue(struct exchange *x)
{
    enum MHD_Result rc = MHD_NO;

    hutch_connection_enter(&x->server->connections, x->connection, CONNECTION_BUSY);
    if (x->response && !x->is_aborted)
        rc = MHD_queue_response(x->mhd, x->status, x->response);
    if (x->response)
        MHD_destroy_response(x->response); /* MHD has a reference of its own */
    x->response = NULL;
    return rc;
}

/* The whole request is there; and again each time that the exchange was resumed. */
static enum MHD_Result proceed(struct exchange *x)
{
    if (!x->status && !x->is_handled && !x->is_aborted) {
        x->is_handled = true;
        hutch_connection_enter(&x->server->connections, x->connection, CONNECTION_BUSY);
        if (!hutch_relay_body(x))
            x->handler->handle(x);
        drop_body(x); /* what is handed on was copied */
        if (!x->status && !x->is_pending)
            hutch_exchange_refuse(x, GATEWAY_INTERNAL, "the request was not answered");
    }
    if (x->status || x->is_aborted)
        return queue(x);
    suspend(x);
    return MHD_YES;
}

static bool must_hold_back(const struct exchange *x)
{
    return x->is_held_back && !x->status && !x->is_aborted;
}

static enum MHD_Result hold_back(struct exchange *x)
{
    hutch_connection_enter(&x->server->connections, x->connection, CONNECTION_BUSY); /* it is not the client's delay */
    suspend(x);
    return MHD_YES;
}

/* Of a request whose head is not whole, its path may be known, and with it whose words its client reads. */
void hutch_exchange_on_late(void *server, const struct connection *c)
{
    static const char message[] = "the request took too long to arrive";
    struct server *s = server;
    struct exchange headless = { .server = s, .format = &hutch_native_format };
    auto_free char *path = c->uri ? strndup(c->uri, strcspn(c->uri, "?")) : NULL;
    char *params[ROUTE_MAX_PARAMS] = { NULL };
    bool has_other;
    struct hutch_err ignored;
    const char *type;
    unsigned status;
    size_t len;
    auto_free char *body = NULL;

    if (!c->request && path) /* no route has this method */
        hutch_formats_find(&s->formats, "", path, &headless.format, &headless.route, &has_other, params, &ignored);
    body = write_refusal(c->request ? c->request : &headless, GATEWAY_TIMEOUT, message, &status, &type, &len);
    hutch_connection_say_last(c, status, type, body ? body : "", body ? len : 0);
}

enum MHD_Result hutch_exchange_hear(void *server, struct MHD_Connection *mhd, const char *path, const char *method,
                                    const char *version, const char *data, size_t *len, void **state)
{
    struct exchange *x = *state;
    size_t n;

    if (!x) {
        x = create(server, mhd, method);
        if (!x)
            return MHD_NO;
        *state = x;
        hutch_access_check(x, path, method, version);
        if (!x->status && x->is_streamed)
            x->handler->begin(x);
        hutch_connection_enter(&x->server->connections, x->connection, x->body_len ? CONNECTION_BODY : CONNECTION_BUSY);
        x->is_at_head = must_hold_back(x);
        return x->is_at_head ? hold_back(x) : is_answered_early(x) ? queue(x) : MHD_YES;
    }
    if (must_hold_back(x))
        return hold_back(x);
    if (x->is_at_head) {
        x->is_at_head = false;
        if (*len == 0)
            return is_answered_early(x) ? queue(x) : MHD_YES;
    }
    if (*len == 0)
        return proceed(x);
    n = *len;
    x->n_untaken = 0;
    take_body(x, data, n);
    *len = 0;
    if (must_hold_back(x)) { /* what is not taken comes again, and nothing else before */
        *len = x->n_untaken;
        return x->n_untaken ? hold_back(x) : MHD_YES;
    }
    return x->is_discarding && (x->n_discarded += n) > DISCARD_MAX ? cut(x) : MHD_YES;
}

void hutch_exchange_on_completed(void *server, struct MHD_Connection *mhd, void **state,
                                 enum MHD_RequestTerminationCode how)
{
    struct server *s = server;
    struct exchange *x = *state;
    struct gateway_log_request line;
    double ms;

    (void)mhd;
    if (!x)
        return;
    *state = NULL;
    ms = hutch_clock_ms() - x->start_ms;
    line = (struct gateway_log_request){ .method = x->method, .route = x->route ? x->route->path : NULL,
                                         .token = x->token ? x->token->name : NULL, .code = x->code,
                                         .program = x->program,
                                         .status = x->status, .ms = ms, .bytes_in = x->n_in, .bytes_out = x->n_out,
                                         .is_gone = how != MHD_REQUEST_TERMINATED_COMPLETED_OK };
    if (x->handler == x->route || x->code) { /* else another worker says what became of it */
        hutch_gateway_log_request(&s->log, &line);
        hutch_metrics_add_request(&s->metrics, hutch_formats_number(&s->formats, x->route), x->status, ms);
        s->metrics.gone += line.is_gone;
    }
    hutch_poller_remove(&s->poller, &x->hangup);
    x->is_suspended = false;
    hutch_connection_enter(&s->connections, x->connection, CONNECTION_IDLE);
    x->connection->request = NULL;
    hutch_exchange_leave(x); /* which may end what it waits for at once; the exchange is freed here, and not there */
    x->mhd = NULL;
    if (!x->is_pending)
        hutch_exchange_free(x);
}
