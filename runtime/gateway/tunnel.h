/* tunnel.h - a WebSocket whose end another worker has: its bytes pass through as they are. */
#ifndef HUTCH_GATEWAY_TUNNEL_H
#define HUTCH_GATEWAY_TUNNEL_H

struct exchange;
struct inner;
struct tunnel;

/* The other worker has answered with status 101: so does this one. Takes the socket of @inner. NULL: the exchange is
 * broken off. */
struct tunnel *hutch_tunnel_begin(struct exchange *x, struct inner *inner);
/* With the exchange; NULL is fine. */
void hutch_tunnel_free(struct tunnel *t);

#endif
