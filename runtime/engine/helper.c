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
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STOP_MS  1000 /* for an end in good order … */
#define KILL_MS  300  /* … and for the kernel's, when that was no end */
#define REAP_MS  20
#define MAX_CORPSES 16
#define REAP_PAUSE_MS 5 /* between two looks whether it has ended, where nothing tells */
#define RETRY_MS 100
#define MAX_RETRIES 10 /* times RETRY_MS is the longest wait */

extern char **environ;

static void close_all(int *fds, size_t n_fds)
{
    for (size_t i = 0; i < n_fds; i++)
        hutch_fd_closep(&fds[i]);
}

static void kill_process(int pidfd)
{
    if (pidfd >= 0)
        syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

static void replace_fd(int *to, int *from)
{
    hutch_fd_closep(to);
    *to = hutch_fd_take(from);
}

/* --- launcher ---------------------------------------------------------------------------------------------------- */

int hutch_helper_order(struct helper *h, const struct launcher_request *request, const int *fds, size_t n_fds,
                       struct hutch_err *err)
{
    if (!h->has_launcher)
        return hutch_err_set(err, ESRCH, "ask the launcher");
    if (hutch_link_send(&h->launcher, request, sizeof(*request), NULL, 0, fds, n_fds, err) < 0)
        return -1;
    hutch_patience_begin(&h->launcher_patience);
    return 0;
}

static void lose_launcher(struct helper *h)
{
    if (!h->has_launcher)
        return;
    hutch_patience_end(&h->launcher_patience);
    hutch_link_close(&h->launcher);
    hutch_fd_closep(&h->launcher_pidfd);
    h->has_launcher = false;
    h->launcher_pid = 0;
    h->events->on_lost_launcher(h->owner);
}

static void on_launcher_hangup(struct link *l)
{
    struct helper *h = l->owner;

    hutch_log_debug("engine: the launcher is gone");
    h->lost_launchers++;
    lose_launcher(h); /* the anchor sends another one, or goes too */
    h->since = hutch_clock_ms();
    hutch_loop_advance_deadline(&h->core->loop, &h->clock, h->since + h->core->answer_ms);
}

static void on_launcher_silent(void *owner)
{
    struct helper *h = owner;

    hutch_core_note_hung(h->core, "the launcher");
    kill_process(h->launcher_pidfd);
    on_launcher_hangup(&h->launcher);
}

static void on_launcher_packet(struct link *l, void *data, size_t len, int *fds, size_t n_fds, pid_t sender)
{
    struct helper *h = l->owner;
    struct launcher_reply *reply = data;

    h->launcher_pid = sender;
    if (len >= sizeof(*reply) && reply->text_len == len - sizeof(*reply)) {
        if (reply->what == LAUNCHER_FAILED)
            hutch_err_receive(&reply->err, "the launcher");
        h->events->on_launcher_reply(h->owner, reply, (const char *)(reply + 1), fds, n_fds);
    }
    close_all(fds, n_fds);
}

static void take_launcher(struct helper *h, int fd, int *pidfd, int *anchor_pidfd)
{
    struct hutch_err err;

    if (h->has_launcher) {
        h->lost_launchers++;
        lose_launcher(h);
    }
    replace_fd(&h->launcher_pidfd, pidfd);
    replace_fd(&h->anchor_pidfd, anchor_pidfd);
    h->launcher.on_packet = on_launcher_packet;
    h->launcher.on_hangup = on_launcher_hangup;
    h->launcher.owner = h;
    if (hutch_link_open(&h->launcher, &h->core->loop, fd, &err) < 0) {
        hutch_core_break(h->core, &err);
        return;
    }
    h->has_launcher = h->had_launcher = true;
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

void hutch_helper_drop_volume(struct helper *h, int base_fd)
{
    struct disk_request request = { .what = DISK_DROP };
    struct hutch_err err;

    if (h->disk.fd >= 0 && hutch_link_send(&h->disk, &request, sizeof(request), NULL, 0, &base_fd, 1, &err) < 0)
        hutch_log_debug("engine: %s", err.msg); /* it is freed here, then */
}

bool hutch_helper_order_files(struct helper *h, const struct disk_request *request, int data_dirfd, int list_fd)
{
    const int fds[] = { h->core->data_root_fd, data_dirfd, list_fd };
    struct hutch_err err;

    if (h->disk.fd < 0 ||
        hutch_link_send(&h->disk, request, sizeof(*request), NULL, 0, fds, list_fd < 0 ? 2 : 3, &err) < 0)
        return false;
    hutch_patience_begin(&h->disk_patience);
    return true;
}

static void on_disk_packet(struct link *l, void *data, size_t len, int *fds, size_t n_fds, pid_t sender)
{
    struct helper *h = l->owner;
    struct disk_reply *reply = data;

    (void)sender;
    if (len == sizeof(*reply) && reply->id != 0) {
        if (reply->has_failed)
            hutch_err_receive(&reply->err, "the disk worker");
        h->events->on_files(h->owner, reply, fds, n_fds);
    }
    close_all(fds, n_fds);
}

static void close_disk(struct helper *h)
{
    hutch_patience_end(&h->disk_patience);
    hutch_link_close(&h->disk);
}

/* All processes that held the socket are gone: those of its orders, too. */
static void on_disk_hangup(struct link *l)
{
    struct helper *h = l->owner;

    close_disk(h); /* what it had not removed, the end of the engine does */
    h->events->on_files(h->owner, NULL, NULL, 0);
}

/* Its socket closes when the last process of its namespace is gone. Before that, none of its orders may be given
 * again. */
static void on_disk_silent(void *owner)
{
    struct helper *h = owner;

    hutch_core_note_hung(h->core, "the disk worker");
    kill_process(h->disk_pidfd);
}

static void take_disk_worker(struct helper *h, int fd, int *pidfd)
{
    struct hutch_err err;
    bool had_one = h->disk.fd >= 0;

    close_disk(h);
    replace_fd(&h->disk_pidfd, pidfd);
    h->disk.on_packet = on_disk_packet;
    h->disk.on_hangup = on_disk_hangup;
    h->disk.owner = h;
    if (hutch_link_open(&h->disk, &h->core->loop, fd, &err) < 0)
        hutch_log_debug("engine: %s", err.msg);
    if (had_one) /* that it is gone had not come through yet */
        h->events->on_files(h->owner, NULL, NULL, 0);
}

/* --- opener ------------------------------------------------------------------------------------------------------ */

int hutch_helper_open(struct helper *h, uint32_t id, const char *path, unsigned flags, uid_t uid, gid_t gid,
                      struct hutch_err *err)
{
    struct opener_request request = { .what = OPENER_OPEN, .id = id, .flags = flags, .uid = uid, .gid = gid };

    if (strlen(path) >= sizeof(request.path))
        return hutch_err_set(err, ENAMETOOLONG, "open '%s'", path);
    strcpy(request.path, path);
    if (hutch_link_send(&h->opener, &request, sizeof(request), NULL, 0, NULL, 0, err) < 0)
        return -1;
    hutch_patience_begin(&h->opener_patience);
    return 0;
}

int hutch_helper_open_volume(struct helper *h, uint32_t id, int base_fd, uint64_t bytes, uint64_t files, uid_t uid,
                             gid_t gid, struct hutch_err *err)
{
    struct opener_request request = {
        .what = OPENER_VOLUME, .id = id, .uid = uid, .gid = gid, .bytes = bytes, .files = files
    };

    if (hutch_link_send(&h->opener, &request, sizeof(request), NULL, 0, &base_fd, base_fd >= 0, err) < 0)
        return -1;
    hutch_patience_begin(&h->opener_patience);
    return 0;
}

/* Takes its end, if it comes within @ms. */
static bool reap(int pidfd, int ms)
{
    struct pollfd p = { .fd = pidfd, .events = POLLIN };

    if (TEMP_FAILURE_RETRY(poll(&p, 1, ms)) != 1)
        return false;
    waitid(P_PIDFD, (id_t)pidfd, NULL, WEXITED | WNOHANG); /* ECHILD: the caller was there first */
    return true;
}

/* Where pidfd_open(2) is not there, as under valgrind 3.19: only while the opener is a child that was not waited for,
 * its number is no other process's. */
static bool reap_by_number(pid_t pid, int ms)
{
    siginfo_t info = { .si_pid = 0 };

    for (int waited = 0; waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG) == 0 && info.si_pid == 0;
         waited += REAP_PAUSE_MS) {
        if (waited >= ms)
            return false;
        nanosleep(&(struct timespec){ .tv_nsec = REAP_PAUSE_MS * 1000000l }, NULL);
    }
    return true;
}

static bool reap_opener(const struct helper *h, int ms)
{
    return h->pidfd < 0 ? reap_by_number(h->pid, ms) : reap(h->pidfd, ms);
}

static void kill_opener(const struct helper *h)
{
    if (h->pidfd >= 0)
        kill_process(h->pidfd);
    else if (!reap_by_number(h->pid, 0))
        kill(h->pid, SIGKILL);
}

static void bury(struct corpse *corpse)
{
    LIST_REMOVE(corpse, link);
    corpse->helper->n_corpses--;
    hutch_watch_remove(&corpse->watch);
    hutch_loop_set_deadline(&corpse->helper->core->loop, &corpse->clock, LOOP_NEVER);
    hutch_fd_closep(&corpse->pidfd);
    hutch_loop_free_later(&corpse->helper->core->loop, &corpse->doomed, corpse, free);
}

static void on_corpse(struct watch *w, uint32_t events)
{
    struct corpse *corpse = w->owner;

    (void)events;
    if (reap(corpse->pidfd, 0))
        bury(corpse);
}

static void on_corpse_due(void *owner, double now)
{
    struct corpse *corpse = owner;

    (void)now;
    kill_process(corpse->pidfd);
}

/* A process that was given up ends when it can, without the loop waiting for it. */
static void leave_to_end(struct helper *h, int *pidfd)
{
    struct corpse *corpse;
    struct hutch_err err;

    if (*pidfd < 0 || reap(*pidfd, 0)) {
        hutch_fd_closep(pidfd);
        return;
    }
    corpse = calloc(1, sizeof(*corpse));
    if (!corpse || hutch_watch_add(&corpse->watch, &h->core->loop, *pidfd, EPOLLIN, on_corpse, corpse, &err) < 0) {
        kill_process(*pidfd);
        hutch_fd_closep(pidfd);
        free(corpse);
        return;
    }
    corpse->helper = h;
    corpse->pidfd = hutch_fd_take(pidfd);
    corpse->clock = (struct deadline)DEADLINE_INIT(on_corpse_due, corpse);
    hutch_loop_set_deadline(&h->core->loop, &corpse->clock, hutch_clock_ms() + h->core->answer_ms);
    LIST_INSERT_HEAD(&h->corpses, corpse, link);
    if (++h->n_corpses < MAX_CORPSES)
        return;
    hutch_err_set(&err, 0, "%d helper processes hang and cannot be killed", MAX_CORPSES);
    hutch_core_break(h->core, &err);
}

/* With the opener everything is gone. */
static void lose_all(struct helper *h)
{
    hutch_patience_end(&h->opener_patience);
    hutch_link_close(&h->opener);
    close_disk(h);
    h->has_hello = h->had_launcher = false;
    kill_process(h->anchor_pidfd);
    hutch_fd_closep(&h->anchor_pidfd);
    if (h->pid > 0) { /* it hung up, or hangs */
        kill_opener(h);
        reap_opener(h, REAP_MS); /* mostly at once, and leaves nothing to wait for */
        leave_to_end(h, &h->pidfd);
        h->pid = 0;
    }
    leave_to_end(h, &h->disk_pidfd);
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

static void on_opener_silent(void *owner)
{
    struct helper *h = owner;
    struct hutch_err err;

    hutch_core_note_hung(h->core, "the opener");
    hutch_err_set(&err, ETIMEDOUT, "wait for the helper program '%s'", h->launcher_path);
    h->lost_launchers++;
    fail_helper(h, &err);
}

static void on_opener_packet(struct link *l, void *data, size_t len, int *fds, size_t n_fds, pid_t sender)
{
    struct helper *h = l->owner;
    struct opener_reply *reply = data;

    (void)sender;
    if (len != sizeof(*reply)) {
        close_all(fds, n_fds);
        return;
    }
    switch ((enum opener_says)reply->what) {
    case OPENER_HELLO:
        h->has_hello = true;
        h->is_mapped_away = reply->is_mapped_away;
        h->ids = reply->ids;
        hutch_err_receive(&reply->err, "the opener");
        snprintf(h->why_no_ids, sizeof(h->why_no_ids), "%.90s", reply->err.msg);
        if (n_fds == 2)
            take_disk_worker(h, hutch_fd_take(&fds[0]), &fds[1]);
        break;
    case OPENER_DISK:
        if (n_fds == 2)
            take_disk_worker(h, hutch_fd_take(&fds[0]), &fds[1]);
        break;
    case OPENER_LAUNCHER:
        if (n_fds == 3)
            take_launcher(h, hutch_fd_take(&fds[0]), &fds[1], &fds[2]);
        break;
    case OPENER_PONG:
        break;
    case OPENER_OPENED:
    case OPENER_FAILED:
        hutch_err_receive(&reply->err, "the opener");
        if (reply->id == 0) { /* it cannot work at all, and says why */
            struct hutch_err why = reply->err;

            h->failures = CORE_MAX_RESTARTS;
            fail_helper(h, &why);
        } else {
            bool is_open = reply->what == OPENER_OPENED && n_fds > 0;

            h->events->on_opened(h->owner, reply->id, is_open ? hutch_fd_take(&fds[0]) : -1,
                                 is_open && n_fds > 1 ? hutch_fd_take(&fds[1]) : -1, &reply->err);
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
    struct corpse *corpse;
    int *const all[] = { &h->launcher_pidfd, &h->disk_pidfd, &h->anchor_pidfd };

    hutch_patience_end(&h->launcher_patience);
    hutch_patience_end(&h->opener_patience);
    hutch_link_close(&h->launcher);
    close_disk(h);
    hutch_link_close(&h->opener);
    h->has_launcher = h->has_hello = h->had_launcher = false;
    /* It kills what it has started and waits for that. */
    if (h->pid > 0 && !reap_opener(h, STOP_MS)) {
        hutch_log_debug("engine: the helper processes do not end, and are killed");
        for (size_t i = 0; i < ARRAY_SIZE(all); i++)
            kill_process(*all[i]);
        kill_opener(h);
        if (!reap_opener(h, KILL_MS))
            hutch_log_debug("engine: the opener, process %d, hangs in the kernel, and is left to it", h->pid);
    }
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        hutch_fd_closep(all[i]);
    hutch_fd_closep(&h->pidfd);
    h->pid = 0;
    while ((corpse = LIST_FIRST(&h->corpses))) {
        kill_process(corpse->pidfd);
        reap(corpse->pidfd, REAP_MS);
        bury(corpse);
    }
}

static double check_clocks(struct helper *h, double now)
{
    double limit;
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
    limit = h->had_launcher ? h->core->answer_ms : h->core->setup_ms;
    h->since += hutch_loop_stood_still(&h->core->loop); /* it may have been as still */
    if (now < h->since + limit)
        return h->since + limit;
    hutch_core_note_hung(h->core, h->had_launcher ? "the anchor" : "the opener");
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
    static const struct opener_request opener_ping = { .what = OPENER_PING };
    static const struct launcher_request launcher_ping = { .what = LAUNCHER_PING };
    static const struct disk_request disk_ping = { .what = DISK_PING };

    *h = (struct helper){ .core = core,
                          .events = events,
                          .owner = owner,
                          .pidfd = -1,
                          .launcher_pidfd = -1,
                          .anchor_pidfd = -1,
                          .disk_pidfd = -1,
                          .opener = LINK_INIT,
                          .launcher = LINK_INIT,
                          .disk = LINK_INIT,
                          .retry_at = LOOP_NEVER,
                          .clock = DEADLINE_INIT(on_due, h) };
    LIST_INIT(&h->corpses);
    hutch_patience_init(&h->opener_patience, core, &h->opener, &opener_ping, sizeof(opener_ping), on_opener_silent, h);
    h->opener_patience.share = 2; /* it opens what the caller names, perhaps on a disk that sleeps; all ends with it */
    hutch_patience_init(&h->launcher_patience, core, &h->launcher, &launcher_ping, sizeof(launcher_ping),
                        on_launcher_silent, h);
    hutch_patience_init(&h->disk_patience, core, &h->disk, &disk_ping, sizeof(disk_ping), on_disk_silent, h);
}

void hutch_helper_done(struct helper *h)
{
    hutch_helper_stop(h);
    hutch_loop_set_deadline(&h->core->loop, &h->clock, LOOP_NEVER);
    free(h->launcher_path);
    free(h->cgroup);
    h->launcher_path = h->cgroup = NULL;
}
