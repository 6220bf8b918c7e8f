#include "runtime/gateway/server.h"

#include "runtime/gateway/exchange_mhd.h"
#include "runtime/gateway/crew.h"
#include "runtime/gateway/keyed_run.h"
#include "runtime/gateway/notify.h"
#include "runtime/gateway/server_priv.h"
#include "runtime/gateway/session_stream.h"
#include "runtime/gateway/worker.h"
#include "runtime/gateway/workers.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#define HEADERS_MAX (32u << 10)  /* of a request, with MHD's own needs: more is status 431 */
#define SEND_SECONDS 60          /* a client that takes nothing of its answer for so long is left */
#define CANCEL_MS 10000          /* for what was cancelled to end */
#define RETRY_ACCEPT_MS 250      /* where descriptors ran out */
#define FLUSH_ROUNDS 1000        /* of MHD, for exchanges that were broken off */

_Static_assert(SERVER_BODY_LARGEST < SERVER_MAX_HELD / 2, "the largest body that can be allowed finds room");

/* ---- connections ---- */

static void stop_accepting(struct server *s)
{
    for (size_t i = 0; i < s->listeners.n; i++)
        hutch_poller_remove(&s->poller, &s->listeners.rows[i].watch);
    s->is_accepting = false;
}

/* Descriptors or memory ran out. */
static void accept_later(struct server *s)
{
    stop_accepting(s);
    s->accept_again_ms = hutch_clock_ms() + RETRY_ACCEPT_MS;
}

/* Connections that find no place wait in the kernel's queue. */
static void on_listener(void *owner, uint32_t events)
{
    struct listener *listener = owner;
    struct server *s = listener->owner;
    struct sockaddr_storage address = { .ss_family = AF_UNSPEC };
    socklen_t len = sizeof(address);
    int yes = 1, fd;

    (void)events;
    if (s->connections.n >= s->options->max_connections) {
        stop_accepting(s);
        return;
    }
    fd = accept4(listener->fd, (struct sockaddr *)&address, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            accept_later(s);
        return;
    }
    if (listener->is_tcp)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    if (len > sizeof(address))
        len = sizeof(address);
    MHD_add_connection(s->daemon, fd, (struct sockaddr *)&address, len); /* closes it when it cannot */
    hutch_server_wake(s);
}

static int start_accepting(struct server *s, struct hutch_err *err)
{
    for (size_t i = 0; i < s->listeners.n; i++) {
        struct listener *row = &s->listeners.rows[i];

        row->owner = s;
        row->watch.on_ready = on_listener;
        row->watch.owner = row;
        if (row->watch.fd < 0 && hutch_poller_add(&s->poller, &row->watch, row->fd, EPOLLIN, err) < 0)
            return -1;
    }
    s->is_accepting = true;
    return 0;
}

/* MHD_NotifyConnectionCallback. */
static void on_connection(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    const union MHD_ConnectionInfo *fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    const union MHD_ConnectionInfo *address = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    struct server *s = cls;

    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        /* Where it comes from is not known: then it is taken for the one that is checked more. */
        bool is_tcp = !address || !address->client_addr || address->client_addr->sa_family != AF_UNIX;

        struct connection *c = fd ? hutch_connection_create(&s->connections, fd->connect_fd, is_tcp) : NULL;

        if (c && s->crew)
            hutch_worker_describe(s, c, address ? address->client_addr : NULL);
        if (c && c->is_inner) /* the client may be slow, and the worker that has it looks to that */
            MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
        *context = c;
    } else {
        const struct connection *c = *context;

        if (c && c->is_cut)
            hutch_linger_take(&s->linger, c->fd);
        if (c && s->crew)
            hutch_worker_forget(s, c);
        hutch_connection_free(&s->connections, *context);
        *context = NULL;
    }
}

