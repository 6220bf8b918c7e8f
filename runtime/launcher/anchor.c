#include "runtime/launcher/anchor.h"

#include "sandbox/cgroup.h"
#include "sandbox/fd.h"
#include "sandbox/fdpass.h"
#include "runtime/launcher/launcher.h"
#include "sandbox/mounts.h"
#include "sandbox/spec.h"
#include "sandbox/userns.h"
#include "runtime/launcher/wire.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define RESTART_PAUSE_MS 5 /* between two launchers: one that dies at once must not keep a CPU busy */

static _Noreturn void give_up(int sock, const struct hutch_err *err)
{
    struct opener_reply reply = { .what = OPENER_FAILED, .err = *err };

    hutch_fdpass_send(sock, &reply, sizeof(reply), NULL, 0, MSG_DONTWAIT);
    _exit(1);
}

/* For a caller who is root: from here on an ordinary host user, with all capabilities over the new namespaces. */
static int become_unprivileged(const struct id_plan *plan, struct hutch_err *err)
{
    struct sandbox_spec identity = { .uid_inside = plan->host_uid, .gid_inside = plan->host_gid };

    if (!plan->is_mapped_away)
        return 0;
    if (hutch_userns_enter(&identity, plan, err) < 0)
        return -1;
    /* The change of user took it: prctl(2). Without, a child's id maps would belong to somebody else. Other processes
     * of that user on the host lack the capabilities over this namespace that looking in would take: ptrace(2). */
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        return hutch_err_set(err, errno, "make the anchor's own /proc entries its own");
    return 0;
}

/* What looks its own processes up in /proc finds those of other pid namespaces there. Inside a container
 * the kernel refuses a fresh one where parts of the /proc around hutch are covered. That one stays, in sight of the
 * anchor and the launcher alone: a child is found in it by its pidfd (sandbox/proc_number.h), and each zygote and
 * sandbox tries for a procfs of its own, as its policy says (sandbox/mounts.c). */
static int mount_own_proc(struct hutch_err *err)
{
    if (hutch_mounts_cut_off(err) < 0)
        return -1;
    if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 && errno != EPERM)
        return hutch_err_set(err, errno, "mount /proc");
    return 0;
}

static pid_t start_launcher(int sock, const struct id_plan *plan, const struct cgroup_base *base, struct hutch_err *err)
{
    struct opener_reply news = { .what = OPENER_LAUNCHER };
    int pair[2], fds[3];
    auto_fd pidfd = -1, own_pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return hutch_err_set(err, errno, "make the launcher's socket");
    pid = fork();
    if (pid == 0) {
        close(sock);
        close(pair[0]);
        hutch_launcher_main(pair[1], base, plan->is_mapped_away);
    }
    close(pair[1]);
    if (pid > 0) {
        pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        fds[0] = pair[0];
        fds[1] = pidfd;
        fds[2] = own_pidfd;
        if (pidfd < 0 || own_pidfd < 0)
            pid = hutch_err_set(err, errno, "hold the launcher");
        else if (hutch_fdpass_send(sock, &news, sizeof(news), fds, ARRAY_SIZE(fds), 0) < 0)
            pid = hutch_err_set(err, errno, "tell the engine of its launcher");
    } else {
        hutch_err_set(err, errno, "fork the launcher");
    }
    close(pair[0]);
    return pid;
}

_Noreturn void hutch_anchor_main(int sock, int go_fd, const struct id_plan *plan, const struct cgroup_base *base)
{
    struct pollfd opener = { .fd = go_fd, .events = POLLIN };
    struct hutch_err err;
    pid_t launcher;
    sigset_t chld;
    int signals;
    char go;

    if (TEMP_FAILURE_RETRY(read(go_fd, &go, 1)) != 1)
        _exit(1);
    if (become_unprivileged(plan, &err) < 0 || mount_own_proc(&err) < 0)
        give_up(sock, &err);
    if (plan->is_mapped_away &&
        mount("tmpfs", LAUNCHER_SHELF, "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,mode=711") < 0) {
        hutch_err_set(&err, errno, "mount a place for the launcher's sources");
        give_up(sock, &err);
    }
    prctl(PR_SET_NAME, "hutch-anchor", 0, 0, 0);
    /* After the change of user, which clears it: prctl(2). An opener that died before is seen on the pipe; getppid(2)
     * is 0 here, and the socket has its other end in the engine. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0) {
        hutch_err_set(&err, errno, "ask to die with the opener");
        give_up(sock, &err);
    }
    if (TEMP_FAILURE_RETRY(poll(&opener, 1, 0)) != 0)
        _exit(1);
    close(go_fd);
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, NULL);
    signal(SIGCHLD, SIG_DFL);
    signals = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
    launcher = start_launcher(sock, plan, base, &err);
    if (signals < 0 || launcher < 0)
        give_up(sock, &err);
    for (;;) {
        struct pollfd p[] = { { .fd = signals, .events = POLLIN }, { .fd = sock, .events = 0 } };
        struct signalfd_siginfo info;
        pid_t pid;

        if (poll(p, ARRAY_SIZE(p), -1) < 0 && errno != EINTR)
            _exit(1);
        if (p[1].revents) /* POLLHUP: the engine is gone */
            _exit(0);
        while (read(signals, &info, sizeof(info)) > 0)
            ;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            if (pid == launcher) {
                nanosleep(&(struct timespec){ .tv_nsec = RESTART_PAUSE_MS * 1000000l }, NULL);
                launcher = start_launcher(sock, plan, base, &err);
                if (launcher < 0)
                    give_up(sock, &err);
            }
    }
}
