#include "runtime/gateway/workers.h"

#include "runtime/gateway/crew.h"
#include "runtime/gateway/listen.h"
#include "runtime/gateway/log.h"
#include "runtime/gateway/notify.h"
#include "runtime/gateway/poller.h"
#include "runtime/gateway/server.h"
#include "runtime/gateway/token.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define RETRY_MS 20         /* where there was no place for a connection */
#define LOOK_MS 1000        /* between two looks whether the workers' loops turn */
#define MAX_STILL 60        /* such looks, and then it hangs */
#define MAX_RESTARTS 8      /* within RESTARTS_MS: more is no accident */
#define RESTARTS_MS 60000
#define KILL_MS 20000       /* after the time that they have to end */
#define EXIT_FAILED 125

struct worker {
    struct workers *all;
    unsigned index;
    pid_t pid;              /* 0: there is none */
    int pid_fd;             /* owned; pidfd_open(2) */
    struct watch watch;
    bool is_ready;
    unsigned turns, n_still; /* as they were at the last look */
    unsigned due[CHANNEL_KIND_COUNT]; /* orders that its channel had no place for yet */
};

struct workers {
    const struct server_options *options;  /* of the server */
    struct server_options own;             /* of each worker: its share */
    struct hutch_engine_options engine;
    struct poller poller;
    struct listeners listeners;
    struct watch signal_watch, channel_watch;
    int signal_fd;                         /* owned */
    struct crew crew;
    struct worker list[WORKERS_MAX];
    unsigned n;
    struct gateway_log log;
    int waiting_fd;                        /* owned; a connection that no worker had a place for */
    bool waiting_is_tcp;
    double look_ms, accept_ms, kill_ms;    /* when it is due */
    double first_restart_ms;
    unsigned n_restarts;
    bool is_accepting, was_ready, was_reloaded, is_ending;
    struct hutch_err failure;              /* why it ends; errnum and msg empty: it was told to */
};

/* ---- one worker ---- */

static void start_worker(struct worker *w);

/* False: its channel is full. */
static bool send_due(struct worker *w)
{
    for (unsigned kind = 0; kind < CHANNEL_KIND_COUNT; kind++)
        for (; w->due[kind]; w->due[kind]--) {
            struct channel_message message = { .kind = kind };

            if (hutch_channel_send(&w->all->crew.workers[w->index], &message, -1) < 0)
                return false;
        }
    return true;
}

/* None may be lost: a worker that did not hear of a reload would know tokens that were taken back. */
static void send_order(struct workers *all, unsigned to, enum channel_kind kind)
{
    all->list[to].due[kind]++;
    send_due(&all->list[to]);
}

static void send_all(struct workers *all, enum channel_kind kind)
{
    for (unsigned i = 0; i < all->n; i++)
        send_order(all, i, kind);
}

static void stop_accepting(struct workers *all)
{
    for (size_t i = 0; i < all->listeners.n; i++)
        hutch_poller_remove(&all->poller, &all->listeners.rows[i].watch);
    all->is_accepting = false;
}

/* Said again, it does not wait for what runs. @why: NULL where it was told to. A failure while it ends already changes
 * nothing for the others: they have the time that they were given. */
static void end_all(struct workers *all, const char *why)
{
    if (why && !all->failure.msg[0])
        hutch_err_set(&all->failure, 0, "%s", why);
    if (why && all->is_ending)
        return;
    if (!all->is_ending) {
        all->is_ending = true;
        stop_accepting(all);
        hutch_listeners_done(&all->listeners);
        hutch_notify("STOPPING=1");
        hutch_gateway_log_event(&all->log, "draining", NULL, NULL);
    }
    all->kill_ms = hutch_clock_ms() + (double)all->options->drain_ms + KILL_MS;
    send_all(all, CHANNEL_DRAIN);
    for (unsigned i = 0; i < all->n; i++)
        if (all->list[i].pid) /* blocked there, and pending: for one that has not begun to read its channel */
            kill(all->list[i].pid, SIGTERM);
}

/* Whether one that ends is to be followed by another one. */
static bool may_restart(struct workers *all)
{
    double now = hutch_clock_ms();

    if (all->is_ending || !all->was_ready)
        return false;
    if (all->n_restarts == 0 || now - all->first_restart_ms > RESTARTS_MS) {
        all->first_restart_ms = now;
        all->n_restarts = 0;
    }
    return ++all->n_restarts <= MAX_RESTARTS;
}