/* MHD_OPTION_URI_LOG_CALLBACK: the first line of a request is there. */
static void *on_request_line(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct server *s = cls;
    struct connection *c = info ? info->socket_context : NULL;

    if (c && c->phase == CONNECTION_IDLE)
        hutch_connection_enter(&s->connections, c, CONNECTION_HEADERS);
    if (c) {
        free(c->uri);
        c->uri = strdup(uri);
    }
    return NULL;
}

/* MHD_OPTION_UNESCAPE_CALLBACK: paths are decoded by runtime/gateway/uri.c, which refuses what MHD would pass. */
static size_t leave_escaped(void *cls, struct MHD_Connection *mhd, char *text)
{
    (void)cls;
    (void)mhd;
    return strlen(text);
}

void hutch_server_wake(struct server *s)
{
    s->daemon_is_due = true;
}

static void on_daemon(void *owner, uint32_t events)
{
    (void)events;
    hutch_server_wake(owner);
}

/* A worker is asked by the others, too, once for each of their clients. How many those are is the parent's to say. */
static unsigned connection_limit(const struct server *s)
{
    return s->options->max_connections * (s->crew ? 2 * s->place.n : 1) + 8;
}

static int start_daemon(struct server *s, struct hutch_err *err)
{
    const union MHD_DaemonInfo *info;

    s->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_ALLOW_UPGRADE, 0, NULL, NULL,
        hutch_exchange_hear, s,
        MHD_OPTION_NOTIFY_COMPLETED, hutch_exchange_on_completed, s, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
        MHD_OPTION_URI_LOG_CALLBACK, on_request_line, s, MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped, s,
        MHD_OPTION_CONNECTION_LIMIT, connection_limit(s), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)HEADERS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)SEND_SECONDS, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_END);
    info = s->daemon ? MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!info)
        return hutch_err_set(err, 0, "start libmicrohttpd");
    s->daemon_watch.on_ready = on_daemon;
    s->daemon_watch.owner = s;
    return hutch_poller_add(&s->poller, &s->daemon_watch, info->epoll_fd, EPOLLIN, err);
}

/* ---- the engine ---- */

static void drain(struct server *s, double within_ms)
{
    double until = hutch_clock_ms() + within_ms;

    if (s->is_draining) {
        s->drain_until_ms = until < s->drain_until_ms ? until : s->drain_until_ms;
        return;
    }
    s->is_draining = true;
    s->drain_until_ms = until;
    stop_accepting(s);
    hutch_listeners_done(&s->listeners);
    if (!s->crew) {
        hutch_notify("STOPPING=1");
        hutch_gateway_log_event(&s->log, "draining", NULL, NULL);
    }
    hutch_websockets_go_away(&s->websockets);
}

void hutch_server_drain(struct server *s)
{
    drain(s, s->is_draining ? 0 : (double)s->options->drain_ms);
}

static void on_engine(void *owner, uint32_t events)
{
    struct server *s = owner;
    struct hutch_error err;

    (void)events;
    if (hutch_engine_dispatch(s->engine, &err) == 0)
        return;
    s->has_failed = true; /* all runs have their results */
    hutch_err_set(&s->failure, 0, "%s", err.message);
    hutch_poller_remove(&s->poller, &s->engine_watch);
    hutch_gateway_log_event(&s->log, "engine failed", "message", err.message);
    drain(s, CANCEL_MS);
}

/* The pool: a zygote of which sandboxes are to be kept has one at least. */
static bool is_filled(struct server *s)
{
    struct hutch_engine_stats stats = { .size = sizeof(stats) };

    hutch_engine_get_stats(s->engine, &stats);
    for (size_t i = 0; i < stats.n_zygotes; i++)
        if (!stats.zygotes[i].is_ready || stats.zygotes[i].prepared == 0)
            return false;
    return stats.n_zygotes > 0;
}

bool hutch_server_is_ready(struct server *s)
{
    return s->was_ready && (!s->crew || s->are_all_ready) && !s->is_draining && !s->has_failed;
}

