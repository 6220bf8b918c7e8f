#include "runtime/gateway/websocket.h"

#include "runtime/gateway/exchange_mhd.h"
#include "runtime/gateway/server_priv.h"
#include "runtime/gateway/ws_handshake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define TURN_MESSAGES 64    /* before others have their turn */
#define PONG_MAX (64u << 10) /* a client that is further behind gets no answer to its pings */
#define DISCARD_BLOCK 4096

/* ---- its end ---- */

static void tell_close(struct websocket *ws)
{
    if (ws->is_over)
        return;
    ws->is_over = true;
    ws->events->on_close(ws->owner);
}

/* Nothing more is sent or read. MHD closes the connection and then lets the exchange go. */
static void end(struct websocket *ws)
{
    struct server *s = ws->x->server;

    if (ws->is_over)
        return;
    hutch_poller_remove(&s->poller, &ws->watch);
    LIST_REMOVE(ws, in_list);
    ws->x->connection->on_due = NULL;
    hutch_connection_enter(&s->connections, ws->x->connection, CONNECTION_BUSY);
    ws->x->is_pending = false;
    tell_close(ws);
    MHD_upgrade_action(ws->upgrade, MHD_UPGRADE_ACTION_CLOSE);
    hutch_server_wake(s);
}

/* The exchange is freed. */
static void on_free(struct exchange *x)
{
    struct websocket *ws = x->websocket;

    tell_close(ws); /* where it was never opened */
    hutch_ws_reader_done(&ws->reader);
    hutch_text_done(&ws->out);
    free(ws->early);
}

static void on_gone(struct exchange *x)
{
    end(x->websocket);
}

/* ---- what is watched ---- */

static void watch_again(struct websocket *ws)
{
    uint32_t events = EPOLLRDHUP;
    struct hutch_err ignored;

    if (ws->is_over)
        return;
    if (ws->has_heard_close)
        events = 0; /* only what is to be sent is waited for, or an error */
    else if (!ws->is_paused)
        events |= EPOLLIN;
    if (ws->out.len > ws->n_sent || ws->wants_turn)
        events |= EPOLLOUT;
    if (events == ws->watched)
        return;
    ws->watched = events;
    if (hutch_poller_change(&ws->x->server->poller, &ws->watch, events, &ignored) < 0)
        end(ws);
}

/* ---- sending ---- */

size_t hutch_websocket_backlog(const struct websocket *ws)
{
    return ws->out.len - ws->n_sent;
}

static void forget_sent(struct websocket *ws)
{
    if (ws->n_sent == ws->out.len) {
        hutch_text_done(&ws->out);
        ws->n_sent = 0;
    } else if (ws->n_sent > ws->out.len / 2) {
        memmove(ws->out.data, ws->out.data + ws->n_sent, ws->out.len - ws->n_sent);
        ws->out.len -= ws->n_sent;
        ws->n_sent = 0;
    }
}

static void on_all_sent(struct websocket *ws)
{
    if (!ws->has_sent_close)
        ws->events->on_drained(ws->owner);
    else if (ws->has_heard_close)
        end(ws);
    else if (ws->is_deaf)
        shutdown(ws->fd, SHUT_WR); /* the connection's end comes after the reason; unread bytes would be a reset */
}

