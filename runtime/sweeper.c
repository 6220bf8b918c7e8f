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

static int remove_directory(int dirfd, const char *name, struct hutch_err *err)
{
    if (strchr(name, '/') || name[0] == '.' || !name[0])
        return hutch_err_set(err, EPROTO, "an order to remove '%s'", name);
    return hutch_rmtree(dirfd, name, err);
}

/* The answer to an order about a state of a data directory. */
static void serve_state(const struct sweep_request *request, const int fds[2], struct sweeper_reply *reply)
{
    int store = fds[0], data = fds[1], rc;

    switch (request->what) {
    case SWEEPER_TAKE:
        rc = hutch_snapshot_take(data, store, request->name, &request->bounds, &reply->report, &reply->err);
        break;
    case SWEEPER_RESTORE:
        rc = hutch_snapshot_restore(data, store, request->name, &request->bounds, &reply->report, &reply->err);
        break;
    case SWEEPER_SWITCH:
        rc = hutch_snapshot_switch(data, store, request->name, request->keep, &reply->report, &reply->err);
        break;
    default:
        rc = hutch_err_set(&reply->err, EPROTO, "an order that the sweeper does not know");
    }
    reply->has_failed = rc < 0;
}

static _Noreturn void sweep(int sock)
{
    sigset_t term;

    prctl(PR_SET_NAME, "hutch-sweeper", 0, 0, 0);
    /* not SIGKILL: see hutch_snapshot_restore() for what it finishes first */
    signal(SIGTERM, SIG_DFL);
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_UNBLOCK, &term, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a caller's limit on file sizes is an error of write(2) */
    if (prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) < 0)
        _exit(1);
    for (;;) {
        struct sweep_request request;
        struct sweeper_reply reply = { .has_failed = 0 };
        int fds[2] = { -1, -1 };
        size_t n_fds = 0;
        ssize_t n = hutch_fdpass_receive(sock, &request, sizeof(request), fds, ARRAY_SIZE(fds), &n_fds, 0);

        if (n <= 0)
            _exit(0);
        if (n == (ssize_t)sizeof(request) && memchr(request.name, '\0', sizeof(request.name)) &&
            memchr(request.keep, '\0', sizeof(request.keep))) {
            if (request.what == SWEEPER_REMOVE && n_fds == 1) {
                if (remove_directory(fds[0], request.name, &reply.err) < 0)
                    hutch_log_debug("sweeper: %s", reply.err.msg); /* the next start of an engine tries again */
            } else if (n_fds == 2) {
                reply.id = request.id;
                serve_state(&request, fds, &reply);
                if (hutch_fdpass_send(sock, &reply, sizeof(reply), NULL, 0, 0) < 0)
                    _exit(0);
            }
        }
        hutch_fd_closep(&fds[0]);
        hutch_fd_closep(&fds[1]);
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