unsigned hutch_server_share(const struct server *s)
{
    unsigned max = s->options->engine->max_queued ? s->options->engine->max_queued : SERVER_MAX_QUEUED;

    return s->tokens.n > 1 ? (max + 1) / 2 : UINT32_MAX;
}

unsigned hutch_server_session_share(const struct server *s)
{
    unsigned max = s->options->engine->max_sessions ? s->options->engine->max_sessions : SERVER_MAX_SESSIONS;

    return s->tokens.n > 1 ? (max + 1) / 2 : UINT32_MAX;
}

const char *hutch_server_policy(const struct server *s, const struct token *token, const char *format,
                                struct hutch_limits *limits)
{
    const struct policy_row *row = hutch_policies_find(&s->policies, token ? token->name : NULL, format);

    if (limits && row)
        *limits = row->limits;
    else if (limits)
        hutch_engine_get_limits(s->engine, limits);
    return row ? row->policy : NULL;
}

const char *hutch_exchange_policy(const struct exchange *x, struct hutch_limits *limits)
{
    return hutch_server_policy(x->server, x->token, x->format->name, limits);
}

void hutch_server_count_run(struct server *s, const char *format, const struct hutch_result *result)
{
    hutch_metrics_add_run(&s->metrics, hutch_formats_index(&s->formats, format), result);
}

void hutch_server_count_cell(struct server *s, const char *format, const struct hutch_cell_result *result)
{
    hutch_metrics_add_cell(&s->metrics, hutch_formats_index(&s->formats, format), result);
}

struct hutch_engine *hutch_server_engine(const struct server *s)
{
    return s->has_failed ? NULL : s->engine;
}

int hutch_server_make_id(const struct server *s, char ret[ID_LEN + 1], struct hutch_err *err)
{
    return hutch_place_make_id(&s->place, ret, err);
}

int hutch_exchange_given_id(const struct exchange *x, char ret[ID_LEN + 1], struct hutch_err *err)
{
    const char *header = x->server->options->id_header;
    const char *given = x->is_inner ? hutch_exchange_header(x, PLACE_NAME_HEADER) : NULL;
    bool is_id;

    if (given || !header) {
        is_id = given && hutch_id_is(given);
        if (is_id)
            strcpy(ret, given);
        return is_id;
    }
    given = x->format->names_are_given ? NULL : hutch_exchange_header(x, header);
    if (!given)
        return 0;
    is_id = x->format->read_id ? x->format->read_id(given, ret) : hutch_id_is(given);
    if (is_id && !x->format->read_id)
        strcpy(ret, given);
    return is_id ? 1 : hutch_err_set(err, 0, "the name for the session is not %d letters, digits, '-' and '_'", ID_LEN);
}

const char *hutch_server_version(const struct server *s)
{
    return s->options->version;
}

bool hutch_server_is_draining(const struct server *s)
{
    return s->is_draining;
}

void *hutch_server_state(const struct exchange *x)
{
    return hutch_formats_state(&x->server->formats, x->format);
}

unsigned hutch_server_session_count(const struct server *s, const struct token *token)
{
    return hutch_gateway_sessions_count(&s->sessions, token);
}

static int open_engine(struct server *s, struct hutch_err *err)
{
    struct hutch_error error;

    if (hutch_engine_open(s->options->engine, &s->engine, &error) < 0)
        return hutch_err_set(err, 0, "%s", error.message);
    hutch_gateway_functions_init(&s->functions, s->engine, &s->log);
    if (hutch_gateway_functions_set(&s->functions, s->options->functions, s->options->n_functions, err) < 0 ||
        hutch_gateway_functions_await(&s->functions, err) < 0)
        return -1;
    s->engine_watch.on_ready = on_engine;
    s->engine_watch.owner = s;
    return hutch_poller_add(&s->poller, &s->engine_watch, hutch_engine_fd(s->engine), EPOLLIN, err);
}

/* ---- signals ---- */

