#include "sandbox/exec.h"

#include "sandbox/fd.h"
#include "sandbox/init.h"
#include "sandbox/spec.h"
#include "sandbox/worker.h"

#include <string.h>

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
    e = execute(job->spec);
    hutch_err_set(&err, e, "execute '%s'%s", job->spec->argv[0], e == ENOENT ? " (is it in this image?)" : "");
    report_and_exit(errpipe_w, INIT_EXEC_FAILED, &err);
}
