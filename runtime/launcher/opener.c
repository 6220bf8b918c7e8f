#include "runtime/launcher/opener.h"

#include "runtime/launcher/anchor.h"
#include "sandbox/cgroup.h"
#include "sandbox/fd.h"
#include "sandbox/fdpass.h"
#include "sandbox/log.h"
#include "sandbox/mounts.h"
#include "sandbox/rlimits.h"
#include "sandbox/spec.h"
#include "runtime/launcher/disk.h"
#include "sandbox/userns.h"
#include "sandbox/volume.h"
#include "runtime/launcher/wire.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define RESTART_PAUSE_MS 5   /* between two disk workers: one that dies at once must not keep a CPU busy */
#define DISK_END_MS      500 /* for what must not be left half done, which takes milliseconds */
#define END_MS           200 /* for processes that were killed */

struct disk_worker_process {
    pid_t pid;  /* 0, -1: there is none */
    int pidfd;  /* owned */
};

/* The engine's process: a copy of it that was forked without an execve(2) has its sockets too, and would keep them
 * open. */
static int watch_engine(int sock, int *ret_pidfd, struct hutch_err *err)
{
    struct ucred engine;
    socklen_t len = sizeof(engine);
    auto_fd pidfd = -1;

    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &engine, &len) < 0)
        return hutch_err_set(err, errno, "ask who the engine is");
    pidfd = (int)syscall(SYS_pidfd_open, engine.pid, 0);
    if (pidfd < 0 || getppid() != engine.pid)
        return hutch_err_set(err, pidfd < 0 ? errno : ESRCH, "watch the engine's process %d%s", engine.pid,
                             pidfd < 0 && errno == ENOSYS ? " (pidfd_open(2) is not there: needs Linux 5.3, and no "
                                                            "filter or tracer without it around this program)"
                                                          : "");
    *ret_pidfd = hutch_fd_take(&pidfd);
    return 0;
}

static void give_up(int sock, struct opener_reply *reply)
{
    reply->what = OPENER_FAILED;
    hutch_fdpass_send(sock, reply, sizeof(*reply), NULL, 0, 0);
}

static int say(int sock, struct opener_reply *reply, const int *fds, size_t n_fds)
{
    if (hutch_fdpass_send(sock, reply, sizeof(*reply), fds, n_fds, 0) >= 0)
        return 0;
    if (errno != ETOOMANYREFS || n_fds == 0)
        return -1;
    hutch_err_set(&reply->err, ETOOMANYREFS, "send a mount (other programs of this user have too many descriptors on "
                                             "their way)");
    reply->what = OPENER_FAILED;
    return hutch_fdpass_send(sock, reply, sizeof(*reply), NULL, 0, 0) < 0 ? -1 : 0;
}

/* An ordinary user becomes the owner of a user namespace, with a copy of the host's mount tree to open things from. */
static int enter_own_namespaces(struct id_plan *plan, struct hutch_err *why_no_range, struct hutch_err *err)
{
    if (!plan->is_mapped_away)
        hutch_userns_find_range(&plan->range, why_no_range);
    return hutch_mounts_enter_namespaces(plan, why_no_range, err);
}

/* Process 1 of a pid namespace, in a group beside those of the sandboxes so that theirs can have controllers. */
static pid_t clone_anchor(int sock, const struct id_plan *plan, const struct cgroup_base *base, int *ret_pidfd,
                          struct hutch_err *err)
{
    struct clone_args args = {
        .flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_PIDFD | (plan->is_mapped_away ? CLONE_NEWUSER : 0),
        .pidfd = (__u64)(uintptr_t)ret_pidfd,
        .exit_signal = SIGCHLD,
    };
    auto_fd group = -1;
    int go[2];
    pid_t pid;