/* What cannot be read changes nothing: a typing error in a file is not to lock everybody out. */
static int set_policies(struct server *s, const struct server_options *options, const struct tokens *tokens,
                        struct hutch_err *err)
{
    return hutch_policies_set(&s->policies, options->policies, options->n_policies, s->engine, tokens, &s->formats,
                              err);
}

/* Nothing has changed where something is wrong with them. */
static int take_options(struct server *s, const struct server_options *options, struct hutch_err *err)
{
    struct tokens tokens = TOKENS_INIT;
    int rc = options->tokens ? hutch_tokens_load(options->tokens, &tokens, err) : 0;

    if (rc == 0 && !s->has_failed)
        rc = set_policies(s, options, &tokens, err);
    hutch_tokens_done(&tokens);
    return rc == 0 && options->tokens ? hutch_tokens_reload(&s->tokens, options->tokens, err) : rc;
}

/* Of several workers, to which the same happens, the first one says it. */
static void log_once(struct server *s, const char *event, const char *key, const char *text)
{
    if (s->place.index == 0)
        hutch_gateway_log_event(&s->log, event, key, text);
}

static int read_again(struct server *s, struct hutch_err *err)
{
    struct server_options options = *s->options;
    char restart[256] = "";
    int rc;

    if (options.read_again && options.read_again(options.context, &options, restart, sizeof(restart), err) < 0)
        return -1;
    rc = take_options(s, &options, err);
    if (rc == 0) {
        s->own_options = options;
        s->options = &s->own_options;
    }
    if (options.read_again)
        options.settle(options.context, rc == 0);
    if (rc == 0 && restart[0])
        log_once(s, "restart needed", "options", restart);
    return rc;
}

void hutch_server_reload(struct server *s)
{
    struct hutch_err err;

    if (read_again(s, &err) < 0) {
        log_once(s, "reload failed", "message", err.msg);
        return;
    }
    if (!s->has_failed)
        hutch_gateway_functions_set(&s->functions, s->options->functions, s->options->n_functions, &err);
    s->log.fd = s->options->is_quiet ? -1 : STDERR_FILENO;
    log_once(s, "reloaded", NULL, NULL);
}

static void on_signal(void *owner, uint32_t events)
{
    struct server *s = owner;
    struct signalfd_siginfo info;

    (void)events;
    while (read(s->signal_fd, &info, sizeof(info)) == sizeof(info))
        if (info.ssi_signo == SIGHUP)
            hutch_server_reload(s);
        else
            hutch_server_drain(s);
}

static int watch_signals(struct server *s, struct hutch_err *err)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    signal(SIGPIPE, SIG_IGN); /* a client that has left is an error of write(2) */
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return hutch_err_set(err, errno, "block signals");
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->signal_fd < 0)
        return hutch_err_set(err, errno, "watch for signals");
    s->signal_watch.on_ready = on_signal;
    s->signal_watch.owner = s;
    return hutch_poller_add(&s->poller, &s->signal_watch, s->signal_fd, EPOLLIN, err);
}

/* ---- the loop ---- */

static void note_deadline(double *next, double at_ms)
{
    if (at_ms >= 0 && (*next < 0 || at_ms < *next))
        *next = at_ms;
}

/* How long there is nothing to do, in milliseconds; -1: until something comes. */
static int idle_time(struct server *s)
{
    double now = hutch_clock_ms(), next = -1;
    MHD_UNSIGNED_LONG_LONG daemon_ms;

    if (s->daemon_is_due)
        return 0;
    if (s->crew)
        note_deadline(&next, now + WORKER_TURN_MS);
    note_deadline(&next, hutch_connections_deadline(&s->connections));
    note_deadline(&next, hutch_linger_deadline(&s->linger));
    note_deadline(&next, hutch_silences_deadline(&s->silences));
    note_deadline(&next, hutch_formats_deadline(&s->formats));
    if (MHD_get_timeout(s->daemon, &daemon_ms) == MHD_YES)
        note_deadline(&next, now + (double)daemon_ms);
    if (s->is_draining)
        note_deadline(&next, s->drain_until_ms);
    else if (!s->is_accepting && s->connections.n < s->options->max_connections)
        note_deadline(&next, s->accept_again_ms);
    if (next < 0)
        return -1;
    return next <= now ? 0 : next - now > 60000 ? 60000 : (int)(next - now) + 1;
}

