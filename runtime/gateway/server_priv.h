/* server_priv.h - the server as its own room sees it. Only runtime/gateway/server.c changes its state. */
#ifndef HUTCH_GATEWAY_SERVER_PRIV_H
#define HUTCH_GATEWAY_SERVER_PRIV_H

#include "runtime/gateway/connection.h"
#include "runtime/gateway/exchange.h"
#include "runtime/gateway/idempotency.h"
#include "runtime/gateway/format.h"
#include "runtime/gateway/functions.h"
#include "runtime/gateway/host.h"
#include "runtime/gateway/linger.h"
#include "runtime/gateway/listen.h"
#include "runtime/gateway/log.h"
#include "runtime/gateway/metrics.h"
#include "runtime/gateway/place.h"
#include "runtime/gateway/poller.h"
#include "runtime/gateway/server.h"
#include "runtime/gateway/sessions.h"
#include "runtime/gateway/token.h"
#include "runtime/gateway/websocket.h"

/* What bodies, answers and streams may take together. */
#define SERVER_MAX_HELD (512u << 20)

struct MHD_Daemon;
struct crew;

struct server {
    const struct server_options *options; /* the caller's, and after a reload these: */
    struct server_options own_options;
    struct hutch_engine *engine; /* owned */
    struct MHD_Daemon *daemon;   /* owned */
    struct poller poller;
    struct watch engine_watch, daemon_watch, signal_watch, channel_watch;
    int signal_fd;               /* owned */
    struct crew *crew;           /* not owned; NULL: this process serves alone */
    struct place place;
    bool are_all_ready;          /* the workers */
    struct listeners listeners;
    struct formats formats;
    bool is_accepting;           /* the listeners are watched */
    double accept_again_ms;      /* not before, where they are not */
    struct tokens tokens;
    struct connections connections;
    struct lingering linger;
    struct silences silences;
    struct exchange_list exchanges;
    struct sessions sessions;
    struct gateway_functions functions;
    struct policies policies;
    struct idempotency idempotency;
    struct websocket_list websockets;
    struct metrics metrics;
    struct gateway_log log;
    size_t n_held;               /* bytes of memory, of all exchanges */
    bool was_ready;              /* the pool has been filled since the start */
    bool daemon_is_due;
    bool is_within_daemon;       /* MHD is not called from its own callbacks */
    bool is_draining;
    double drain_until_ms;       /* what still runs is cancelled then */
    bool is_cancelled;           /* … and was */
    bool has_failed;             /* the engine */
    struct hutch_err failure;
};

/* MHD has something to do that no descriptor tells: libmicrohttpd 0.9.75 says nothing of connections that were resumed
 * from outside of its callbacks. */
void hutch_server_wake(struct server *s);
/* As the signals SIGHUP and SIGTERM say. */
void hutch_server_reload(struct server *s);
void hutch_server_drain(struct server *s);
/* Whether the pool has been filled, and requests are taken. */
bool hutch_server_is_ready(struct server *s);
/* How many runs of one token may be under way, so that no other one is kept out. */
unsigned hutch_server_share(const struct server *s);

#endif
