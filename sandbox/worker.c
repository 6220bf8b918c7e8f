#include "sandbox/worker.h"

#include "sandbox/caps.h"
#include "sandbox/fd.h"
#include "sandbox/landlock.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static int start_session(const struct worker_gear *gear, struct hutch_err *err)
{
    static const unsigned long dfl[8]; /* the kernel's struct sigaction, all zeros: SIG_DFL */
    sigset_t none;

    (void)gear;
    if (setsid() < 0)
        return hutch_err_set(err, errno, "start a session");
    /* sigaction(3) keeps two signals for libc's own use, and an ignored one survives execve(2) like the others. The
     * call fails for SIGKILL and SIGSTOP only, which have no disposition. */
    for (int sig = 1; sig < NSIG; sig++)
        syscall(SYS_rt_sigaction, sig, dfl, NULL, (NSIG - 1) / 8);
    sigemptyset(&none);
    if (sigprocmask(SIG_SETMASK, &none, NULL) < 0)
        return hutch_err_set(err, errno, "unblock signals");
    umask(022);
    return 0;
}

static int take_streams(const struct worker_gear *gear, struct hutch_err *err)
{
    int want[4] = { gear->stdio[0], gear->stdio[1], gear->stdio[2], gear->report_fd };
    int count = gear->report_fd >= 0 ? 4 : 3;

    for (int i = 0; i < count; i++) { /* out of the way first, or one dup2 could close the source of the next */
        want[i] = fcntl(want[i], F_DUPFD_CLOEXEC, 16);
        if (want[i] < 0)
            return hutch_err_set(err, errno, "hold stream %d", i);
    }
    for (int i = 0; i < count; i++)
        if (dup2(want[i], i) < 0)
            return hutch_err_set(err, errno, "take stream %d", i);
    /* Everything else goes with execve(2), the error pipe among it. Linux 5.11. */
    if (gear->will_exec && syscall(SYS_close_range, count, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
        return hutch_err_set(err, errno, "close inherited descriptors");
    return 0;
}

static int enter_cwd(const struct worker_gear *gear, struct hutch_err *err)
{
    if (chdir(gear->cwd) < 0)
        return hutch_err_set(err, errno, "'%s' inside the sandbox", gear->cwd);
    return 0;
}

static int drop_caps(const struct worker_gear *gear, struct hutch_err *err)
{
    (void)gear;
    return hutch_caps_drop_all(err);
}

static int set_no_new_privs(const struct worker_gear *gear, struct hutch_err *err)
{
    (void)gear;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return hutch_err_set(err, errno, "set no_new_privs");
    return 0;
}

static int apply_rlimits(const struct worker_gear *gear, struct hutch_err *err)
{
    return hutch_rlimits_apply(&gear->plan.rlimits, err);
}

static int apply_landlock(const struct worker_gear *gear, struct hutch_err *err)
{
    return gear->plan.has_landlock ? hutch_landlock_enforce(gear->landlock_fd, err) : 0;
}

static int close_rest(const struct worker_gear *gear, struct hutch_err *err)
{
    if (!gear->will_exec && syscall(SYS_close_range, gear->report_fd >= 0 ? 4 : 3, ~0u, 0) < 0)
        return hutch_err_set(err, errno, "close inherited descriptors");
    return 0;
}

static int before_filter(const struct worker_gear *gear, struct hutch_err *err)
{
    return gear->before_filter ? gear->before_filter(err) : 0;
}

static int apply_seccomp(const struct worker_gear *gear, struct hutch_err *err)
{
    return gear->plan.has_seccomp ? hutch_seccomp_load(gear->seccomp, err) : 0;
}

static const struct {
    const char *doing;
    int (*apply)(const struct worker_gear *gear, struct hutch_err *err);
} worker_steps[] = {
    { "start a session of its own",     start_session },
    { "take the standard streams",      take_streams },      /* nothing else of the host stays open */
    { "enter the working directory",    enter_cwd },
    { "drop capabilities",              drop_caps },
    { "set no_new_privs",               set_no_new_privs },  /* the last two need it: landlock(7), seccomp(2) */
    { "set resource limits",            apply_rlimits },     /* after the drop: no capability may exceed them */
    { "restrict file access",           apply_landlock },    /* after all mounts: it forbids mount(2) from here */
    { "close what is left",             close_rest },        /* where no execve(2) will */
    { "start the memory holder",        before_filter },     /* rootfs/helper/helper.c; it has its own filter */
    { "load the seccomp filter",        apply_seccomp },     /* last: it denies calls made above */
};

int hutch_worker_confine(const struct worker_gear *gear, struct hutch_err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(worker_steps); i++)
        if (worker_steps[i].apply(gear, err) < 0)
            return hutch_err_wrap(err, "%s", worker_steps[i].doing);
    return 0;
}