static void run_daemon(struct server *s)
{
    MHD_UNSIGNED_LONG_LONG ms;

    if (!s->daemon || s->is_within_daemon) /* what was answered is sent by it, or in the next round */
        return;
    if (!s->daemon_is_due && !(MHD_get_timeout(s->daemon, &ms) == MHD_YES && ms == 0))
        return;
    s->daemon_is_due = false;
    s->is_within_daemon = true;
    MHD_run(s->daemon);
    s->is_within_daemon = false;
}

void hutch_server_send(struct server *s)
{
    run_daemon(s);
}

static void note_readiness(struct server *s)
{
    if (s->was_ready || s->has_failed || !is_filled(s))
        return;
    s->was_ready = true;
    if (s->crew) {
        hutch_crew_tell(s->crew, s->place.index, CHANNEL_READY, NULL);
        return;
    }
    hutch_notify("READY=1");
    hutch_gateway_log_event(&s->log, "ready", NULL, NULL);
}

static void abort_all(struct server *s, bool only_waiting)
{
    struct exchange *x, *next;

    for (x = LIST_FIRST(&s->exchanges); x; x = next) {
        next = LIST_NEXT(x, in_list);
        if (!only_waiting)
            hutch_exchange_abort(x);
        else
            hutch_exchange_leave(x); /* its answer says that it was ended */
    }
}

/* True when all is over. */
static bool drain_on(struct server *s)
{
    if (!s->is_draining)
        return false;
    hutch_session_streams_release(s);
    if (LIST_EMPTY(&s->exchanges))
        return true;
    if (hutch_clock_ms() < s->drain_until_ms)
        return false;
    if (s->is_cancelled)
        return true;
    s->is_cancelled = true;
    s->drain_until_ms = hutch_clock_ms() + CANCEL_MS;
    abort_all(s, true);
    hutch_keyed_runs_cancel(s);
    return false;
}

static bool may_accept_again(const struct server *s)
{
    return !s->is_accepting && !s->is_draining && s->connections.n < s->options->max_connections &&
           hutch_clock_ms() >= s->accept_again_ms;
}

