#include "sandbox/attach.h"

#include "sandbox/fd.h"
#include "sandbox/mounts.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

int hutch_attach_open(pid_t pid, int *ret_fd, struct hutch_err *err)
{
    char path[40];

    snprintf(path, sizeof(path), "/proc/%d/ns/mnt", pid);
    *ret_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*ret_fd < 0)
        return hutch_err_set(err, errno, "open '%s'", path);
    return 0;
}

/* By the descriptors of the namespaces and not by init's pidfd, which would need the right to trace init: setns(2). */
static int join(int ns_fd, struct hutch_err *err)
{
    auto_fd user_fd = ioctl(ns_fd, NS_GET_USERNS);

    if (user_fd < 0 || setns(user_fd, CLONE_NEWUSER) < 0 || setns(ns_fd, CLONE_NEWNS) < 0)
        return hutch_err_set(err, errno, "join the sandbox's mount namespace");
    return 0;
}

static _Noreturn void attach_main(const struct sandbox_spec *spec, int ns_fd, int mount_fd, int report_fd)
{
    struct hutch_err err = { 0 };

    if (join(ns_fd, &err) == 0 && hutch_mounts_attach_data(spec, mount_fd, &err) == 0)
        _exit(0);
    _exit(hutch_fd_write_all(report_fd, &err, sizeof(err)) < 0 ? 2 : 1);
}

int hutch_attach_data(const struct sandbox_spec *spec, int ns_fd, int mount_fd, struct hutch_err *err)
{
    int pipefd[2], status = 0;
    struct hutch_err why;
    ssize_t n;
    pid_t pid;

    if (pipe2(pipefd, O_CLOEXEC) < 0)
        return hutch_err_set(err, errno, "make a pipe");
    pid = fork();
    if (pid == 0)
        attach_main(spec, ns_fd, mount_fd, pipefd[1]);
    close(pipefd[1]);
    if (pid < 0) {
        hutch_err_set(err, errno, "fork a process that attaches the data directory");
        close(pipefd[0]);
        return -1;
    }
    n = hutch_fd_read_full(pipefd[0], &why, sizeof(why));
    close(pipefd[0]);
    if (TEMP_FAILURE_RETRY(waitpid(pid, &status, 0)) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (n != (ssize_t)sizeof(why))
        return hutch_err_set(err, 0, "the process that attaches the data directory ended without a word");
    *err = why;
    return -1;
}
