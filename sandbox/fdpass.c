#include "sandbox/fdpass.h"

#include "sandbox/fd.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

/* A blocking send waits for a second at most where too many descriptors are on their way. */
#define ROOM_PAUSE_MS 10
#define ROOM_ATTEMPTS 100

#define SENDER_STACK_BYTES (64 << 10)

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* include/uapi/asm-generic/socket.h, since Linux 6.16 */
#endif

union control {
    struct cmsghdr align;
    char buf[CMSG_SPACE(FDPASS_MAX * sizeof(int))];
};

struct sending {
    int sock, flags;
    const struct msghdr *msg;
    struct rlimit limit;
    ssize_t n;
    int errnum;
};

static ssize_t send_once(int sock, const struct msghdr *msg, int flags)
{
    return TEMP_FAILURE_RETRY(sendmsg(sock, msg, MSG_NOSIGNAL | flags));
}

static int send_with_higher_limit(void *arg)
{
    struct sending *sending = arg;

    setrlimit(RLIMIT_NOFILE, &sending->limit);
    sending->n = send_once(sending->sock, sending->msg, sending->flags);
    sending->errnum = errno;
    return 0;
}

/* The kernel counts descriptors on their way for a user and compares with the soft limit of the sender, which is the
 * host's of this library and stays as it is. So the sender is a process of its own for the length of one call: it has
 * this one's memory and descriptors, and a limit of its own. Signals wait meanwhile, as the host's handlers would run
 * in it, too. */
static ssize_t send_as_another(int sock, const struct msghdr *msg, int flags)
{
    struct sending sending = { .sock = sock, .flags = flags, .msg = msg, .n = -1, .errnum = ETOOMANYREFS };
    sigset_t all, before;
    char *stack = MAP_FAILED;
    pid_t pid;

    if (getrlimit(RLIMIT_NOFILE, &sending.limit) == 0 && sending.limit.rlim_cur < sending.limit.rlim_max)
        stack = mmap(NULL, SENDER_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) {
        errno = ETOOMANYREFS;
        return -1;
    }
    sending.limit.rlim_cur = sending.limit.rlim_max;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pid = clone(send_with_higher_limit, stack + SENDER_STACK_BYTES, CLONE_VM | CLONE_FILES | CLONE_VFORK, &sending);
    if (pid > 0)
        TEMP_FAILURE_RETRY(waitpid(pid, NULL, __WCLONE));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    munmap(stack, SENDER_STACK_BYTES);
    errno = sending.errnum;
    return sending.n;
}

ssize_t hutch_fdpass_send2(int sock, const void *head, size_t head_len, const void *tail, size_t tail_len,
                           const int *fds, size_t n_fds, int flags)
{
    struct iovec parts[] = { { (void *)head, head_len }, { (void *)tail, tail_len } };
    struct msghdr msg = { .msg_iov = parts, .msg_iovlen = tail_len ? 2 : 1 };
    union control control;

    if (n_fds > FDPASS_MAX) {
        errno = EINVAL;
        return -1;
    }
    if (n_fds > 0) {
        struct cmsghdr *c;

        msg.msg_control = control.buf;
        msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        memset(control.buf, 0, msg.msg_controllen);
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
    }
    for (int i = 0;; i++) {
        const struct timespec pause = { .tv_nsec = ROOM_PAUSE_MS * 1000000l };
        ssize_t n = send_once(sock, &msg, flags);

        if (n < 0 && errno == ETOOMANYREFS)
            n = send_as_another(sock, &msg, flags);
        if (n >= 0 || errno != ETOOMANYREFS || (flags & MSG_DONTWAIT) || i == ROOM_ATTEMPTS)
            return n;
        nanosleep(&pause, NULL);
        errno = ETOOMANYREFS;
    }
}

ssize_t hutch_fdpass_send(int sock, const void *buf, size_t len, const int *fds, size_t n_fds, int flags)
{
    return hutch_fdpass_send2(sock, buf, len, NULL, 0, fds, n_fds, flags);
}

ssize_t hutch_fdpass_receive(int sock, void *buf, size_t len, int *fds, size_t max_fds, size_t *ret_n, int flags)
{
    struct iovec part = { buf, len };
    union control control;
    struct msghdr msg = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control.buf)
    };
    ssize_t n = TEMP_FAILURE_RETRY(recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | flags));
    size_t kept = 0;

    *ret_n = 0;
    if (n < 0)
        return -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
            if (kept < max_fds)
                fds[kept++] = fd;
            else
                close(fd);
        }
    }
    if (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        while (kept > 0)
            hutch_fd_closep(&fds[--kept]);
        errno = EMSGSIZE;
        return -1;
    }
    *ret_n = kept;
    return n;
}

int hutch_fdpass_forbid(int sock)
{
    return setsockopt(sock, SOL_SOCKET, SO_PASSRIGHTS, &(int){ 0 }, sizeof(int));
}
