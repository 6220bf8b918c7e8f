#include "runtime/gateway/channel.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

int hutch_channel_open(struct channel *ret, struct hutch_err *err)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return hutch_err_set(err, errno, "make a channel for a worker");
    *ret = (struct channel){ .in = pair[0], .out = pair[1] };
    return 0;
}

void hutch_channel_done(struct channel *c)
{
    hutch_fd_closep(&c->in);
    hutch_fd_closep(&c->out);
}

int hutch_channel_send(const struct channel *c, const struct channel_message *message, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = { .bytes = "" };
    struct iovec iov = { .iov_base = (void *)message, .iov_len = sizeof(*message) };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    ssize_t n;

    if (fd >= 0) {
        struct cmsghdr *header;

        msg.msg_control = control.bytes;
        msg.msg_controllen = sizeof(control.bytes);
        header = CMSG_FIRSTHDR(&msg);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &fd, sizeof(int));
    }
    do
        n = sendmsg(c->out, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof(*message) ? 0 : -1;
}

int hutch_channel_receive(const struct channel *c, struct channel_message *ret, int *ret_fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = { .iov_base = ret, .iov_len = sizeof(*ret) };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes,
                          .msg_controllen = sizeof(control.bytes) };
    const struct cmsghdr *header;
    ssize_t n;

    *ret_fd = -1;
    do
        n = recvmsg(c->in, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(*ret) || ret->kind >= CHANNEL_KIND_COUNT)
        return 0; /* both ends are this server's, so it is not short */
    header = CMSG_FIRSTHDR(&msg);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
        memcpy(ret_fd, CMSG_DATA(header), sizeof(int));
    ret->text[sizeof(ret->text) - 1] = '\0';
    return 1;
}
