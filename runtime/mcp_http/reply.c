#include "runtime/mcp_http/reply.h"

#include "runtime/gateway/exchange.h"
#include "runtime/mcp/rpc.h"
#include "runtime/mcp/server.h"
#include "runtime/mcp_http/client.h"
#include "sandbox/clock.h"

#include <stdlib.h>
#include <string.h>

/* ---- whole answers ---- */

void hutch_reply_empty(struct exchange *x, unsigned status)
{
    hutch_exchange_answer(x, status, NULL, strdup(""), 0);
}

void hutch_reply_refuse(struct exchange *x, unsigned status, const struct json_view *id, int code, const char *why)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_rpc_write_error(&t, id ? *id : JSON_VIEW_NONE, code, why, NULL);
    hutch_exchange_answer_json(x, status, &t);
}

/* In the older era 404 means that a session has ended, so an unknown method is an answer like any other. */
static unsigned status_of(const struct reply *r)
{
    switch (r->code) {
    case RPC_PARSE_ERROR:
    case RPC_INVALID_REQUEST:
    case RPC_HEADER_MISMATCH:
    case RPC_UNSUPPORTED_VERSION:
        return 400;
    case RPC_METHOD_NOT_FOUND:
        return r->is_modern ? 404 : 200;
    default:
        return 200;
    }
}

static void answer(struct reply *r, struct exchange *x)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (r->n_answers == 0) { /* notifications, and what was cancelled */
        hutch_reply_empty(x, 202);
        return;
    }
    if (!r->is_array) {
        hutch_exchange_answer_json(x, status_of(r), &r->answers);
        return;
    }
    hutch_text_add_string(&t, "[");
    hutch_text_add(&t, r->answers.data, r->answers.len);
    hutch_text_add_string(&t, "]");
    t.is_broken |= r->answers.is_broken;
    hutch_exchange_answer_json(x, 200, &t);
}

/* ---- its life ---- */

static void leave_client(struct reply *r)
{
    if (r->client)
        LIST_REMOVE(r, in_client);
    r->client = NULL;
}

/* The exchange is freed, and this with it. */
static void on_free(struct exchange *x)
{
    struct reply *r = x->work;

    leave_client(r);
    hutch_text_done(&r->answers);
}

/* What to do about it depends on the era: runtime/mcp_http/client.c does it. */
static void on_gone(struct exchange *x)
{
    struct reply *r = x->work;

    r->gone_ms = hutch_clock_ms();
}

struct reply *hutch_reply_begin(struct exchange *x, struct http_client *client, size_t n)
{
    struct reply *r = calloc(1, sizeof(*r));

    if (!r) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the request");
        return NULL;
    }
    r->x = x;
    r->client = client;
    r->n_left = n;
    r->is_beginning = true;
    r->answers = (struct text_buffer)TEXT_BUFFER_INIT;
    LIST_INSERT_HEAD(&client->replies, r, in_client);
    x->work = r;
    x->on_free = on_free;
    hutch_exchange_wait(x, on_gone);
    return r;
}

/* The exchange may be freed by its answer. */
static void finish(struct reply *r, bool is_whole)
{
    struct exchange *x = r->x;

    leave_client(r);
    if (r->is_stream)
        hutch_exchange_end(x, is_whole && !r->is_cut);
    else if (is_whole)
        answer(r, x);
    else
        hutch_exchange_refuse(x, GATEWAY_INTERNAL, "the request was not answered");
}

/* ---- streams ---- */

void hutch_reply_stream(struct reply *r)
{
    r->is_stream = true;
    hutch_events_begin(&r->events, r->x, EVENTS_SSE);
    hutch_exchange_add_header(r->x, "X-Accel-Buffering", "no"); /* nginx would gather it */
    if (r->n_answers > 0)
        r->is_cut |= r->answers.is_broken ||
                     !hutch_events_send(&r->events, r->x, "message", r->answers.data, r->answers.len);
    hutch_text_done(&r->answers);
}

void hutch_reply_begun(struct reply *r)
{
    r->is_beginning = false;
    /* Answers of an array that are there already are sent as one array, which is a message, too. */
    if (r->takes_stream && (r->n_left > 0 || !r->takes_json) && (r->n_left > 0 || r->n_answers > 0)) {
        if (r->is_array && r->n_answers > 0) {
            struct text_buffer t = TEXT_BUFFER_INIT;

            hutch_text_add_string(&t, "[");
            hutch_text_add(&t, r->answers.data, r->answers.len);
            hutch_text_add_string(&t, "]");
            hutch_text_done(&r->answers);
            r->answers = t;
        }
        hutch_reply_stream(r);
    }
    if (r->n_left == 0)
        finish(r, true);
}

bool hutch_reply_is_behind(const struct reply *r)
{
    return r->is_stream && r->x->backlog.len - r->x->n_sent > REPLY_BEHIND;
}

/* ---- messages ---- */

void hutch_reply_send(struct reply *r, int kind, const char *json, size_t len)
{
    if (r->is_stream) {
        r->is_cut |= !hutch_events_send(&r->events, r->x, "message", json, len);
        return;
    }
    if (kind == MCP_NOTIFICATION)
        return; /* one text has no place for it */
    if (r->n_answers++ > 0)
        hutch_text_add_string(&r->answers, ",");
    hutch_text_add(&r->answers, json, len);
    r->code = kind;
}

void hutch_reply_end(struct reply *r)
{
    if (r->n_left > 0)
        r->n_left--;
    if (r->n_left == 0 && !r->is_beginning)
        finish(r, true);
}

void hutch_reply_break(struct reply *r)
{
    finish(r, false);
}