static void on_end(void *owner, uint32_t events)
{
    struct worker *w = owner;
    struct workers *all = w->all;
    char text[64] = "", why[96];
    int status = 0;

    (void)events;
    if (waitpid(w->pid, &status, WNOHANG) != w->pid)
        return;
    hutch_poller_remove(&all->poller, &w->watch);
    hutch_fd_closep(&w->pid_fd);
    w->pid = 0;
    if (!all->is_ending || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        snprintf(text, sizeof(text), "%u, of %s %d", w->index, WIFSIGNALED(status) ? "signal" : "exit status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        hutch_gateway_log_event(&all->log, "worker ended", "worker", text);
    }
    if (may_restart(all)) {
        start_worker(w);
        return;
    }
    hutch_fd_closep(&all->crew.workers[w->index].in); /* what others have sent there ends, and they hear of it */
    if (text[0]) {
        snprintf(why, sizeof(why), "worker %s has ended", text);
        end_all(all, why);
    }
}

/* Never returns. */
static void work(struct worker *w, pid_t parent)
{
    struct workers *all = w->all;
    struct hutch_err err;
    unsigned index = w->index;
    int rc;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_FAILED); /* it was gone before that */
    hutch_listeners_forget(&all->listeners);
    hutch_poller_done(&all->poller);
    hutch_fd_closep(&all->signal_fd);
    hutch_fd_closep(&all->waiting_fd);
    for (unsigned i = 0; i < all->n; i++)
        hutch_fd_closep(&all->list[i].pid_fd);
    hutch_crew_keep(&all->crew, index);
    rc = hutch_server_work(&all->own, &all->crew, index, &err);
    if (rc < 0)
        hutch_crew_tell(&all->crew, index, CHANNEL_FAILED, err.msg);
    hutch_crew_done(&all->crew);
    exit(rc < 0 ? EXIT_FAILED : 0);
}

static void start_worker(struct worker *w)
{
    struct workers *all = w->all;
    const pid_t parent = getpid();
    struct hutch_err err;

    w->is_ready = false;
    w->n_still = 0;
    atomic_store(&all->crew.counts[w->index].clients, 0);
    memset(w->due, 0, sizeof(w->due));
    if (all->was_reloaded)
        send_order(all, w->index, CHANNEL_RELOAD);
    fflush(NULL);
    w->pid = fork();
    if (w->pid == 0)
        work(w, parent);
    if (w->pid < 0) {
        w->pid = 0;
        hutch_err_set(&err, errno, "start worker %u", w->index);
        end_all(all, err.msg);
        return;
    }
    w->pid_fd = (int)syscall(SYS_pidfd_open, w->pid, 0);
    w->watch.on_ready = on_end;
    w->watch.owner = w;
    if (w->pid_fd < 0 || hutch_poller_add(&all->poller, &w->watch, w->pid_fd, EPOLLIN, &err) < 0) {
        kill(w->pid, SIGKILL);
        waitpid(w->pid, NULL, 0);
        hutch_fd_closep(&w->pid_fd);
        w->pid = 0;
        end_all(all, "watch a worker: no descriptors are left");
    }
}

/* A loop that stands still cannot say so itself. */
static void look_after(struct workers *all)
{
    if (hutch_clock_ms() < all->look_ms)
        return;
    all->look_ms = hutch_clock_ms() + LOOK_MS;
    for (unsigned i = 0; i < all->n; i++) {
        struct worker *w = &all->list[i];
        unsigned turns = atomic_load(&all->crew.counts[i].turns);

        w->n_still = turns == w->turns ? w->n_still + 1 : 0;
        w->turns = turns;
        if (w->pid && w->is_ready && w->n_still == MAX_STILL)
            kill(w->pid, SIGKILL);
    }
}

/* ---- what they say ---- */

static void note_readiness(struct workers *all, unsigned index)
{
    all->list[index].is_ready = true;
    for (unsigned i = 0; i < all->n; i++)
        if (!all->list[i].is_ready)
            return;
    send_all(all, CHANNEL_READY);
    if (all->was_ready)
        return;
    all->was_ready = true;
    hutch_notify("READY=1");
    hutch_gateway_log_event(&all->log, "ready", NULL, NULL);
}

static void on_channel(void *owner, uint32_t events)
{
    struct workers *all = owner;
    struct channel_message message;
    int fd;

    (void)events;
    while (hutch_channel_receive(&all->crew.parent, &message, &fd) > 0) {
        hutch_fd_closep(&fd);
        if (message.from >= all->n)
            continue;
        if (message.kind == CHANNEL_READY && !all->is_ending)
            note_readiness(all, message.from);
        else if (message.kind == CHANNEL_FAILED && (!all->was_ready || all->is_ending)) /* else another one follows */
            end_all(all, message.text);
    }
}

