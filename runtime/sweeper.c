#include "sweeper.h"

#include "fd.h"
#include "fdpass.h"
#include "log.h"
#include "rmtree.h"
#include "warm.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

static _Noreturn void sweep(int sock)
{
    prctl(PR_SET_NAME, "hutch-sweeper", 0, 0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        _exit(1);
    for (;;) {
        struct sweep_request request;
        struct hutch_err err;
        auto_fd dirfd = -1;
        size_t n_fds;
        ssize_t n = hutch_fdpass_receive(sock, &request, sizeof(request), &dirfd, 1, &n_fds, 0);

        if (n <= 0)
            _exit(0);
        if (n != (ssize_t)sizeof(request) || n_fds != 1 || !memchr(request.name, '\0', sizeof(request.name)) ||
            strchr(request.name, '/') || request.name[0] == '.' || !request.name[0])
            continue;
        if (hutch_rmtree(dirfd, request.name, &err) < 0)
            hutch_log_debug("sweeper: %s", err.msg); /* the next start of an engine tries again */
    }
}

pid_t hutch_sweeper_start(int *ret_sock, struct hutch_err *err)
{
    int pair[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return hutch_err_set(err, errno, "make the sweeper's socket");
    pid = fork();
    if (pid == 0) {
        int sock = dup3(pair[1], WARM_SOCKET_FD, O_CLOEXEC);

        if (sock < 0 || syscall(SYS_close_range, WARM_SOCKET_FD + 1, ~0u, 0) < 0)
            _exit(1);
        sweep(sock);
    }
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return hutch_err_set(err, errno, "fork the sweeper");
    }
    *ret_sock = pair[0];
    return pid;
}