static int serve(struct server *s, struct hutch_err *err)
{
    while (!drain_on(s)) {
        if (hutch_poller_wait(&s->poller, idle_time(s), err) < 0)
            return -1;
        if (s->crew)
            hutch_worker_turn(s);
        run_daemon(s);
        hutch_formats_tick(&s->formats);
        hutch_silences_tick(&s->silences, hutch_clock_ms());
        hutch_connections_expire(&s->connections, hutch_clock_ms());
        hutch_linger_expire(&s->linger, hutch_clock_ms());
        note_readiness(s);
        if (may_accept_again(s) && start_accepting(s, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- beginning and end ---- */

/* Where its clients and orders come from. */
static int open_doors(struct server *s, struct hutch_err *err)
{
    if (s->crew)
        return hutch_worker_begin(s, err);
    if (hutch_listeners_open(&s->listeners, s->options->listen, err) < 0 || watch_signals(s, err) < 0)
        return -1;
    return hutch_listeners_may_open(&s->listeners, s->tokens.n > 0 || s->options->is_insecure, err);
}

static int begin(struct server *s, struct hutch_err *err)
{
    if (hutch_formats_choose(s->options->known_formats, s->options->formats, &s->formats, err) < 0)
        return -1;
    if (s->options->page && hutch_formats_add(&s->formats, s->options->page, "", err) < 0)
        return -1;
    if (s->options->tokens && hutch_tokens_load(s->options->tokens, &s->tokens, err) < 0)
        return -1;
    if (hutch_poller_open(&s->poller, err) < 0 || open_doors(s, err) < 0 || start_daemon(s, err) < 0 ||
        open_engine(s, err) < 0 || set_policies(s, s->options, &s->tokens, err) < 0 ||
        hutch_formats_open(&s->formats, s, err) < 0 || start_accepting(s, err) < 0)
        return -1;
    for (size_t i = 0; i < s->listeners.n; i++)
        hutch_gateway_log_event(&s->log, "listening", "address", s->listeners.rows[i].name);
    return 0;
}

/* MHD aborts the process when it is stopped with suspended connections: all are resumed before, to be closed. */
static void stop_daemon(struct server *s)
{
    if (!s->daemon)
        return;
    s->is_within_daemon = true;
    abort_all(s, false);
    for (int i = 0; i < FLUSH_ROUNDS; i++) {
        struct exchange *x;
        bool has_one = false;

        MHD_run(s->daemon);
        LIST_FOREACH(x, &s->exchanges, in_list) {
            has_one |= x->mhd != NULL;
            if (x->is_suspended)
                hutch_exchange_abort(x);
        }
        if (!has_one)
            break;
    }
    MHD_stop_daemon(s->daemon);
    s->daemon = NULL;
}

static void done(struct server *s)
{
    struct exchange *x;

    stop_daemon(s);
    hutch_linger_done(&s->linger);
    hutch_poller_remove(&s->poller, &s->engine_watch);
    hutch_engine_free(s->engine);
    hutch_gateway_functions_done(&s->functions);
    hutch_policies_done(&s->policies);
    while ((x = LIST_FIRST(&s->exchanges)))
        hutch_exchange_free(x);
    hutch_formats_close(&s->formats);
    hutch_gateway_sessions_done(&s->sessions);
    hutch_idempotency_done(&s->idempotency);
    hutch_listeners_done(&s->listeners);
    hutch_fd_closep(&s->signal_fd);
    hutch_poller_done(&s->poller);
    hutch_tokens_done(&s->tokens);
}

static int run(const struct server_options *options, struct crew *crew, struct place place, struct hutch_err *err)
{
    struct server s = { .options = options, .crew = crew, .place = place, .poller = POLLER_INIT,
                        .engine_watch = WATCH_INIT, .daemon_watch = WATCH_INIT, .signal_watch = WATCH_INIT,
                        .channel_watch = WATCH_INIT, .signal_fd = -1, .tokens = TOKENS_INIT,
                        .log = { .fd = options->is_quiet ? -1 : STDERR_FILENO } };
    bool has_begun;
    int rc;

    LIST_INIT(&s.exchanges);
    LIST_INIT(&s.sessions.list);
    s.sessions.place = place;
    hutch_idempotency_init(&s.idempotency, IDEMPOTENCY_ENTRIES, IDEMPOTENCY_BYTES, IDEMPOTENCY_AGE_MS);
    LIST_INIT(&s.websockets);
    hutch_connections_init(&s.connections, options->request_ms, options->idle_ms, hutch_exchange_on_late, &s);
    hutch_linger_init(&s.linger, &s.poller);
    has_begun = begin(&s, err) == 0;
    rc = has_begun ? serve(&s, err) : -1;
    if (rc == 0 && s.has_failed) {
        *err = s.failure;
        rc = -1;
    }
    done(&s);
    if (has_begun && !crew)
        hutch_gateway_log_event(&s.log, "stopped", NULL, NULL);
    return rc;
}

int hutch_server_run(const struct server_options *options, struct hutch_err *err)
{
    if (options->n_workers > 1)
        return hutch_workers_run(options, err);
    return run(options, NULL, (struct place){ 0, 0 }, err);
}

int hutch_server_work(const struct server_options *options, struct crew *crew, unsigned index, struct hutch_err *err)
{
    return run(options, crew, (struct place){ index, crew->n }, err);
}
