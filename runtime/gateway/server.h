/* server.h - `hutch serve`: one engine behind HTTP, in one thread and one loop. */
#ifndef HUTCH_GATEWAY_SERVER_H
#define HUTCH_GATEWAY_SERVER_H

#include "runtime/gateway/format.h"
#include "runtime/gateway/functions.h"
#include "runtime/gateway/policies.h"
#include "runtime/hutch.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Nothing is owned; all of it lives until hutch_server_run() returns, or until read_again() gives others. */
struct server_options {
    const struct hutch_engine_options *engine;
    const char *const *listen;  /* addresses, ends with NULL; none: inherited ones, else the default socket */
    const struct format *const *known_formats; /* besides the native one; ends with NULL */
    const char *version;        /* of hutch */
    const char *settings;       /* of its sandboxes, for hutch itself: local_peer.h; NULL: it gets nothing special */
    const char *const *formats; /* which of them, and where: hutch_formats_choose() */
    const struct format *page;  /* for browsers, which may then ask from this server's own origin; NULL: none */
    const char *tokens;         /* path; NULL: nobody has to say who asks */
    bool is_insecure;           /* TCP without tokens */
    const char *const *hosts;   /* names that a Host header may have besides addresses and localhost; ends with NULL */
    const char *const *origins; /* of pages that may ask; ends with NULL */
    const char *id_header;      /* of requests that open a session: the name that it is to have; NULL: none has */
    uint64_t max_body;          /* bytes */
    unsigned max_connections;
    unsigned n_workers;         /* processes, each with an engine; 0 and 1: this one */
    uint64_t request_ms, idle_ms; /* connection.h */
    uint64_t drain_ms;          /* what runs may go on for so long after SIGTERM */
    bool is_quiet;              /* no log */
    bool logs_code;             /* the log has the beginning of programs and cells */
    const struct function_source *functions;
    size_t n_functions;         /* FUNCTIONS_MAX at most */
    const struct policy_rule *policies; /* of tokens and formats */
    size_t n_policies;
    /* On SIGHUP: the options as they are said now. What cannot be changed while the server runs is as it was, and named
     * in @ret_restart, which is not empty then. Errors: what is wrong with them; nothing changes. NULL: they never
     * change. settle() follows: the server has them, and those before can go; or it has not. */
    int (*read_again)(void *context, struct server_options *ret, char *ret_restart, size_t restart_size,
                      struct hutch_err *err);
    void (*settle)(void *context, bool is_taken);
    void *context;
};

#define SERVER_BODY_USUAL (16u << 20)
#define SERVER_BODY_LARGEST (200u << 20)
#define SERVER_MAX_CONNECTIONS 1024
#define SERVER_MAX_QUEUED 1024   /* hutch.h */
#define SERVER_MAX_SESSIONS 1024 /* likewise */
#define SERVER_REQUEST_MS 15000
#define SERVER_IDLE_MS 75000
#define SERVER_DRAIN_MS 30000

struct crew;

/* Serves until SIGTERM or SIGINT, and then until what runs is over or drain_ms have passed; a second signal does not
 * wait. -1: it could not begin, or the engine can run nothing any more. */
int hutch_server_run(const struct server_options *options, struct hutch_err *err);
/* The same as worker @index of @crew: workers.h. */
int hutch_server_work(const struct server_options *options, struct crew *crew, unsigned index, struct hutch_err *err);

#endif
