/* client.h - the clients of the Model Context Protocol that come by HTTP, and what each has.
 *
 * A client of the older era has a name, which it says in a header, or a stream of its own, and interpreters that end
 * with it. In the newer era a request is a client by itself; interpreters are found by their handles then, among those
 * of its token. */
#ifndef HUTCH_MCP_HTTP_CLIENT_H
#define HUTCH_MCP_HTTP_CLIENT_H

#include "runtime/mcp/session.h"
#include "runtime/text/ids.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

struct exchange;
struct mcp_face;
struct mcp_post;
struct mcp_server;
struct reply;
struct server;
struct token;

#define CLIENTS_MAX 1024
#define CLIENT_IDLE_MS (60 * 60000.0)    /* of the older era, without a request: then it has ended */
#define CLIENT_GRACE_MS 5000             /* likewise, that a call goes on for when nobody waits for its answer */
#define CLIENT_HANDLES_MAX 64            /* interpreters of a token that are found by handles */

enum client_kind {
    CLIENT_NAMED,  /* streamable HTTP, the older era */
    CLIENT_STREAM, /* HTTP+SSE: it ends with its stream */
    CLIENT_SINGLE, /* the newer era: one request */
};

/* The places that sessions take of a token's share. */
struct places {
    struct http_clients *all;
    struct token *token;  /* NULL: nobody counts */
    struct handles *handles; /* whose places they are; NULL: a client's */
    unsigned n, reserved; /* sessions; so many places are taken in any case */
};

/* The interpreters that requests of a token find by handles. */
struct handles {
    LIST_ENTRY(handles) in_list;
    struct places places;
    struct mcp_sessions sessions;
    const struct exchange *x; /* whose message is being received; NULL: none is */
};

struct http_client {
    TAILQ_ENTRY(http_client) in_list;
    struct http_clients *all;
    enum client_kind kind;
    char id[ID_LEN + 1];            /* "" of a single one */
    const struct token *owner;      /* NULL where nobody has to say who asks */
    struct places places;
    struct mcp_sessions own;        /* not of a single one */
    struct handles *handles;        /* of a single one; NULL: it is none */
    struct mcp_server *server;      /* owned */
    LIST_HEAD(, reply) replies;     /* that wait for something; a stream's own among them */
    struct reply *stream;           /* of CLIENT_STREAM; NULL: it is gone */
    bool is_busy;                   /* in that list */
    bool is_closing;                /* nobody finds it any more; it waits for the ends of its sessions */
    bool has_failed;                /* memory was short, or its stream is cut */
    double used_ms;
};
TAILQ_HEAD(client_list, http_client);

struct http_clients {
    struct server *server;
    const char *prefix;             /* of the format's paths */
    struct client_list busy, idle;  /* the second in the order of their last use */
    unsigned n;                     /* not counting single ones */
    LIST_HEAD(, handles) handles;
    bool has_lost_engine;
};

/* The functions of struct format_state. */
void *hutch_clients_open(struct server *server, const char *prefix, struct hutch_err *err);
double hutch_clients_deadline(const void *state);
void hutch_clients_tick(void *state);
void hutch_clients_close(void *state);

/* NULL: the exchange was refused. */
struct http_client *hutch_client_create(struct http_clients *all, struct exchange *x, enum client_kind kind,
                                        const struct mcp_face *face);
/* That of the exchange's token with this name; one that has ended, another one's and one that never was take the same
 * time. */
struct http_client *hutch_client_find(const struct http_clients *all, const struct exchange *x, enum client_kind kind,
                                      const char *id);
/* The body of @x. @r: that waits for what answers it; NULL: the client's stream has that. */
void hutch_client_receive(struct http_client *client, const struct exchange *x, struct reply *r);
/* Its calls are cancelled, and its sessions ended. It is freed later. */
void hutch_client_close(struct http_client *client);
/* It has something to do. */
void hutch_client_use(struct http_client *client);

#endif