    if (pipe2(go, O_CLOEXEC) < 0)
        return hutch_err_set(err, errno, "make a pipe");
    if (base->dirfd >= 0) {
        if (mkdirat(base->dirfd, "warm", 0755) < 0 && errno != EEXIST) {
            hutch_err_set(err, errno, "make a cgroup below '%s'", base->path);
            goto fail;
        }
        group = openat(base->dirfd, "warm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (plan->is_mapped_away && (fchown(group, plan->host_uid, plan->host_gid) < 0 ||
                                     fchownat(group, "cgroup.procs", plan->host_uid, plan->host_gid, 0) < 0)) {
            hutch_err_set(err, errno, "hand over the cgroup '%s/warm'", base->path);
            goto fail;
        }
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (__u64)group;
    }
    pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0) {
        close(go[1]);
        hutch_anchor_main(sock, go[0], plan, base);
    }
    if (pid < 0) {
        hutch_err_set(err, errno, "make the engine's namespaces%s", hutch_userns_hint(errno));
        goto fail;
    }
    close(go[0]);
    go[0] = -1;
    if (plan->is_mapped_away && hutch_userns_write_identity(pid, plan, err) < 0)
        goto fail;
    if (write(go[1], "", 1) != 1) {
        hutch_err_set(err, errno, "let the anchor go");
        goto fail;
    }
    return pid; /* go[1] stays open: it closes with the opener, which is how the anchor sees that there is one */
fail:
    hutch_fd_closep(&go[0]);
    hutch_fd_closep(&go[1]);
    return -1;
}

static void open_volume(int sock, const struct opener_request *request, int base_fd, const struct id_plan *as)
{
    struct opener_reply reply = { .what = OPENER_OPENED, .id = request->id };
    struct volume_mounts mounts = VOLUME_MOUNTS_INIT;
    int rc;

    if (base_fd >= 0)
        rc = hutch_volume_open(base_fd, as, &mounts, &reply.err);
    else if (request->bytes)
        rc = hutch_volume_make(request->bytes, request->files, as, &mounts, &reply.err);
    else
        rc = hutch_err_set(&reply.err, EPROTO, "an order for a file system without a size");
    if (rc < 0)
        reply.what = OPENER_FAILED;
    say(sock, &reply, (int[]){ mounts.sandbox_fd, mounts.base_fd }, rc < 0 ? 0 : 2);
    hutch_fd_closep(&mounts.sandbox_fd);
    hutch_fd_closep(&mounts.base_fd);
}

/* @given_fd: what came with the order, or -1. */
static void serve_one(int sock, const struct opener_request *request, int given_fd, const struct id_plan *plan)
{
    struct opener_reply reply = { .what = OPENER_OPENED, .id = request->id };
    struct id_plan as = *plan;
    bool lacks_map = false;
    auto_fd fd = -1;

    if (request->what == OPENER_PING) {
        reply.what = OPENER_PONG;
        say(sock, &reply, NULL, 0);
        return;
    }
    if (request->uid) {
        as.host_uid = request->uid;
        as.host_gid = request->gid;
    }
    if (request->what == OPENER_VOLUME) {
        open_volume(sock, request, given_fd, &as);
        return;
    }
    if (request->what != OPENER_OPEN || strnlen(request->path, sizeof(request->path)) == sizeof(request->path))
        hutch_err_set(&reply.err, EPROTO, "an order that the opener does not know");
    else if (hutch_mounts_open(request->path, request->flags & (MOUNT_RDONLY | MOUNT_IDMAP), &as, &fd, &lacks_map,
                               &reply.err) == 0) {
        if (!lacks_map || !request->uid) {
            say(sock, &reply, &fd, 1);
            return;
        }
        /* What it makes there would belong to an id that is another sandbox's next. */
        hutch_err_set(&reply.err, EOPNOTSUPP, "map the owner of '%s' to the sandbox's own uid (the file system cannot; "
                      "a policy with \"own_uid\": \"off\" does without)", request->path);
    }
    reply.what = OPENER_FAILED;
    say(sock, &reply, NULL, 0);
}

/* The engine hears of it by @news. It alone keeps the socket: the disk worker ends with it, when it has done what it
 * was given. */
static int start_disk_worker(int sock, struct opener_reply *news, struct disk_worker_process *disk)
{
    auto_fd theirs = -1;

    hutch_fd_closep(&disk->pidfd);
    disk->pid = hutch_disk_start(&theirs, &disk->pidfd, &news->err);
    if (disk->pid < 0)
        return -1;
    hutch_fdpass_send(sock, news, sizeof(*news), (int[]){ theirs, disk->pidfd }, 2, 0);
    return 0;
}

