#include "runtime/gateway/cell_api.h"

#include "runtime/gateway/server_priv.h"
#include "runtime/gateway/session_api.h"
#include "runtime/gateway/session_request.h"
#include "runtime/gateway/events.h"
#include "runtime/text/quantity.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <string.h>

/* What an exchange has besides while its cell or order is the session's. */
struct waiting {
    struct gateway_session *session; /* it ends after the answers to all of its cells and orders */
    uint64_t cell;                   /* its number; 0: it is an order */
    struct events stream;
};

static struct waiting *create_waiting(struct exchange *x, struct gateway_session *session)
{
    struct waiting *waiting = calloc(1, sizeof(*waiting));

    x->work = waiting;
    if (waiting)
        waiting->session = session;
    else
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the request");
    return waiting;
}

/* Before the library is asked: what cannot be done at all is answered within the call. */
static void begin_waiting(struct exchange *x, void (*on_gone)(struct exchange *x))
{
    struct waiting *waiting = x->work;

    hutch_gateway_sessions_begin(waiting->session);
    hutch_exchange_wait(x, on_gone);
}

static void end_waiting(struct exchange *x)
{
    hutch_gateway_sessions_end(((struct waiting *)x->work)->session);
}

/* The library has not taken it. */
static void refuse(struct exchange *x, const struct hutch_error *error)
{
    end_waiting(x);
    hutch_exchange_refuse_error(x, error, GATEWAY_QUEUE_FULL, GATEWAY_NOT_FOUND);
}

/* ---- cells ---- */

/* Its own cell only: one that waits is taken back, one that runs is interrupted. */
static void on_cell_gone(struct exchange *x)
{
    const struct waiting *waiting = x->work;

    hutch_session_cancel_cell(x->server->engine, waiting->session->number, waiting->cell);
}

static void on_cell_output(void *user, uint64_t number, const struct hutch_output *output)
{
    static const char *const names[] = {
        [HUTCH_DISPLAY] = "display", [HUTCH_VALUE] = "value", [HUTCH_ERROR_OUTPUT] = "error",
        [HUTCH_UPDATE] = "update",   [HUTCH_CLEAR] = "clear", [HUTCH_WIDGET] = "widget",
    };
    struct exchange *x = user;
    struct events *stream = &((struct waiting *)x->work)->stream;
    bool is_taken;

    if (stream->is_behind)
        return;
    if (output->kind == HUTCH_STREAM) {
        is_taken = hutch_events_output(stream, x, output->stream, output->text, output->text_len);
    } else if ((size_t)output->kind < ARRAY_SIZE(names)) {
        hutch_events_flush(stream, x);
        is_taken = hutch_events_send(stream, x, names[output->kind], output->json, strlen(output->json));
    } else {
        return; /* of a newer library */
    }
    if (!is_taken) { /* what comes is this cell's, so it is the one that runs */
        stream->is_behind = true;
        hutch_session_interrupt(x->server->engine, number);
    }
}

static void on_cell_result(void *user, uint64_t number, const struct hutch_cell_result *result)
{
    struct exchange *x = user;
    struct waiting *waiting = x->work;
    struct events *stream = &waiting->stream;
    char *json = hutch_cell_result_to_json(result);
    bool is_whole;

    (void)number;
    hutch_session_api_count_cell(x, waiting->session, result);
    end_waiting(x);
    if (stream->format == EVENTS_NONE) {
        hutch_exchange_answer(x, 200, "application/json", json, json ? strlen(json) : 0);
        return;
    }
    hutch_events_flush(stream, x);
    is_whole = !stream->is_behind && json && hutch_events_send(stream, x, "result", json, strlen(json));
    free(json);
    hutch_exchange_end(x, is_whole);
}

static void execute(struct exchange *x, struct gateway_session *session, struct hutch_cell *cell)
{
    enum events_format format = hutch_events_asked(x);
    struct waiting *waiting = create_waiting(x, session);
    struct hutch_error error;

    if (!waiting)
        return;
    cell->on_output = format == EVENTS_NONE ? NULL : on_cell_output;
    cell->on_result = on_cell_result;
    cell->user = x;
    cell->ret_id = &waiting->cell;
    begin_waiting(x, on_cell_gone);
    if (hutch_session_execute(x->server->engine, session->number, cell, &error) < 0)
        refuse(x, &error);
    else if (x->is_pending && format != EVENTS_NONE)
        hutch_events_begin(&waiting->stream, x, format);
}

