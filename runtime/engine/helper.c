#include "runtime/engine/helper.h"

#include "runtime/run/supervisor.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/log.h"
#include "sandbox/rmtree.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STOP_TIMEOUT_MS 10000
#define REAP_PAUSE_MS 5 /* between two looks whether it has ended, where nothing tells */
#define RETRY_MS 100
#define MAX_RETRIES 10 /* times RETRY_MS is the longest wait */

extern char **environ;

static void close_all(int *fds, size_t n_fds)
{
    for (size_t i = 0; i < n_fds; i++)
        hutch_fd_closep(&fds[i]);
}

/* --- launcher ---------------------------------------------------------------------------------------------------- */

int hutch_helper_order(struct helper *h, const struct launcher_request *request, const int *fds, size_t n_fds,
                       struct hutch_err *err)
{
    return hutch_link_send(&h->launcher, request, sizeof(*request), NULL, 0, fds, n_fds, err);
}

static void lose_launcher(struct helper *h)
{
    if (!h->has_launcher)
        return;
    hutch_link_close(&h->launcher);
    h->has_launcher = false;
    h->launcher_pid = 0;
    h->events->on_lost_launcher(h->owner);
}

static void on_launcher_hangup(struct link *l)
{
    struct helper *h = l->owner;

    hutch_log_debug("engine: the launcher is gone");
    h->lost_launchers++;
    lose_launcher(h); /* the opener sends another one, or goes too */
    h->since = hutch_clock_ms();
    hutch_loop_advance_deadline(&h->core->loop, &h->clock, h->since + h->core->setup_ms);
}

static void on_launcher_packet(struct link *l, const void *data, size_t len, int *fds, size_t n_fds, pid_t sender)
{
    struct helper *h = l->owner;
    const struct launcher_reply *reply = data;

    h->launcher_pid = sender;
    if (len >= sizeof(*reply) && reply->text_len == len - sizeof(*reply))
        h->events->on_launcher_reply(h->owner, reply, (const char *)(reply + 1), fds, n_fds);
    close_all(fds, n_fds);
}

static void take_launcher(struct helper *h, int fd)
{
    struct hutch_err err;

    if (h->has_launcher) {
        h->lost_launchers++;
        lose_launcher(h);
    }
    h->launcher.on_packet = on_launcher_packet;
    h->launcher.on_hangup = on_launcher_hangup;
    h->launcher.owner = h;
    if (hutch_link_open(&h->launcher, &h->core->loop, fd, &err) < 0) {
        hutch_core_break(h->core, &err);
        return;
    }
    h->has_launcher = true;
    h->launchers++;
    h->events->on_launcher(h->owner);
}

/* --- disk worker -------------------------------------------------------------------------------------------------- */

static bool order_removal(struct helper *h, const char *name)
{
    struct disk_request request = { .name = "" };
    struct hutch_err err;

    snprintf(request.name, sizeof(request.name), "%s", name);
    return h->disk.fd >= 0 &&
           hutch_link_send(&h->disk, &request, sizeof(request), NULL, 0, &h->core->data_root_fd, 1, &err) == 0;
}

void hutch_helper_remove_directory(struct helper *h, const char *name)
{
    struct hutch_err err;

    if (!order_removal(h, name) && hutch_rmtree(h->core->data_root_fd, name, &err) < 0 && err.errnum != ENOENT)
        hutch_log_debug("engine: %s", err.msg);
}

bool hutch_helper_order_files(struct helper *h, const struct disk_request *request, int data_dirfd)
{
    const int fds[] = { h->core->data_root_fd, data_dirfd };
    struct hutch_err err;

    return h->disk.fd >= 0 &&
           hutch_link_send(&h->disk, request, sizeof(*request), NULL, 0, fds, ARRAY_SIZE(fds), &err) == 0;
}

static void on_disk_packet(struct link *l, const void *data, size_t len, int *fds, size_t n_fds, pid_t sender)
{
    struct helper *h = l->owner;

    (void)sender;
    if (len == sizeof(struct disk_reply))
        h->events->on_files(h->owner, data);
    close_all(fds, n_fds);
}

static void on_disk_hangup(struct link *l)
{
    struct helper *h = l->owner;

    hutch_link_close(l); /* what it had not removed, the end of the engine does */
    h->events->on_files(h->owner, NULL);
}

static void take_disk_worker(struct helper *h, int fd)
{
    struct hutch_err err;

    hutch_link_close(&h->disk);
    h->disk.on_packet = on_disk_packet;
    h->disk.on_hangup = on_disk_hangup;
    h->disk.owner = h;
    if (hutch_link_open(&h->disk, &h->core->loop, fd, &err) < 0)
        hutch_log_debug("engine: %s", err.msg);
}

