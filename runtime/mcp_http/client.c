#include "runtime/mcp_http/client.h"

#include "runtime/gateway/exchange.h"
#include "runtime/gateway/host.h"
#include "runtime/gateway/token.h"
#include "runtime/hutch.h"
#include "runtime/mcp/server.h"
#include "runtime/mcp_http/reply.h"
#include "sandbox/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the token's share ---- */

static int enter_place(void *owner, struct hutch_err *err)
{
    struct places *p = owner;
    const struct server *s = p->all->server;

    if (p->token && p->n >= p->reserved) {
        if (hutch_server_session_count(s, p->token) >= hutch_server_session_share(s))
            return hutch_err_set(err, 0, "no more sessions may be open for this client: go on in one of them");
        p->token->n_sessions++;
    }
    p->n++;
    return 0;
}

static void leave_place(void *owner)
{
    struct places *p = owner;

    p->n--;
    if (p->token && p->n >= p->reserved)
        p->token->n_sessions--;
}

static const char *policy_of(void *owner, struct hutch_limits *limits)
{
    const struct places *p = owner;

    return hutch_server_policy(p->all->server, p->token, "mcp", limits);
}

/* What is given is a proxy's, which finds this server by it again: one that is no name, or is taken, is passed over. */
static int make_handle(void *owner, char ret[ID_LEN + 1], struct hutch_err *err)
{
    const struct places *p = owner;
    struct handles *h = p->handles;
    struct hutch_err ignored;

    if (h && h->x && hutch_exchange_given_id(h->x, ret, &ignored) > 0 &&
        !hutch_mcp_sessions_find(&h->sessions, ret, &ignored))
        return 0;
    return hutch_server_make_id(p->all->server, ret, err);
}

static void count_cell(void *owner, const struct hutch_cell_result *result)
{
    const struct places *p = owner;

    hutch_server_count_cell(p->all->server, "mcp", result);
}

static const struct mcp_account account = { .enter = enter_place, .leave = leave_place, .policy = policy_of,
                                            .count_cell = count_cell, .make_handle = make_handle };

/* ---- the transport ---- */

static void on_send(void *owner, void *exchange, int kind, const char *json, size_t len)
{
    struct http_client *client = owner;
    struct reply *r = exchange ? exchange : client->stream;

    if (!r)
        return;
    hutch_reply_send(r, kind, json, len);
    client->has_failed |= r == client->stream && r->is_cut;
}

static void on_end(void *owner, void *exchange)
{
    (void)owner;
    if (exchange)
        hutch_reply_end(exchange);
}

static bool is_behind(void *owner)
{
    const struct http_client *client = owner;
    const struct reply *r;

    LIST_FOREACH(r, &client->replies, in_client)
        if (hutch_reply_is_behind(r))
            return true;
    return false;
}

static struct hutch_engine *get_engine(void *owner, struct hutch_err *err)
{
    const struct http_client *client = owner;
    struct hutch_engine *engine = hutch_server_engine(client->all->server);

    if (!engine)
        hutch_err_set(err, 0, "the engine can run nothing any more");
    return engine;
}

static void on_fail(void *owner)
{
    struct http_client *client = owner;

    client->has_failed = true;
}

static const struct mcp_transport transport = {
    .send = on_send, .end = on_end, .is_behind = is_behind, .engine = get_engine, .fail = on_fail,
};

/* ---- beginning and end ---- */

static const struct mcp_settings settings_of_clients = { .idle_ms = (uint64_t)CLIENT_IDLE_MS };
static const struct mcp_settings settings_of_handles = { .max_sessions = CLIENT_HANDLES_MAX, .has_no_main = true };

static struct handles *find_handles(struct http_clients *all, struct token *token)
{
    struct handles *h;

    LIST_FOREACH(h, &all->handles, in_list)
        if (h->places.token == token)
            return h;
    h = calloc(1, sizeof(*h));
    if (!h)
        return NULL;
    h->places = (struct places){ .all = all, .token = token, .handles = h };
    hutch_mcp_sessions_init(&h->sessions, &settings_of_handles);
    h->sessions.account = &account;
    h->sessions.owner = &h->places;
    LIST_INSERT_HEAD(&all->handles, h, in_list);
    return h;
}

void hutch_client_use(struct http_client *client)
{
    client->used_ms = hutch_clock_ms();
    if (client->is_busy)
        return;
    TAILQ_REMOVE(&client->all->idle, client, in_list);
    TAILQ_INSERT_TAIL(&client->all->busy, client, in_list);
    client->is_busy = true;
}

static void free_client(struct http_client *client)
{
    struct http_clients *all = client->all;

    TAILQ_REMOVE(client->is_busy ? &all->busy : &all->idle, client, in_list);
    hutch_mcp_server_free(client->server);
    if (client->kind != CLIENT_SINGLE) {
        hutch_mcp_sessions_done(&client->own);
        all->n--;
        if (client->places.token)
            client->places.token->n_sessions -= client->places.reserved;
    }
    free(client);
}

