#include "runtime/gateway/relay.h"

#include "runtime/gateway/crew.h"
#include "runtime/gateway/gather.h"
#include "runtime/gateway/inner.h"
#include "runtime/gateway/inner_answer.h"
#include "runtime/gateway/inner_request.h"
#include "runtime/gateway/server_priv.h"
#include "runtime/gateway/tunnel.h"

#include <stdlib.h>
#include <string.h>

#define MAX_BEHIND (1u << 20)       /* of an answer, before no more of it is taken from the other worker */
#define MAX_REFUSAL (64u << 10)     /* that is kept, for where the request is cut off */
#define HTTP_SWITCHING_PROTOCOLS 101

struct relay {
    struct exchange *x;
    unsigned to;              /* the worker's number */
    char name[ID_LEN + 1];    /* of what the request makes; "": it makes nothing */
    struct inner inner;
    size_t n_held;            /* of a body that had been gathered: it is in memory until it is sent */
    struct tunnel *tunnel;    /* owned; NULL: it is HTTP alone */
};

/* ---- the answer ---- */

static void on_gone(struct exchange *x)
{
    struct relay *r = x->work;

    if (x->server->is_cancelled && !x->is_aborted) { /* the other worker ends it likewise, and says so */
        x->on_gone = on_gone;                        /* until then the client may leave */
        return;
    }
    hutch_inner_done(&r->inner);
    hutch_exchange_forget(x);
}

static void on_drained(struct exchange *x)
{
    struct relay *r = x->work;

    hutch_inner_pause(&r->inner, false);
}

/* The rest of the request's body may come, if only to be passed over. */
static void let_body_come(struct exchange *x)
{
    if (x->is_held_back)
        hutch_exchange_go_on(x);
}

static void on_head(void *owner)
{
    struct relay *r = owner;
    struct exchange *x = r->x;

    if (r->inner.reader.status == HTTP_SWITCHING_PROTOCOLS) {
        r->tunnel = hutch_tunnel_begin(x, &r->inner);
        return;
    }
    hutch_inner_answer_begin(x, &r->inner.reader);
    x->on_drained = on_drained;
    let_body_come(x);
    hutch_exchange_wait(x, on_gone);
}

/* A request that is not read to its end is answered in another way: exchange.c. */
static void keep_refusal(struct exchange *x, const struct text_buffer *body)
{
    char *refusal;

    if (x->is_handled || x->status < 400 || x->refusal_len + body->len > MAX_REFUSAL ||
        !(refusal = realloc(x->refusal, x->refusal_len + body->len)))
        return;
    memcpy(refusal + x->refusal_len, body->data, body->len);
    x->refusal = refusal;
    x->refusal_len += body->len;
    x->refusal_type = "application/json";
}

static void on_body(void *owner)
{
    struct relay *r = owner;
    struct text_buffer *body = &r->inner.reader.body;
    bool is_written;

    keep_refusal(r->x, body);
    is_written = hutch_exchange_write_all(r->x, body->data, body->len);
    hutch_text_done(body);
    if (!is_written) {
        hutch_inner_done(&r->inner);
        hutch_exchange_break_off(r->x);
    } else if (hutch_exchange_behind(r->x) > MAX_BEHIND) {
        hutch_inner_pause(&r->inner, true);
    }
}

static void on_sent(void *owner)
{
    struct relay *r = owner;

    hutch_exchange_let_go(r->x, r->n_held);
    r->n_held = 0;
    let_body_come(r->x);
}

static void on_end(void *owner, bool is_whole)
{
    struct relay *r = owner;
    struct exchange *x = r->x;

    if (r->inner.has_told_head)
        hutch_exchange_end(x, is_whole);
    else
        hutch_exchange_refuse(x, GATEWAY_INTERNAL, "the worker of the server that has this ended before it answered");
}

static const struct inner_events events = { .on_head = on_head, .on_body = on_body, .on_sent = on_sent,
                                            .on_end = on_end };

/* ---- the request ---- */

static void on_free(struct exchange *x)
{
    struct relay *r = x->work;

    hutch_inner_done(&r->inner);
    hutch_tunnel_free(r->tunnel);
}

