/* ws_handshake.h - the request that begins a WebSocket: RFC 6455, section 4.2. */
#ifndef HUTCH_GATEWAY_WS_HANDSHAKE_H
#define HUTCH_GATEWAY_WS_HANDSHAKE_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

#define WS_ACCEPT_LEN 28
#define WS_PROTOCOL "hutch.v1"
#define WS_TOKEN_PREFIX "hutch.token."

/* The headers that it has; NULL: it is not there. */
struct ws_handshake {
    const char *upgrade, *connection, *version, *key, *protocols;
};

/* Whether it asks for a WebSocket at all. */
bool hutch_ws_handshake_asks(const struct ws_handshake *h);
/* What Sec-WebSocket-Accept is to say. Errors: what makes it none. */
int hutch_ws_handshake_answer(const struct ws_handshake *h, char ret[WS_ACCEPT_LEN + 1], struct hutch_err *err);
/* Whether it offers WS_PROTOCOL, which is chosen then. */
bool hutch_ws_handshake_offers(const struct ws_handshake *h);
/* A page cannot send Authorization, so a token may be among the protocols: @to is "Bearer TOKEN" then. */
bool hutch_ws_handshake_token(const struct ws_handshake *h, char *to, size_t size);

#endif
