#include "runtime/gateway/order_api.h"

#include "runtime/gateway/server_priv.h"
#include "runtime/gateway/session_api.h"
#include "runtime/gateway/session_request.h"
#include "runtime/gateway/waiting.h"
#include "runtime/text/quantity.h"

#include <inttypes.h>
#include <string.h>

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
    hutch_waiting_end(x);
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

    if (!hutch_waiting_create(x, session))
        return;
    hutch_waiting_begin(x, on_order_gone);
    if (give_order(x, order, session->number, which, &error) < 0)
        hutch_waiting_refuse(x, &error);
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

void hutch_order_api_checkpoint(struct exchange *x)
{
    struct gateway_session *session = hutch_session_api_find(x);

    if (session)
        handle_order(x, session, ORDER_CHECKPOINT, 0);
}

void hutch_order_api_fork(struct exchange *x)
{
    struct gateway_session *session = hutch_session_api_find(x);

    if (session)
        handle_order(x, session, ORDER_FORK, 0);
}

void hutch_order_api_rollback(struct exchange *x)
{
    handle_numbered(x, ORDER_ROLLBACK, "checkpoint");
}

void hutch_order_api_switch(struct exchange *x)
{
    handle_numbered(x, ORDER_SWITCH, "branch");
}

void hutch_order_api_drop(struct exchange *x)
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

/* ---- contexts ---- */

static void handle_context(struct exchange *x,
                           int (*give)(struct hutch_engine *engine, uint64_t id, const char *context,
                                       hutch_on_reply on_reply, void *user, struct hutch_error *err))
{
    struct gateway_session *session = hutch_session_api_find(x);
    struct hutch_error error;

    if (!session || !hutch_waiting_create(x, session))
        return;
    hutch_waiting_begin(x, on_order_gone);
    if (give(x->server->engine, session->number, x->params[1], on_reply, x, &error) < 0)
        hutch_waiting_refuse(x, &error);
}

void hutch_order_api_reset_context(struct exchange *x)
{
    handle_context(x, hutch_session_reset_context);
}

void hutch_order_api_drop_context(struct exchange *x)
{
    handle_context(x, hutch_session_drop_context);
}

/* ---- questions to the shell ---- */

static void on_told(void *user, uint64_t number, const struct hutch_reply *reply)
{
    struct exchange *x = user;
    char *json = reply->ok && reply->json ? strdup(reply->json) : NULL;

    (void)number;
    hutch_waiting_end(x);
    if (reply->ok)
        hutch_exchange_answer(x, 200, "application/json", json, json ? strlen(json) : 0);
    else
        hutch_exchange_refuse(x, GATEWAY_CONFLICT, "%s", reply->message);
}

static void ask(struct exchange *x, enum hutch_question_kind kind)
{
    struct gateway_session *session = hutch_session_api_find(x);
    struct question_request request;
    struct hutch_error error;
    struct hutch_err err;

    if (!session)
        return;
    if (hutch_question_request_parse(x->body.data, x->body.len, &request, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    } else if (hutch_waiting_create(x, session)) {
        request.question.kind = kind;
        hutch_waiting_begin(x, on_order_gone);
        if (hutch_session_ask(x->server->engine, session->number, &request.question, on_told, x, &error) < 0)
            hutch_waiting_refuse(x, &error);
    }
    hutch_question_request_done(&request);
}

void hutch_order_api_complete(struct exchange *x)
{
    ask(x, HUTCH_ASK_COMPLETION);
}

void hutch_order_api_inspect(struct exchange *x)
{
    ask(x, HUTCH_ASK_INSPECTION);
}

void hutch_order_api_is_complete(struct exchange *x)
{
    ask(x, HUTCH_ASK_IS_COMPLETE);
}