/* Somebody has killed it, or the engine has, as it did not answer. */
static void replace_disk_worker(int sock, struct disk_worker_process *disk)
{
    struct opener_reply news = { .what = OPENER_DISK };

    TEMP_FAILURE_RETRY(waitpid(disk->pid, NULL, 0));
    nanosleep(&(struct timespec){ .tv_nsec = RESTART_PAUSE_MS * 1000000l }, NULL);
    if (start_disk_worker(sock, &news, disk) < 0) /* the engine does its work itself */
        hutch_log_debug("opener: %s", news.err.msg);
}

static bool is_over_within(int pidfd, int ms)
{
    struct pollfd p = { .fd = pidfd, .events = POLLIN };

    return pidfd < 0 || poll(&p, 1, ms) == 1;
}

/* Whatever hangs in there is left to the kernel, which has its SIGKILL. */
static void end_all(int anchor_pidfd, const struct disk_worker_process *disk)
{
    syscall(SYS_pidfd_send_signal, anchor_pidfd, SIGKILL, NULL, 0);
    if (disk->pid > 0)
        kill(disk->pid, SIGTERM); /* it finishes what must not be left half done */
    if (!is_over_within(disk->pidfd, DISK_END_MS) && disk->pid > 0)
        kill(disk->pid, SIGKILL);
    is_over_within(anchor_pidfd, END_MS);
    is_over_within(disk->pidfd, END_MS);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

int hutch_opener_main(int sock, const char *cgroup, const char *why_not)
{
    struct opener_reply hello = { .what = OPENER_HELLO };
    struct cgroup_base base = CGROUP_BASE_INIT;
    struct disk_worker_process disk = { .pidfd = -1 };
    struct id_plan plan;
    struct hutch_err why_no_range = { 0 };
    auto_fd pidfd = -1, engine = -1;

    signal(SIGPIPE, SIG_IGN);
    /* How many descriptors may be on their way through sockets is counted for all processes of a user together, and
     * held against the sender's limit on open files: unix(7), ETOOMANYREFS. So this one is above what any sandbox has,
     * or a program that leaves many in a queue would keep the engine of its user from sending any. */
    hutch_rlimits_raise_open_files();
    umask(022); /* whatever the caller's is, it is not for cgroups */
    setsid(); /* a Ctrl-C in the caller's terminal is the caller's */
    snprintf(base.why_not, sizeof(base.why_not), "%s", why_not);
    if (watch_engine(sock, &engine, &hello.err) < 0 || hutch_userns_plan(&plan, &hello.err) < 0 ||
        (cgroup[0] && hutch_cgroup_make_base(cgroup, plan.host_uid, plan.host_gid, &base, &hello.err) < 0) ||
        enter_own_namespaces(&plan, &why_no_range, &hello.err) < 0) {
        give_up(sock, &hello);
        return 1;
    }
    if (cgroup[0] && why_not[0]) /* why the base that this is below lacks something */
        snprintf(base.why_not, sizeof(base.why_not), "%s", why_not);
    hello.is_mapped_away = plan.is_mapped_away;
    hello.ids = plan.range;
    hello.err = why_no_range;
    if (start_disk_worker(sock, &hello, &disk) < 0 || clone_anchor(sock, &plan, &base, &pidfd, &hello.err) < 0) {
        give_up(sock, &hello);
        return 1;
    }
    for (;;) {
        struct pollfd p[] = { { .fd = sock, .events = POLLIN },
                              { .fd = pidfd, .events = POLLIN },
                              { .fd = engine, .events = POLLIN },
                              { .fd = disk.pid > 0 ? disk.pidfd : -1, .events = POLLIN } };
        struct opener_request request;
        auto_fd given = -1;
        size_t n_fds;
        ssize_t n;

        if (poll(p, ARRAY_SIZE(p), -1) < 0 && errno != EINTR)
            break;
        if (p[1].revents || p[2].revents)
            break; /* an engine that lives sees its sockets close, and starts anew */
        if (p[3].revents && !(p[0].revents & POLLHUP)) /* it ends with the engine, too */
            replace_disk_worker(sock, &disk);
        if (!p[0].revents)
            continue;
        n = hutch_fdpass_receive(sock, &request, sizeof(request), &given, 1, &n_fds, 0);
        if (n <= 0)
            break;
        if (n == (ssize_t)sizeof(request))
            serve_one(sock, &request, given, &plan);
    }
    end_all(pidfd, &disk);
    hutch_fd_closep(&disk.pidfd);
    hutch_cgroup_base_done(&base);
    return 0;
}
