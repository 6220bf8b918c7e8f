#include "worker.h"

#include "caps.h"
#include "fd.h"
#include "init.h"
#include "landlock.h"
#include "spec.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static int start_session(const struct init_job *job, struct hutch_err *err)
{
    static const unsigned long dfl[8]; /* the kernel's struct sigaction, all zeros: SIG_DFL */
    sigset_t none;

    (void)job;
    if (setsid() < 0)
        return hutch_err_set(err, errno, "start a session");
    /* sigaction(3) keeps two signals for libc's own use, and an ignored one survives execve(2) like the others. The call
     * fails for SIGKILL and SIGSTOP only, which have no disposition. */
    for (int sig = 1; sig < NSIG; sig++)
        syscall(SYS_rt_sigaction, sig, dfl, NULL, (NSIG - 1) / 8);
    sigemptyset(&none);
    if (sigprocmask(SIG_SETMASK, &none, NULL) < 0)
        return hutch_err_set(err, errno, "unblock signals");
    umask(022);
    return 0;
}

static int take_streams(const struct init_job *job, struct hutch_err *err)
{
    int want[4] = { job->stdio[0], job->stdio[1], job->stdio[2], job->report_fd };
    int count = job->report_fd >= 0 ? 4 : 3;

    for (int i = 0; i < count; i++) { /* out of the way first, or one dup2 could close the source of the next */
        want[i] = fcntl(want[i], F_DUPFD_CLOEXEC, 16);
        if (want[i] < 0)
            return hutch_err_set(err, errno, "hold stream %d", i);
    }
    for (int i = 0; i < count; i++)
        if (dup2(want[i], i) < 0)
            return hutch_err_set(err, errno, "take stream %d", i);
    /* Everything else goes with execve(2), the error pipe among it. Linux 5.11. */
    if (syscall(SYS_close_range, count, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
        return hutch_err_set(err, errno, "close inherited descriptors");
    return 0;
}

static int enter_cwd(const struct init_job *job, struct hutch_err *err)
{
    if (chdir(job->spec->cwd) < 0)
        return hutch_err_set(err, errno, "'%s' inside the sandbox", job->spec->cwd);
    return 0;
}

static int drop_caps(const struct init_job *job, struct hutch_err *err)
{
    (void)job;
    return hutch_caps_drop_all(err);
}

static int set_no_new_privs(const struct init_job *job, struct hutch_err *err)
{
    (void)job;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return hutch_err_set(err, errno, "set no_new_privs");
    return 0;
}

static int apply_rlimits(const struct init_job *job, struct hutch_err *err)
{
    return hutch_rlimits_apply(&job->rlimits, err);
}

static int apply_landlock(const struct init_job *job, struct hutch_err *err)
{
    return job->landlock_abi ? hutch_landlock_apply(job->spec, job->landlock_abi, err) : 0;
}

static int apply_seccomp(const struct init_job *job, struct hutch_err *err)
{
    return job->spec->layers[LAYER_SECCOMP] == NEED_OFF ? 0 : hutch_seccomp_load(&job->seccomp, err);
}

static const struct {
    const char *doing;
    int (*apply)(const struct init_job *job, struct hutch_err *err);
} worker_steps[] = {
    { "start a session of its own",     start_session },
    { "take the standard streams",      take_streams },      /* nothing else of the host stays open */
    { "enter the working directory",    enter_cwd },
    { "drop capabilities",              drop_caps },
    { "set no_new_privs",               set_no_new_privs },  /* the last two need it: landlock(7), seccomp(2) */
    { "set resource limits",            apply_rlimits },     /* after the drop: no capability may exceed them */
    { "restrict file access",           apply_landlock },    /* after all mounts: it forbids mount(2) from here */
    { "load the seccomp filter",        apply_seccomp },     /* last: it denies calls made above */
};

/* execvpe(3) without malloc: PATH is that of the new environment. EACCES beats ENOENT, as shells have it. */
static int execute(const struct sandbox_spec *spec)
{
    const char *file = spec->argv[0], *path;
    int result = ENOENT;
    char full[PATH_MAX];

    if (strchr(file, '/')) {
        execve(file, spec->argv, spec->envp);
        return errno;
    }
    path = hutch_spec_get_env(spec, "PATH");
    for (path = path ? path : "/usr/local/bin:/usr/bin:/bin"; *path;) {
        size_t len = strcspn(path, ":");

        if (len > 0 && len + 1 + strlen(file) < sizeof(full)) {
            memcpy(full, path, len);
            full[len] = '/';
            strcpy(full + len + 1, file);
            execve(full, spec->argv, spec->envp);
            if (errno != ENOENT && errno != ENOTDIR)
                result = errno;
        }
        path += len + (path[len] == ':');
    }
    return result;
}

static _Noreturn void report_and_exit(int errpipe_w, enum init_msg_kind kind, const struct hutch_err *err)
{
    struct init_msg msg = { .kind = kind, .err = *err };

    _exit(hutch_fd_write_all(errpipe_w, &msg, sizeof(msg)) < 0 ? 126 : 127);
}

_Noreturn void hutch_worker_main(const struct init_job *job, int errpipe_w)
{
    struct hutch_err err = { 0 };
    int e;

    for (size_t i = 0; i < ARRAY_SIZE(worker_steps); i++)
        if (worker_steps[i].apply(job, &err) < 0) {
            hutch_err_wrap(&err, "%s", worker_steps[i].doing);
            report_and_exit(errpipe_w, INIT_SETUP_FAILED, &err);
        }
    e = execute(job->spec);
    hutch_err_set(&err, e, "execute '%s'%s", job->spec->argv[0], e == ENOENT ? " (is it in this image?)" : "");
    report_and_exit(errpipe_w, INIT_EXEC_FAILED, &err);
}
