/* server.h - the Model Context Protocol for one client, whatever carries its messages: a message goes in, and messages
 * come out by a table of functions of the transport.
 *
 * Both eras are served, and which one is said by each request. The older revisions open with "initialize" and then
 * have a version for all that follows; the newer one names its version in every request's _meta.
 *
 *     create -> [ receive -> (send*, end) ]* -> free          when deadline() is due: tick()
 *
 * An EXCHANGE is what the transport gives with a message and gets back with all that answers it: the response of one
 * HTTP request, say. On one stream, such as standard output, there is no need for it. */
#ifndef HUTCH_MCP_SERVER_H
#define HUTCH_MCP_SERVER_H

#include "runtime/mcp/session.h"
#include "runtime/text/json_view.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

struct hutch_engine;
struct mcp_face;
struct mcp_server;

#define MCP_MODERN_VERSION "2026-07-28"
#define MCP_MAX_CALLS 32 /* of a client, that run or wait */

/* What a message is that the server sends; else the code of the error that it is, from rpc.h. */
#define MCP_RESULT 0
#define MCP_NOTIFICATION 1

struct mcp_transport {
    /* One message: JSON without a line end. */
    void (*send)(void *owner, void *exchange, int kind, const char *json, size_t len);
    /* Nothing more comes for @exchange: its request was answered or cancelled, or it had none. Of an array of messages:
     * once for each. */
    void (*end)(void *owner, void *exchange);
    /* The client is slow to read: progress is left out, and what can wait is not begun. */
    bool (*is_behind)(void *owner);
    /* The engine, which may be opened now; NULL with *err. */
    struct hutch_engine *(*engine)(void *owner, struct hutch_err *err);
    /* Memory was short: messages are lost, and the client has to be let go. */
    void (*fail)(void *owner);
};

/* All that is passed lives until hutch_mcp_server_free(). @version: of hutch. NULL on ENOMEM. */
struct mcp_server *hutch_mcp_server_create(const struct mcp_transport *transport, void *owner,
                                           const struct mcp_face *face, struct mcp_sessions *sessions,
                                           const char *version);
/* Without calling back. The engine was freed before, or has no cell of the client's. */
void hutch_mcp_server_free(struct mcp_server *server);

/* One message, or an array of them from a client of the revision that has these. Whatever is wrong with it is answered
 * by a message. */
void hutch_mcp_server_receive(struct mcp_server *server, void *exchange, const char *text, size_t len);
/* Of how many messages @value, a text that was checked, is an array: so often is end() called for it. 0: it is taken
 * for one message. */
size_t hutch_mcp_server_count(const struct mcp_server *server, struct json_view value);
/* A message was longer than RPC_MAX_BYTES, and was not read. */
void hutch_mcp_server_refuse_long(struct mcp_server *server, void *exchange);

/* When hutch_mcp_server_tick() is due, in milliseconds of the clock; negative: never. */
double hutch_mcp_server_deadline(const struct mcp_server *server);
/* Also when the client has read, and is not behind any more. */
void hutch_mcp_server_tick(struct mcp_server *server);

/* The older revision that "initialize" has agreed on; NULL: none. */
const char *hutch_mcp_server_version(const struct mcp_server *server);
bool hutch_mcp_is_legacy_version(const char *version);
/* How many calls run or wait. */
unsigned hutch_mcp_server_calls(const struct mcp_server *server);
/* Whoever waits for the answers of @exchange has gone: its calls are cancelled. NULL: all calls. */
void hutch_mcp_server_leave(struct mcp_server *server, const void *exchange);

/* The engine is about to be freed: calls that run are answered by @why. */
void hutch_mcp_server_lose_engine(struct mcp_server *server, const char *why);

#endif