/* --- opener ------------------------------------------------------------------------------------------------------ */

int hutch_helper_open(struct helper *h, uint32_t id, const char *path, unsigned flags, struct hutch_err *err)
{
    struct opener_request request = { .what = OPENER_OPEN, .id = id, .flags = flags };

    if (strlen(path) >= sizeof(request.path))
        return hutch_err_set(err, ENAMETOOLONG, "open '%s'", path);
    strcpy(request.path, path);
    return hutch_link_send(&h->opener, &request, sizeof(request), NULL, 0, NULL, 0, err);
}

/* Where pidfd_open(2) is not there, as under valgrind 3.19: only while the opener is a child that was not waited for,
 * its number is no other process's. */
static void reap_by_number(pid_t pid, int patience_ms)
{
    siginfo_t info = { .si_pid = 0 };

    for (int waited = 0; waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG) == 0 && info.si_pid == 0;
         waited += REAP_PAUSE_MS) {
        if (waited >= patience_ms)
            kill(pid, SIGKILL);
        nanosleep(&(struct timespec){ .tv_nsec = REAP_PAUSE_MS * 1000000l }, NULL);
    }
}

/* Kills it after @patience_ms, and takes its end. */
static void reap(struct helper *h, int patience_ms)
{
    struct pollfd p = { .fd = h->pidfd, .events = POLLIN };

    if (h->pid == 0)
        return;
    if (h->pidfd < 0) {
        reap_by_number(h->pid, patience_ms);
        h->pid = 0;
        return;
    }
    if (TEMP_FAILURE_RETRY(poll(&p, 1, patience_ms)) != 1)
        syscall(SYS_pidfd_send_signal, h->pidfd, SIGKILL, NULL, 0);
    TEMP_FAILURE_RETRY(waitid(P_PIDFD, (id_t)h->pidfd, NULL, WEXITED)); /* ECHILD: the caller was there first */
    hutch_fd_closep(&h->pidfd);
    h->pid = 0;
}

/* With the opener everything is gone. */
static void lose_all(struct helper *h)
{
    hutch_link_close(&h->opener);
    hutch_link_close(&h->disk);
    h->has_hello = false;
    reap(h, 0); /* it hung up, so it is on its way */
    lose_launcher(h);
    h->events->on_lost(h->owner);
}

static void fail_helper(struct helper *h, const struct hutch_err *why)
{
    lose_all(h);
    if (++h->failures >= CORE_MAX_RESTARTS && !h->core->has_worked) {
        hutch_core_break(h->core, why);
        return;
    }
    h->retry_at = hutch_clock_ms() + RETRY_MS * (h->failures - 1 < MAX_RETRIES ? h->failures - 1 : MAX_RETRIES);
    hutch_loop_advance_deadline(&h->core->loop, &h->clock, h->retry_at);
}

static void on_opener_hangup(struct link *l)
{
    struct helper *h = l->owner;
    struct hutch_err err;

    hutch_log_debug("engine: the opener is gone");
    hutch_err_set(&err, 0, "the helper program '%s' ended%s", h->launcher_path,
                  h->has_hello ? "" : " as soon as it was started");
    if (h->launchers > 0)
        h->lost_launchers++;
    fail_helper(h, &err);
}

static void on_opener_packet(struct link *l, const void *data, size_t len, int *fds, size_t n_fds, pid_t sender)
{
    struct helper *h = l->owner;
    const struct opener_reply *reply = data;

    (void)sender;
    if (len != sizeof(*reply)) {
        close_all(fds, n_fds);
        return;
    }
    switch ((enum opener_says)reply->what) {
    case OPENER_HELLO:
        h->has_hello = true;
        h->is_mapped_away = reply->is_mapped_away;
        if (n_fds > 0)
            take_disk_worker(h, hutch_fd_take(&fds[0]));
        break;
    case OPENER_LAUNCHER:
        if (n_fds > 0)
            take_launcher(h, hutch_fd_take(&fds[0]));
        break;
    case OPENER_OPENED:
    case OPENER_FAILED:
        if (reply->id == 0) { /* it cannot work at all, and says why */
            struct hutch_err why = reply->err;

            h->failures = CORE_MAX_RESTARTS;
            fail_helper(h, &why);
        } else {
            bool is_open = reply->what == OPENER_OPENED && n_fds > 0;

            h->events->on_opened(h->owner, reply->id, is_open ? hutch_fd_take(&fds[0]) : -1, &reply->err);
        }
        break;
    }
    close_all(fds, n_fds);
}

