/* server_priv.h - the server as its own room sees it, for the calls that it has. */
#ifndef HUTCH_MCP_SERVER_PRIV_H
#define HUTCH_MCP_SERVER_PRIV_H

#include "runtime/mcp/call.h"
#include "runtime/mcp/server.h"

#include <sys/queue.h>

struct mcp_server {
    const struct mcp_transport *transport;
    void *owner;
    const struct mcp_face *face;
    struct mcp_sessions *sessions;
    const char *version;       /* of hutch */
    const char *legacy;        /* the revision that "initialize" agreed on; NULL: it has not come */
    LIST_HEAD(, mcp_call) calls;
    unsigned n_calls;
};

/* Sends what is in @t, and empties it. @kind: as in the transport. */
void hutch_mcp_server_send(struct mcp_server *server, void *exchange, int kind, struct text_buffer *t);

#endif