/* Takes what is in @t. */
static void send_text(struct relay *r, struct text_buffer *t)
{
    if (t->is_broken || !hutch_inner_send(&r->inner, t->data, t->len))
        hutch_exchange_abort(r->x);
    hutch_text_done(t);
}

static void begin(struct exchange *x)
{
    struct relay *r = x->work;
    struct text_buffer t = TEXT_BUFFER_INIT;
    struct hutch_err err;
    int fd = hutch_crew_connect(x->server->crew, r->to, x->connection->is_tcp, &err);

    if (fd < 0 || hutch_inner_begin(&r->inner, &x->server->poller, fd, &events, r, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "give the request to the worker of the server that has this: %s",
                              err.msg);
        return;
    }
    r->inner.reader.has_no_body = strcmp(x->method, "HEAD") == 0;
    hutch_inner_request_write(&t, x, r->name[0] ? r->name : NULL);
    send_text(r, &t);
}

static void take(struct exchange *x, const char *data, size_t len)
{
    struct relay *r = x->work;
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_inner_request_write_body(&t, x, data, len);
    send_text(r, &t);
    if (!x->status && !x->is_aborted && hutch_inner_unsent(&r->inner) > 0)
        hutch_exchange_hold_back(x, on_gone);
}

static void handle(struct exchange *x)
{
    struct relay *r = x->work;
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (x->body_len == EXCHANGE_UNKNOWN_LENGTH) {
        hutch_inner_request_write_body(&t, x, "", 0);
        send_text(r, &t);
    }
    if (!x->status)
        hutch_exchange_wait(x, on_gone);
}

static const struct route relay_route = { .body = ROUTE_STREAM, .handle = handle, .begin = begin, .take = take };

/* ---- which ---- */

static bool relay_to(struct exchange *x, unsigned to, const char *name)
{
    struct relay *r;

    if (to == x->server->place.index)
        return false;
    r = calloc(1, sizeof(*r));
    if (!r) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the request");
        return true;
    }
    r->x = x;
    r->to = to;
    strcpy(r->name, name);
    x->work = r;
    x->on_free = on_free;
    x->handler = &relay_route;
    return true;
}

/* Who opens many sessions over one connection is to have them with all workers. */
static bool relay_new(struct exchange *x)
{
    struct placement placement;
    char name[ID_LEN + 1];
    struct hutch_err ignored;

    if (hutch_id_make(name, &ignored) < 0)
        return false; /* it fails once more, and is told then */
    hutch_placement_name(&placement, name);
    return relay_to(x, hutch_place_of(&x->server->place, placement.hash), name);
}

bool hutch_relay_is_wanted(struct exchange *x)
{
    struct placement placement = { .kind = PLACE_ANY };

    if (!x->server->crew || x->is_inner || !x->format->place)
        return false;
    x->format->place(x, &placement);
    switch (placement.kind) {
    case PLACE_NAMED:
        return relay_to(x, hutch_place_of(&x->server->place, placement.hash), "");
    case PLACE_NEW:
        return relay_new(x);
    case PLACE_ALL:
        return hutch_gather_take(x, placement.merge);
    default:
        return false;
    }
}

/* What the other worker does not read yet counts as the body did that it was made of. False: it is refused. */
static bool hold_unsent(struct exchange *x)
{
    struct relay *r = x->work;
    size_t n = hutch_inner_unsent(&r->inner);

    if (!hutch_exchange_hold(x, n)) {
        hutch_inner_done(&r->inner);
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server holds as much of requests and answers as it may");
        return false;
    }
    r->n_held = n;
    return true;
}

bool hutch_relay_body(struct exchange *x)
{
    struct placement placement = { .kind = PLACE_ANY };
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (!x->server->crew || x->is_inner || !x->format->place_body || x->handler != x->route)
        return false;
    x->format->place_body(x, &placement);
    if (placement.kind != PLACE_NAMED || !relay_to(x, hutch_place_of(&x->server->place, placement.hash), ""))
        return false;
    if (!x->status)
        begin(x);
    if (x->status)
        return true;
    hutch_inner_request_write_body(&t, x, x->body.data, x->body.len);
    send_text(x->work, &t);
    if (hold_unsent(x))
        handle(x);
    return true;
}

void hutch_relay_enter(struct exchange *x)
{
    if (x->handler)
        x->is_streamed = x->handler->body == ROUTE_STREAM;
}