/* One that has no interpreter loses nothing: those that only say "initialize" keep nobody out. */
static void forget_unused(struct http_clients *all)
{
    struct http_client *client;

    TAILQ_FOREACH(client, &all->idle, in_list)
        if (hutch_mcp_sessions_are_closed(&client->own)) {
            free_client(client);
            return;
        }
}

static bool has_room(struct http_clients *all, struct exchange *x, enum client_kind kind)
{
    unsigned n = hutch_server_session_count(all->server, x->token);

    if (kind == CLIENT_SINGLE)
        return true;
    if (all->n >= CLIENTS_MAX)
        forget_unused(all);
    if (all->n < CLIENTS_MAX && (!x->token || n < hutch_server_session_share(all->server)))
        return true;
    hutch_exchange_refuse(x, GATEWAY_QUEUE_FULL, "there are as many sessions as there may be");
    return false;
}

/* As make_handle(). */
static int make_id(const struct http_clients *all, const struct exchange *x, char ret[ID_LEN + 1])
{
    struct hutch_err err;

    if (hutch_exchange_given_id(x, ret, &err) > 0 && !hutch_client_find(all, x, CLIENT_NAMED, ret) &&
        !hutch_client_find(all, x, CLIENT_STREAM, ret))
        return 0;
    return hutch_server_make_id(all->server, ret, &err);
}

struct http_client *hutch_client_create(struct http_clients *all, struct exchange *x, enum client_kind kind,
                                        const struct mcp_face *face)
{
    struct http_client *client = has_room(all, x, kind) ? calloc(1, sizeof(*client)) : NULL;
    struct handles *handles = client && kind == CLIENT_SINGLE ? find_handles(all, x->token) : NULL;
    struct mcp_sessions *sessions = handles ? &handles->sessions : NULL;

    if (client && kind != CLIENT_SINGLE) {
        hutch_mcp_sessions_init(&client->own, &settings_of_clients);
        client->own.account = &account;
        client->own.owner = &client->places;
        sessions = &client->own;
    }
    if (sessions)
        client->server = hutch_mcp_server_create(&transport, client, face, sessions, hutch_server_version(all->server));
    if (!client || !client->server || (kind != CLIENT_SINGLE && make_id(all, x, client->id) < 0)) {
        if (client)
            hutch_mcp_server_free(client->server);
        free(client);
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the request");
        return NULL;
    }
    client->all = all;
    client->kind = kind;
    client->handles = handles;
    client->owner = x->token;
    client->places = (struct places){ .all = all, .token = x->token, .reserved = 1 };
    LIST_INIT(&client->replies);
    client->used_ms = hutch_clock_ms();
    client->is_busy = true;
    TAILQ_INSERT_TAIL(&all->busy, client, in_list);
    if (kind != CLIENT_SINGLE) {
        all->n++;
        if (x->token)
            x->token->n_sessions++;
    }
    return client;
}

/* How long it takes says nothing of where they differ. */
static bool is_same_id(const char *a, const char *b)
{
    unsigned char differs = 0;

    for (size_t i = 0; i < ID_LEN; i++)
        differs |= (unsigned char)(a[i] ^ b[i]);
    return differs == 0;
}

struct http_client *hutch_client_find(const struct http_clients *all, const struct exchange *x, enum client_kind kind,
                                      const char *id)
{
    const struct client_list *const lists[] = { &all->busy, &all->idle };
    struct http_client *client, *found = NULL;
    char padded[ID_LEN + 1] = "";

    if (strlen(id) == ID_LEN)
        memcpy(padded, id, ID_LEN);
    for (size_t i = 0; i < 2; i++)
        TAILQ_FOREACH(client, lists[i], in_list) /* all of them, wherever it is */
            if (is_same_id(client->id, padded) && client->id[0] && client->kind == kind && client->owner == x->token &&
                !client->is_closing)
                found = client;
    return found;
}

void hutch_client_close(struct http_client *client)
{
    struct hutch_engine *engine = hutch_server_engine(client->all->server);
    struct reply *r;

    if (client->is_closing)
        return;
    hutch_client_use(client);
    client->is_closing = true;
    hutch_mcp_server_leave(client->server, NULL);
    if (client->stream && !client->has_failed)
        hutch_reply_end(client->stream); /* an orderly end */
    client->stream = NULL;
    while ((r = LIST_FIRST(&client->replies)))
        hutch_reply_break(r);
    if (client->kind == CLIENT_SINGLE)
        return;
    if (engine)
        hutch_mcp_sessions_close(&client->own, engine);
    else
        hutch_mcp_sessions_lose(&client->own, "the engine can run nothing any more");
}

void hutch_client_receive(struct http_client *client, const struct exchange *x, struct reply *r)
{
    struct handles *h = client->handles;

    if (h)
        h->x = x;
    hutch_mcp_server_receive(client->server, r, x->body.data ? x->body.data : "", x->body.len);
    if (h)
        h->x = NULL;
}