void hutch_cell_api_execute(struct exchange *x)
{
    struct gateway_session *session = hutch_session_api_find(x);
    struct cell_request request;
    struct hutch_err err;

    if (!session)
        return;
    if (hutch_cell_request_parse(x->body.data, x->body.len, &request, &err) < 0)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else
        execute(x, session, &request.cell);
    hutch_cell_request_done(&request);
}

/* ---- checkpoints and branches ---- */

/* An order cannot be taken back. */
static void on_order_gone(struct exchange *x)
{
    (void)x;
}

static void on_reply(void *user, uint64_t number, const struct hutch_reply *reply)
{
    struct exchange *x = user;
    struct text_buffer t = TEXT_BUFFER_INIT;

    (void)number;
    end_waiting(x);
    if (!reply->ok) {
        hutch_exchange_refuse(x, GATEWAY_CONFLICT, "%s", reply->message);
        return;
    }
    hutch_text_addf(&t, "{\"id\":%" PRIu64 ",\"ms\":%.3f,\"bytes\":%" PRIu64 ",\"lost\":", reply->id, reply->ms,
                    reply->bytes);
    hutch_text_add_string(&t, reply->lost);
    hutch_text_add_string(&t, "}\n");
    hutch_exchange_answer_json(x, 200, &t);
}

enum order { ORDER_CHECKPOINT, ORDER_ROLLBACK, ORDER_FORK, ORDER_SWITCH, ORDER_DROP };

static int give_order(struct exchange *x, enum order order, uint64_t session, uint64_t which, struct hutch_error *err)
{
    struct hutch_engine *engine = x->server->engine;

    switch (order) {
    case ORDER_CHECKPOINT:
        return hutch_session_checkpoint(engine, session, on_reply, x, err);
    case ORDER_ROLLBACK:
        return hutch_session_rollback(engine, session, which, on_reply, x, err);
    case ORDER_FORK:
        return hutch_session_fork(engine, session, on_reply, x, err);
    case ORDER_SWITCH:
        return hutch_session_switch(engine, session, which, on_reply, x, err);
    case ORDER_DROP:
        break;
    }
    return hutch_session_drop(engine, session, which, on_reply, x, err);
}

static void handle_order(struct exchange *x, struct gateway_session *session, enum order order, uint64_t which)
{
    struct hutch_error error;

    if (!create_waiting(x, session))
        return;
    begin_waiting(x, on_order_gone);
    if (give_order(x, order, session->number, which, &error) < 0)
        refuse(x, &error);
}

/* @key: of the number in the body. */
static void handle_numbered(struct exchange *x, enum order order, const char *key)
{
    struct gateway_session *session = hutch_session_api_find(x);
    struct hutch_err err;
    uint64_t which;

    if (!session)
        return;
    if (hutch_number_request_parse(x->body.data, x->body.len, key, &which, &err) < 0)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else
        handle_order(x, session, order, which);
}

void hutch_cell_api_checkpoint(struct exchange *x)
{
    struct gateway_session *session = hutch_session_api_find(x);

    if (session)
        handle_order(x, session, ORDER_CHECKPOINT, 0);
}

void hutch_cell_api_fork(struct exchange *x)
{
    struct gateway_session *session = hutch_session_api_find(x);

    if (session)
        handle_order(x, session, ORDER_FORK, 0);
}

void hutch_cell_api_rollback(struct exchange *x)
{
    handle_numbered(x, ORDER_ROLLBACK, "checkpoint");
}

void hutch_cell_api_switch(struct exchange *x)
{
    handle_numbered(x, ORDER_SWITCH, "branch");
}

void hutch_cell_api_drop(struct exchange *x)
{
    struct gateway_session *session = hutch_session_api_find(x);
    struct hutch_err ignored;
    uint64_t which;

    if (!session)
        return;
    if (hutch_parse_u64(x->params[1], &which, &ignored) < 0)
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "there is no such checkpoint or branch");
    else
        handle_order(x, session, ORDER_DROP, which);
}