/* ---- connections ---- */

/* The one that has the fewest, and takes it. */
static bool hand_over(struct workers *all, int fd, bool is_tcp)
{
    struct channel_message message = { .kind = is_tcp ? CHANNEL_TCP_CLIENT : CHANNEL_CLIENT };
    bool was_tried[WORKERS_MAX] = { false };

    for (unsigned tries = 0; tries < all->n; tries++) {
        unsigned best = all->n;

        for (unsigned i = 0; i < all->n; i++)
            if (!was_tried[i] && all->list[i].pid &&
                (best == all->n || hutch_crew_clients(&all->crew, i) < hutch_crew_clients(&all->crew, best)))
                best = i;
        if (best == all->n)
            return false;
        was_tried[best] = true;
        atomic_fetch_add(&all->crew.counts[best].handed, 1);
        if (hutch_channel_send(&all->crew.workers[best], &message, fd) == 0)
            return true;
        atomic_fetch_sub(&all->crew.counts[best].handed, 1);
    }
    return false;
}

static bool is_full(const struct workers *all)
{
    unsigned n = 0;

    for (unsigned i = 0; i < all->n; i++)
        n += hutch_crew_clients(&all->crew, i);
    return n >= all->options->max_connections;
}

static void accept_later(struct workers *all)
{
    stop_accepting(all);
    all->accept_ms = hutch_clock_ms() + RETRY_MS;
}

static void on_listener(void *owner, uint32_t events)
{
    struct listener *listener = owner;
    struct workers *all = listener->owner;
    int fd, yes = 1;

    (void)events;
    if (is_full(all)) {
        accept_later(all);
        return;
    }
    fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            accept_later(all);
        return;
    }
    if (listener->is_tcp)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    if (hand_over(all, fd, listener->is_tcp)) {
        close(fd);
        return;
    }
    all->waiting_fd = fd;
    all->waiting_is_tcp = listener->is_tcp;
    accept_later(all);
}

static int start_accepting(struct workers *all, struct hutch_err *err)
{
    for (size_t i = 0; i < all->listeners.n; i++) {
        struct listener *row = &all->listeners.rows[i];

        row->owner = all;
        row->watch.on_ready = on_listener;
        row->watch.owner = row;
        if (row->watch.fd < 0 && hutch_poller_add(&all->poller, &row->watch, row->fd, EPOLLIN, err) < 0)
            return -1;
    }
    all->is_accepting = true;
    return 0;
}

static int accept_again(struct workers *all, struct hutch_err *err)
{
    if (all->is_ending || all->is_accepting || hutch_clock_ms() < all->accept_ms)
        return 0;
    if (all->waiting_fd >= 0 && !hand_over(all, all->waiting_fd, all->waiting_is_tcp)) {
        accept_later(all);
        return 0;
    }
    hutch_fd_closep(&all->waiting_fd);
    return start_accepting(all, err);
}

/* ---- signals ---- */

static void on_signal(void *owner, uint32_t events)
{
    struct workers *all = owner;
    struct signalfd_siginfo info;

    (void)events;
    while (read(all->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo != SIGHUP) {
            end_all(all, NULL);
            continue;
        }
        all->was_reloaded = true;
        send_all(all, CHANNEL_RELOAD);
    }
}

/* The workers inherit the mask: a terminal's signal is for all, and is the parent's to pass on. */
static int watch_signals(struct workers *all, struct hutch_err *err)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return hutch_err_set(err, errno, "block signals");
    all->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (all->signal_fd < 0)
        return hutch_err_set(err, errno, "watch for signals");
    all->signal_watch.on_ready = on_signal;
    all->signal_watch.owner = all;
    return hutch_poller_add(&all->poller, &all->signal_watch, all->signal_fd, EPOLLIN, err);
}

/* ---- beginning and end ---- */

static unsigned share_of(unsigned all, unsigned usual, unsigned n)
{
    return ((all ? all : usual) + n - 1) / n;
}