static void flush(struct websocket *ws)
{
    while (!ws->is_over && ws->out.len > ws->n_sent) {
        ssize_t n = send(ws->fd, ws->out.data + ws->n_sent, ws->out.len - ws->n_sent, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {
            end(ws);
            return;
        }
        ws->n_sent += (size_t)n;
        ws->x->n_out += (uint64_t)n;
        hutch_exchange_let_go(ws->x, (size_t)n);
        forget_sent(ws);
        if (ws->out.len == 0)
            on_all_sent(ws);
    }
    watch_again(ws);
}

static void queue_close(struct websocket *ws, enum ws_code code, const char *reason)
{
    size_t before = ws->out.len;

    ws->has_sent_close = true;
    hutch_ws_write_close(&ws->out, code, reason);
    if (ws->out.is_broken || !hutch_exchange_hold(ws->x, ws->out.len - before)) {
        end(ws);
        return;
    }
    hutch_connection_enter(&ws->x->server->connections, ws->x->connection, CONNECTION_CLOSING);
}

static void queue_message(struct websocket *ws, enum ws_opcode opcode, const char *data, size_t len)
{
    size_t before = ws->out.len;

    hutch_ws_write(&ws->out, opcode, data, len);
    if (ws->out.is_broken) {
        hutch_text_done(&ws->out);
        ws->n_sent = 0;
        end(ws);
    } else if (!hutch_exchange_hold(ws->x, ws->out.len - before)) {
        ws->out.len = before;
        hutch_websocket_close(ws, WS_CODE_TRY_LATER, "the server holds as much of requests and answers as it may");
    }
}

void hutch_websocket_send(struct websocket *ws, enum ws_opcode opcode, const char *data, size_t len)
{
    bool was_empty = ws->out.len == 0;

    if (ws->is_over || ws->has_sent_close)
        return;
    queue_message(ws, opcode, data, len);
    if (was_empty)
        flush(ws);
}

void hutch_websocket_close(struct websocket *ws, enum ws_code code, const char *reason)
{
    if (ws->is_over || ws->has_sent_close)
        return;
    queue_close(ws, code, reason);
    hutch_websocket_pause(ws, false); /* the client's answer is wanted */
    flush(ws);
}

void hutch_websockets_go_away(struct websocket_list *all)
{
    struct websocket *ws, *next;

    for (ws = LIST_FIRST(all); ws; ws = next) {
        next = LIST_NEXT(ws, in_list);
        hutch_websocket_close(ws, WS_CODE_GOING_AWAY, "the server is shutting down");
    }
}

/* ---- reading ---- */

/* For struct ws_reader. The connection's end is seen by epoll(7), too. */
static ssize_t receive(void *owner, void *to, size_t len)
{
    struct websocket *ws = owner;
    size_t left = ws->n_early - ws->n_early_read;
    ssize_t n;

    if (left > 0) {
        n = (ssize_t)(left < len ? left : len);
        memcpy(to, ws->early + ws->n_early_read, (size_t)n);
        ws->n_early_read += (size_t)n;
    } else {
        n = recv(ws->fd, to, len, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            end(ws);
    }
    if (n > 0) {
        ws->was_heard = true;
        ws->x->n_in += (uint64_t)n;
    }
    return n;
}

static void take_close(struct websocket *ws, const struct ws_message *m)
{
    ws->has_heard_close = true;
    if (!ws->has_sent_close)
        queue_close(ws, m->code == WS_CODE_NONE ? WS_CODE_NORMAL : (enum ws_code)m->code, "");
    if (!ws->is_over && hutch_websocket_backlog(ws) == 0)
        end(ws);
    else
        flush(ws);
}

static void take_message(struct websocket *ws, const struct ws_message *m)
{
    if (m->opcode == WS_CLOSE)
        take_close(ws, m);
    else if (ws->has_sent_close || m->opcode == WS_PONG)
        return;
    else if (m->opcode == WS_TEXT)
        ws->events->on_text(ws->owner, m->data, m->len);
    else if (m->opcode == WS_BINARY)
        ws->events->on_binary(ws->owner, m->data, m->len);
    else if (hutch_websocket_backlog(ws) < PONG_MAX)
        hutch_websocket_send(ws, WS_PONG, m->data, m->len);
}

static void refuse(struct websocket *ws, enum ws_code code)
{
    static const char *const usual = "this is not as RFC 6455 has it";

    ws->is_deaf = true;
    hutch_websocket_close(ws, code, code == WS_CODE_TOO_LARGE ? "a text message has 16 KiB at most" :
                                    code == WS_CODE_NO_UTF8 ? "a text is not UTF-8" : usual);
}

static void discard(struct websocket *ws)
{
    char block[DISCARD_BLOCK];

    receive(ws, block, sizeof(block));
}

static void read_messages(struct websocket *ws)
{
    struct ws_message message;
    enum ws_code code;

    ws->wants_turn = false;
    for (int i = 0; !ws->is_over && !ws->is_paused && !ws->is_deaf && !ws->has_heard_close; i++) {
        enum ws_read rc;

        if (i == TURN_MESSAGES) {
            ws->wants_turn = true;
            return;
        }
        rc = hutch_ws_reader_next(&ws->reader, &message, &code);
        ws->wants_turn = rc == WS_READ_TURN;
        if (rc == WS_READ_NOTHING || rc == WS_READ_TURN || ws->is_over)
            return;
        if (rc == WS_READ_REFUSED)
            refuse(ws, code);
        else
            take_message(ws, &message);
    }
    if (ws->is_deaf && !ws->is_over)
        discard(ws);
}

void hutch_websocket_pause(struct websocket *ws, bool is_paused)
{
    if (ws->is_paused && !is_paused)
        ws->wants_turn = true;
    ws->is_paused = is_paused;
    watch_again(ws);
}

/* ---- its life ---- */

static void on_ready(void *owner, uint32_t events)
{
    struct websocket *ws = owner;

    if (!ws->is_open) {
        ws->is_open = true;
        ws->events->on_open(ws->owner);
        ws->wants_turn = true;
    }
    if (events & EPOLLOUT)
        flush(ws);
    if (ws->is_over)
        return;
    if (ws->is_paused && events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        end(ws);
    else
        read_messages(ws);
    watch_again(ws);
}

/* struct connection's. */
static void on_due(void *owner)
{
    struct websocket *ws = owner;

    if (ws->has_sent_close) {
        end(ws);
    } else if (ws->was_heard || ws->is_paused) {
        ws->was_heard = ws->was_pinged = false;
    } else if (ws->was_pinged) {
        end(ws); /* it has not answered: the client is gone, and nothing has told so */
    } else {
        ws->was_pinged = true;
        hutch_websocket_send(ws, WS_PING, "", 0);
    }
}

/* MHD_UpgradeHandler. What there is to do is done by the loop, outside of MHD. */
static void on_upgrade(void *cls, struct MHD_Connection *mhd, void *context, const char *early, size_t n_early,
                       MHD_socket fd, struct MHD_UpgradeResponseHandle *upgrade)
{
    struct websocket *ws = cls;
    struct server *s = ws->x->server;
    struct hutch_err ignored;

    (void)mhd;
    (void)context;
    ws->upgrade = upgrade;
    ws->fd = fd;
    LIST_INSERT_HEAD(&s->websockets, ws, in_list);
    hutch_exchange_wait(ws->x, on_gone);
    ws->x->connection->on_due = on_due;
    ws->x->connection->owner = ws;
    hutch_connection_enter(&s->connections, ws->x->connection, CONNECTION_UPGRADED);
    ws->early = n_early ? malloc(n_early) : NULL;
    if (ws->early)
        memcpy(ws->early, early, n_early);
    ws->n_early = ws->early ? n_early : 0;
    ws->watch.on_ready = on_ready;
    ws->watch.owner = ws;
    ws->watched = EPOLLIN | EPOLLOUT | EPOLLRDHUP; /* it can be written to at once, so on_ready() comes */
    if ((n_early && !ws->early) || hutch_poller_add(&s->poller, &ws->watch, fd, ws->watched, &ignored) < 0)
        end(ws);
    else if (s->is_draining)
        hutch_websocket_close(ws, WS_CODE_GOING_AWAY, "the server is shutting down");
}

static struct ws_handshake handshake_of(const struct exchange *x)
{
    return (struct ws_handshake){ .upgrade = hutch_exchange_header(x, "Upgrade"),
                                  .connection = hutch_exchange_header(x, "Connection"),
                                  .version = hutch_exchange_header(x, "Sec-WebSocket-Version"),
                                  .key = hutch_exchange_header(x, "Sec-WebSocket-Key"),
                                  .protocols = hutch_exchange_header(x, "Sec-WebSocket-Protocol") };
}

bool hutch_websocket_is_asked(struct exchange *x)
{
    struct ws_handshake handshake = handshake_of(x);
    char answer[WS_ACCEPT_LEN + 1];
    struct hutch_err err;

    if (!hutch_ws_handshake_asks(&handshake) || strcmp(x->method, "GET") != 0) {
        hutch_exchange_refuse(x, GATEWAY_UPGRADE_REQUIRED, "this path is for a WebSocket");
        hutch_exchange_add_header(x, "Upgrade", "websocket");
    } else if (hutch_ws_handshake_answer(&handshake, answer, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_UPGRADE_REQUIRED, "%s", err.msg);
        hutch_exchange_add_header(x, "Sec-WebSocket-Version", "13");
    }
    return x->status == 0;
}

bool hutch_websocket_accept(struct websocket *ws, struct exchange *x, const struct websocket_events *events,
                            void *owner)
{
    struct ws_handshake handshake = handshake_of(x);
    char answer[WS_ACCEPT_LEN + 1];
    struct hutch_err err;

    *ws = (struct websocket){ .x = x, .events = events, .owner = owner, .fd = -1, .watch = WATCH_INIT };
    x->websocket = ws;
    x->on_free = on_free;
    hutch_ws_reader_init(&ws->reader, receive, ws);
    if (hutch_ws_handshake_answer(&handshake, answer, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for a WebSocket");
        return false;
    }
    hutch_exchange_upgrade(x, on_upgrade, ws);
    hutch_exchange_add_header(x, "Upgrade", "websocket");
    hutch_exchange_add_header(x, "Sec-WebSocket-Accept", answer);
    if (hutch_ws_handshake_offers(&handshake))
        hutch_exchange_add_header(x, "Sec-WebSocket-Protocol", WS_PROTOCOL);
    return true;
}
