#include "sandbox/exec.h"

#include "sandbox/execute.h"
#include "sandbox/fd.h"
#include "sandbox/init.h"
#include "sandbox/spec.h"
#include "sandbox/worker.h"

static _Noreturn void report_and_exit(int errpipe_w, enum init_msg_kind kind, const struct hutch_err *err)
{
    struct init_msg msg = { .kind = kind, .err = *err };

    _exit(hutch_fd_write_all(errpipe_w, &msg, sizeof(msg)) < 0 ? 126 : 127);
}

_Noreturn void hutch_exec_main(const struct init_job *job, int errpipe_w)
{
    struct worker_gear gear = { .plan = job->plan,
                                .stdio = { job->stdio[0], job->stdio[1], job->stdio[2] },
                                .report_fd = job->report_fd,
                                .landlock_fd = job->landlock_fd,
                                .cwd = job->spec->cwd,
                                .seccomp = &job->seccomp,
                                .will_exec = true };
    struct hutch_err err = { 0 };
    int e;

    if (hutch_worker_confine(&gear, &err) < 0)
        report_and_exit(errpipe_w, INIT_SETUP_FAILED, &err);
    e = hutch_execute(hutch_spec_get_env(job->spec, "PATH"), job->spec->argv, job->spec->envp);
    hutch_err_set(&err, e, "execute '%s'%s", job->spec->argv[0], e == ENOENT ? " (is it in this image?)" : "");
    report_and_exit(errpipe_w, INIT_EXEC_FAILED, &err);
}