/* What its own environment tells of the caller's is his, but for how to find things. */
static char **filtered_environment(void)
{
    static const char *const kept[] = { "HUTCH_",        "PATH=",          "XDG_RUNTIME_DIR=",
                                        "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "LSAN_OPTIONS=" };
    size_t n = 0, count = 0;
    char **env;

    while (environ && environ[count])
        count++;
    env = calloc(count + 1, sizeof(*env));
    for (size_t i = 0; env && i < count; i++)
        for (size_t k = 0; k < ARRAY_SIZE(kept); k++)
            if (strncmp(environ[i], kept[k], strlen(kept[k])) == 0) {
                env[n++] = environ[i];
                break;
            }
    return env;
}

static int spawn(const struct helper *h, int sock, pid_t *ret, struct hutch_err *err)
{
    char *argv[] = { (char *)"hutch-launcher", h->cgroup, (char *)h->cgroup_why_not, NULL };
    auto_free char **env = filtered_environment();
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    int e;

    if (!env)
        return hutch_err_set(err, ENOMEM, "start '%s'", h->launcher_path);
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    e = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!e)
        e = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (!e)
        e = posix_spawn_file_actions_adddup2(&actions, sock, WARM_SOCKET_FD);
    if (!e)
        e = posix_spawn_file_actions_addclosefrom_np(&actions, WARM_SOCKET_FD + 1);
    if (!e)
        e = posix_spawn(ret, h->launcher_path, &actions, &attr, argv, env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    return e ? hutch_err_set(err, e, "start the helper program '%s'", h->launcher_path) : 0;
}

int hutch_helper_start(struct helper *h, struct hutch_err *err)
{
    int pair[2];
    auto_fd theirs = -1;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return hutch_err_set(err, errno, "make the helper's socket");
    h->opener.on_packet = on_opener_packet;
    h->opener.on_hangup = on_opener_hangup;
    h->opener.owner = h;
    /* a dup2 of itself onto itself would leave it CLOEXEC */
    theirs = fcntl(pair[1], F_DUPFD_CLOEXEC, WARM_SOCKET_FD + 1);
    close(pair[1]);
    if (theirs < 0) {
        close(pair[0]);
        return hutch_err_set(err, errno, "make the helper's socket");
    }
    if (hutch_link_open(&h->opener, &h->core->loop, pair[0], err) < 0)
        return -1;
    if (spawn(h, theirs, &h->pid, err) < 0) {
        h->pid = 0;
        hutch_link_close(&h->opener);
        return -1;
    }
    h->pidfd = (int)syscall(SYS_pidfd_open, h->pid, 0);
    if (h->pidfd < 0 && errno != ENOSYS) { /* it hangs up as soon as the link closes */
        hutch_err_set(err, errno, "hold the helper process");
        h->pid = 0;
        hutch_link_close(&h->opener);
        return -1;
    }
    h->retry_at = LOOP_NEVER;
    h->since = hutch_clock_ms();
    hutch_loop_advance_deadline(&h->core->loop, &h->clock, h->since + h->core->setup_ms);
    return 0;
}

void hutch_helper_stop(struct helper *h)
{
    hutch_link_close(&h->launcher);
    hutch_link_close(&h->disk);
    hutch_link_close(&h->opener);
    h->has_launcher = h->has_hello = false;
    reap(h, STOP_TIMEOUT_MS); /* it kills what it has started and waits for that */
}

static double check_clocks(struct helper *h, double now)
{
    struct hutch_err err;

    if (h->core->is_broken)
        return LOOP_NEVER;
    if (h->pid == 0) {
        if (now < h->retry_at)
            return h->retry_at;
        if (hutch_helper_start(h, &err) < 0)
            fail_helper(h, &err);
        return now + h->core->setup_ms;
    }
    if (h->has_launcher)
        return LOOP_NEVER;
    if (now < h->since + h->core->setup_ms)
        return h->since + h->core->setup_ms;
    hutch_err_set(&err, ETIMEDOUT, "wait for the helper program '%s'", h->launcher_path);
    fail_helper(h, &err);
    return now + h->core->setup_ms;
}

static void on_due(void *owner, double now)
{
    struct helper *h = owner;

    hutch_loop_advance_deadline(&h->core->loop, &h->clock, check_clocks(h, now));
}

void hutch_helper_init(struct helper *h, struct core *core, const struct helper_events *events, void *owner)
{
    *h = (struct helper){ .core = core,
                          .events = events,
                          .owner = owner,
                          .pidfd = -1,
                          .opener = LINK_INIT,
                          .launcher = LINK_INIT,
                          .disk = LINK_INIT,
                          .retry_at = LOOP_NEVER,
                          .clock = DEADLINE_INIT(on_due, h) };
}

void hutch_helper_done(struct helper *h)
{
    hutch_helper_stop(h);
    hutch_loop_set_deadline(&h->core->loop, &h->clock, LOOP_NEVER);
    free(h->launcher_path);
    free(h->cgroup);
    h->launcher_path = h->cgroup = NULL;
}