/* ---- turns of the loop ---- */

void *hutch_clients_open(struct server *server, const char *prefix, struct hutch_err *err)
{
    struct http_clients *all = calloc(1, sizeof(*all));

    if (!all) {
        hutch_err_set(err, ENOMEM, "begin");
        return NULL;
    }
    all->server = server;
    all->prefix = prefix;
    TAILQ_INIT(&all->busy);
    TAILQ_INIT(&all->idle);
    LIST_INIT(&all->handles);
    return all;
}

static double first_of(double a, double b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* A client of the newer era cancels by leaving. One of the older era may only have lost its connection: but it cannot
 * come back for the answer. */
static double leave_time(const struct reply *r)
{
    if (r->gone_ms <= 0)
        return -1;
    return r->gone_ms + (r->is_modern || r->client->stream == r ? 0 : CLIENT_GRACE_MS);
}

double hutch_clients_deadline(const void *state)
{
    const struct http_clients *all = state;
    const struct http_client *client;
    const struct reply *r;
    double first = -1;

    TAILQ_FOREACH(client, &all->busy, in_list) {
        first = first_of(first, hutch_mcp_server_deadline(client->server));
        LIST_FOREACH(r, &client->replies, in_client)
            first = first_of(first, leave_time(r));
        if (client->has_failed && !client->is_closing)
            first = 0;
    }
    if (!TAILQ_EMPTY(&all->idle))
        first = first_of(first, TAILQ_FIRST(&all->idle)->used_ms + CLIENT_IDLE_MS);
    return first;
}

/* One whose client has left for long enough. */
static struct reply *find_left(const struct http_client *client, double now_ms)
{
    struct reply *r;

    LIST_FOREACH(r, &client->replies, in_client)
        if (r->gone_ms > 0 && leave_time(r) <= now_ms)
            return r;
    return NULL;
}

static void leave_replies(struct http_client *client, double now_ms)
{
    struct reply *r;

    while (!client->is_closing && (r = find_left(client, now_ms))) {
        if (r == client->stream) {
            hutch_client_close(client);
            return;
        }
        r->gone_ms = 0;
        hutch_mcp_server_leave(client->server, r);
    }
}

/* A stream that waits for messages would keep the server from its end. */
static bool is_over(const struct http_client *client)
{
    return client->has_failed || (client->kind == CLIENT_STREAM && hutch_server_is_draining(client->all->server) &&
                                  hutch_mcp_server_calls(client->server) == 0);
}

static void rest(struct http_client *client)
{
    if (hutch_mcp_server_calls(client->server) > 0 || !LIST_EMPTY(&client->replies))
        return;
    if (client->kind == CLIENT_SINGLE || (client->is_closing && hutch_mcp_sessions_are_closed(&client->own))) {
        free_client(client);
        return;
    }
    if (client->is_closing)
        return;
    TAILQ_REMOVE(&client->all->busy, client, in_list);
    TAILQ_INSERT_TAIL(&client->all->idle, client, in_list);
    client->is_busy = false;
    client->used_ms = hutch_clock_ms();
}

static void lose_engine(struct http_clients *all)
{
    static const char why[] = "the engine can run nothing any more";
    struct http_client *client;
    struct handles *h;

    all->has_lost_engine = true;
    TAILQ_FOREACH(client, &all->busy, in_list)
        hutch_mcp_server_lose_engine(client->server, why);
    TAILQ_FOREACH(client, &all->idle, in_list)
        hutch_mcp_server_lose_engine(client->server, why);
    LIST_FOREACH(h, &all->handles, in_list)
        hutch_mcp_sessions_lose(&h->sessions, why);
}

void hutch_clients_tick(void *state)
{
    struct http_clients *all = state;
    struct http_client *client, *next;
    double now_ms;

    if (TAILQ_EMPTY(&all->busy) && TAILQ_EMPTY(&all->idle))
        return;
    now_ms = hutch_clock_ms();
    if (!all->has_lost_engine && !hutch_server_engine(all->server))
        lose_engine(all);
    for (client = TAILQ_FIRST(&all->busy); client; client = next) {
        next = TAILQ_NEXT(client, in_list);
        leave_replies(client, now_ms);
        if (hutch_mcp_server_calls(client->server) > 0)
            hutch_mcp_server_tick(client->server);
        if (is_over(client))
            hutch_client_close(client);
        rest(client);
    }
    while ((client = TAILQ_FIRST(&all->idle)) && client->used_ms + CLIENT_IDLE_MS <= now_ms)
        hutch_client_close(client);
}

void hutch_clients_close(void *state)
{
    struct http_clients *all = state;
    struct http_client *client;
    struct handles *h;

    while ((client = TAILQ_FIRST(&all->busy)) || (client = TAILQ_FIRST(&all->idle)))
        free_client(client);
    while ((h = LIST_FIRST(&all->handles))) {
        LIST_REMOVE(h, in_list);
        hutch_mcp_sessions_done(&h->sessions);
        free(h);
    }
    free(all);
}