static unsigned count_cpus(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

/* What the operator says is the server's: each worker has its share, rounded up. */
static void share_out(struct workers *all)
{
    const struct hutch_engine_options *engine = all->options->engine;

    all->engine = *engine;
    all->engine.max_running = share_of(engine->max_running, count_cpus(), all->n);
    all->engine.max_queued = share_of(engine->max_queued, SERVER_MAX_QUEUED, all->n);
    all->engine.max_sessions = share_of(engine->max_sessions, SERVER_MAX_SESSIONS, all->n);
    all->own = *all->options;
    all->own.engine = &all->engine;
}

static int check_listeners(struct workers *all, struct hutch_err *err)
{
    struct tokens tokens = TOKENS_INIT;
    int rc = all->options->tokens ? hutch_tokens_load(all->options->tokens, &tokens, err) : 0;

    if (rc == 0)
        rc = hutch_listeners_may_open(&all->listeners, tokens.n > 0 || all->options->is_insecure, err);
    hutch_tokens_done(&tokens);
    return rc;
}

static int begin(struct workers *all, struct hutch_err *err)
{
    if (hutch_poller_open(&all->poller, err) < 0 ||
        hutch_listeners_open(&all->listeners, all->options->listen, err) < 0 || check_listeners(all, err) < 0 ||
        watch_signals(all, err) < 0 || hutch_crew_open(&all->crew, all->n, err) < 0)
        return -1;
    all->channel_watch.on_ready = on_channel;
    all->channel_watch.owner = all;
    if (hutch_poller_add(&all->poller, &all->channel_watch, all->crew.parent.in, EPOLLIN, err) < 0)
        return -1;
    for (unsigned i = 0; i < all->n; i++)
        start_worker(&all->list[i]);
    if (all->is_ending)
        return 0;
    for (size_t i = 0; i < all->listeners.n; i++)
        hutch_gateway_log_event(&all->log, "listening", "address", all->listeners.rows[i].name);
    return start_accepting(all, err);
}

static bool is_over(const struct workers *all)
{
    for (unsigned i = 0; i < all->n; i++)
        if (all->list[i].pid)
            return false;
    return all->is_ending;
}

static void kill_all(struct workers *all)
{
    for (unsigned i = 0; i < all->n; i++)
        if (all->list[i].pid)
            kill(all->list[i].pid, SIGKILL);
}

/* False: some could not be. */
static bool send_all_due(struct workers *all)
{
    bool are_sent = true;

    for (unsigned i = 0; i < all->n; i++)
        are_sent &= !all->list[i].pid || send_due(&all->list[i]);
    return are_sent;
}

static int serve(struct workers *all, struct hutch_err *err)
{
    while (!is_over(all)) {
        bool has_time = send_all_due(all) && (all->is_accepting || all->is_ending);

        if (hutch_poller_wait(&all->poller, has_time ? LOOK_MS : RETRY_MS, err) < 0 || accept_again(all, err) < 0)
            return -1;
        look_after(all);
        if (all->is_ending && hutch_clock_ms() > all->kill_ms)
            kill_all(all);
    }
    return 0;
}

/* Where the loop itself has failed there may be some. */
static void done(struct workers *all)
{
    kill_all(all);
    for (unsigned i = 0; i < all->n; i++) {
        if (all->list[i].pid)
            waitpid(all->list[i].pid, NULL, 0);
        hutch_fd_closep(&all->list[i].pid_fd);
    }
    hutch_listeners_done(&all->listeners);
    hutch_fd_closep(&all->signal_fd);
    hutch_fd_closep(&all->waiting_fd);
    hutch_poller_done(&all->poller);
    hutch_crew_done(&all->crew);
}

int hutch_workers_run(const struct server_options *options, struct hutch_err *err)
{
    struct workers all = { .options = options, .n = options->n_workers, .poller = POLLER_INIT,
                           .signal_watch = WATCH_INIT, .channel_watch = WATCH_INIT, .signal_fd = -1, .waiting_fd = -1,
                           .crew = { .parent = CHANNEL_INIT },
                           .log = { .fd = options->is_quiet ? -1 : STDERR_FILENO } };
    bool has_begun;
    int rc;

    for (unsigned i = 0; i < all.n; i++)
        all.list[i] = (struct worker){ .all = &all, .index = i, .pid_fd = -1, .watch = WATCH_INIT };
    share_out(&all);
    has_begun = begin(&all, err) == 0;
    rc = has_begun ? serve(&all, err) : -1;
    if (rc == 0 && all.failure.msg[0]) {
        *err = all.failure;
        rc = -1;
    }
    done(&all);
    if (has_begun)
        hutch_gateway_log_event(&all.log, "stopped", NULL, NULL);
    return rc;
}
