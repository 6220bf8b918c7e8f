#include "sandbox/zygote.h"

#include "sandbox/exec.h"
#include "sandbox/fd.h"
#include "sandbox/spec.h"
#include "sandbox/steps.h"
#include "sandbox/zygote_wire.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

_Static_assert(ZYGOTE_SOCKET_FD == INIT_REPORT_FD, "the order socket crosses execve(2) as the report descriptor");

/* What comes after is hutch_exec_main(): no capabilities, no_new_privs, and execve(2). */
static const struct {
    const char *doing;
    int (*apply)(struct init_job *job, struct hutch_err *err);
} zygote_steps[] = {
    { "shed the caller's scheduling", hutch_step_shed_scheduling },
    { "bound the network's buffers",  hutch_step_bound_buffers },
    { "name the host",                hutch_step_name_host },      /* the mount tree has a file with that name */
    { "build the mount tree",         hutch_step_build_mounts },   /* the host's tree is gone afterwards */
    { "show the sandbox's memory",    hutch_step_show_memory },    /* what modules remember of it: all is free */
    { "bring up the network",         hutch_step_raise_loopback },
    { "close inherited descriptors",  hutch_step_close_inherited },
};

/* What a zygote's helper needs beyond what programs may do. A worker inherits this filter and loads its own on top, in
 * which all of it is as restricted as ever: of several filters the strictest answer counts, seccomp(2). */
static const char *const granted[] = {
    "setns", "clone3",                              /* into the sandbox, and into its cgroup */
    "setresuid", "setresgid",                       /* … as its user */
    "prctl", "capget", "capset", "close_range",     /* hutch_worker_confine() */
    "prlimit64", "setrlimit", "sched_setaffinity", "landlock_restrict_self", "seccomp",
    "memfd_create",                                 /* rootfs/helper/freeze.c */
    NULL,
};

static int compile_filter(const struct sandbox_spec *spec, struct init_job *job, struct hutch_err *err)
{
    struct seccomp_rules rules = spec->seccomp;

    if (spec->layers[LAYER_SECCOMP] == NEED_OFF)
        return 0;
    rules.granted = granted;
    if (hutch_seccomp_compile(&rules, &job->seccomp, err) < 0)
        return hutch_err_wrap(err, "compile the zygote's seccomp profile");
    job->plan.has_seccomp = true;
    return 0;
}

static _Noreturn void zygote_main(struct init_job *job)
{
    struct init_msg msg = { .kind = INIT_SETUP_FAILED };

    for (size_t i = 0; i < ARRAY_SIZE(zygote_steps); i++)
        if (zygote_steps[i].apply(job, &msg.err) < 0) {
            hutch_err_wrap(&msg.err, "%s", zygote_steps[i].doing);
            _exit(hutch_fd_write_all(job->control_fd, &msg, sizeof(msg)) < 0);
        }
    hutch_exec_main(job, job->control_fd);
}

/* Nothing, when execve(2) has closed the pipe. */
static int hear_report(int errpipe_r, struct hutch_err *err)
{
    struct init_msg msg;
    ssize_t n = hutch_fd_read_full(errpipe_r, &msg, sizeof(msg));

    if (n == 0)
        return 0;
    if (n != (ssize_t)sizeof(msg))
        return hutch_err_set(err, n < 0 ? errno : EPROTO, "read the zygote's setup report");
    *err = msg.err;
    return -1;
}

int hutch_zygote_start(const struct sandbox_spec *spec, int order_fd, int stderr_fd, pid_t *ret_pid, int *ret_pidfd,
                       struct hutch_err *err)
{
    auto_fd null = open("/dev/null", O_RDWR | O_CLOEXEC), pidfd = -1;
    struct init_job job = { .spec = spec,
                            .sources = MOUNT_SOURCES_INIT,
                            .landlock_fd = -1,
                            .meminfo = MEMINFO_INIT,
                            .stdio = { null, null, stderr_fd >= 0 ? stderr_fd : null },
                            .report_fd = order_fd };
    struct clone_args args = {
        .flags = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET | CLONE_PIDFD,
        .pidfd = (__u64)(uintptr_t)&pidfd,
        .exit_signal = SIGCHLD,
    };
    int pipefd[2], rc = -1;
    pid_t pid;

    if (null < 0)
        return hutch_err_set(err, errno, "open '/dev/null'");
    job.meminfo.limit = spec->limits[LIMIT_MEMORY];
    if (hutch_userns_plan(&job.ids, err) < 0 || hutch_mounts_sources_init(spec, &job.sources, err) < 0)
        return -1;
    hutch_rlimits_plan(spec, true, &job.plan.rlimits);
    if (compile_filter(spec, &job, err) < 0)
        goto out;
    if (pipe2(pipefd, O_CLOEXEC) < 0) {
        hutch_err_set(err, errno, "make a pipe");
        goto out;
    }
    job.control_fd = pipefd[1];
    pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0)
        zygote_main(&job);
    close(pipefd[1]);
    if (pid < 0)
        hutch_err_set(err, errno, "make the zygote's namespaces");
    else if (hear_report(pipefd[0], err) == 0)
        rc = 0;
    else
        TEMP_FAILURE_RETRY(waitpid(pid, NULL, 0));
    close(pipefd[0]);
    if (rc == 0) {
        *ret_pid = pid;
        *ret_pidfd = hutch_fd_take(&pidfd);
    }
out:
    hutch_seccomp_program_done(&job.seccomp);
    hutch_mounts_sources_done(&job.sources);
    return rc;
}
