/* websocket.h - one WebSocket, from the request that asks for it to the end of its connection.
 *
 *     asked -> accept -> on_open -> [ on_binary, on_text, send ]* -> close, or the client's end -> on_close
 *
 * It belongs to its exchange, which lives until MHD has closed the connection. Nothing waits: what the client does not
 * take is kept, and whoever sends looks at hutch_websocket_backlog() and stops. */
#ifndef HUTCH_GATEWAY_WEBSOCKET_H
#define HUTCH_GATEWAY_WEBSOCKET_H

#include "runtime/gateway/poller.h"
#include "runtime/gateway/ws_reader.h"
#include "runtime/text/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct exchange;
struct MHD_UpgradeResponseHandle;

struct websocket_events {
    void (*on_open)(void *owner);
    void (*on_binary)(void *owner, const char *data, size_t len); /* a piece */
    void (*on_text)(void *owner, const char *text, size_t len);   /* a whole message, valid UTF-8 */
    void (*on_drained)(void *owner); /* the client has taken all that was sent */
    void (*on_close)(void *owner);   /* exactly once, also where on_open never came: nothing more is told */
};

struct websocket {
    LIST_ENTRY(websocket) in_list;
    struct exchange *x;
    const struct websocket_events *events;
    void *owner;
    struct MHD_UpgradeResponseHandle *upgrade; /* NULL: the handshake's answer has not been sent */
    int fd;                    /* MHD's */
    struct watch watch;
    uint32_t watched;          /* events */
    struct ws_reader reader;
    char *early;               /* owned; what came with the request */
    size_t n_early, n_early_read;
    struct text_buffer out;    /* sent up to n_sent */
    size_t n_sent;
    bool is_open;              /* on_open was called */
    bool is_over;              /* on_close was called */
    bool is_paused;            /* nothing is read */
    bool wants_turn;           /* there may be more to read than epoll(7) tells */
    bool was_heard, was_pinged; /* since the last tick */
    bool has_sent_close, has_heard_close;
    bool is_deaf;              /* what comes is no WebSocket any more, and is read for nothing */
};
LIST_HEAD(websocket_list, websocket);

/* Whether the request asks for a WebSocket as RFC 6455 has it; else it is refused. */
bool hutch_websocket_is_asked(struct exchange *x);
/* After that: answers the request. @ws is in x->work, and stays in place until the exchange is freed. False: it was
 * refused. */
bool hutch_websocket_accept(struct websocket *ws, struct exchange *x, const struct websocket_events *events,
                            void *owner);

/* WS_TEXT or WS_BINARY. Dropped once it was closed. */
void hutch_websocket_send(struct websocket *ws, enum ws_opcode opcode, const char *data, size_t len);
/* Bytes that the client has not taken. */
size_t hutch_websocket_backlog(const struct websocket *ws);
/* Nothing is read from the client, or it is again. */
void hutch_websocket_pause(struct websocket *ws, bool is_paused);
/* Begins the close handshake: nothing is told of what comes, and on_close follows. */
void hutch_websocket_close(struct websocket *ws, enum ws_code code, const char *reason);

/* The server ends: all are closed with WS_CODE_GOING_AWAY. */
void hutch_websockets_go_away(struct websocket_list *all);

#endif
