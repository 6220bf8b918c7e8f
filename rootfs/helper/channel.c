/* channel.c - how the interpreter of a session (rootfs/python/zygote/cells.py) speaks: frames on its socket, and marks
 * in the two streams that tell which of their bytes came before a frame (docs/cells.md).
 *
 * In C for one reason: a KeyboardInterrupt may come between any two steps of Python code, and an incomplete frame would
 * be the end of the session. Nothing here lets Python look at signals. The interpreter's lock is held meanwhile, so
 * that threads take turns. */
#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#define TOKEN_LEN 32
#define MARK_LEN  (1 + TOKEN_LEN + 8 + 1)

EXPORT int hutch_channel_open(const char *token);
EXPORT void hutch_channel_move(int sock);
EXPORT int hutch_channel_send_unnumbered(int sock, const char *body, size_t len);
EXPORT int hutch_channel_send(const char *body, size_t len);
EXPORT int hutch_channel_write(int stream, const char *data, size_t len);
EXPORT void hutch_channel_deafen(void);

static struct {
    pid_t pid;      /* the process whose channel it is; its children have none */
    int sock;
    int streams[2]; /* duplicates of 1 and 2 as they were: a program may close or replace those */
    uint32_t count; /* of frames with a number */
    char token[TOKEN_LEN];
} channel = { .sock = -1, .streams = { -1, -1 } };

/* All of it, also when the program has made the descriptor non-blocking. */
static int write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);

        if (n < 0 && errno == EAGAIN) {
            struct pollfd wait = { .fd = fd, .events = POLLOUT };

            poll(&wait, 1, -1);
        } else if (n < 0 && errno != EINTR) {
            return -1;
        } else if (n > 0) {
            data += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

/* A frame whose object begins with @head. */
static int write_frame(int sock, const char *head, size_t head_len, const char *body, size_t len)
{
    char start[64];

    for (int i = 0; i < 4; i++)
        start[i] = (char)(uint8_t)((head_len + len) >> 8 * i);
    memcpy(start + 4, head, head_len);
    if (write_all(sock, start, 4 + head_len) < 0)
        return -1;
    return write_all(sock, body, len);
}

/* @token: TOKEN_LEN characters. The socket and the streams are descriptors 3, 1 and 2. -1: no descriptor is to be
 * had. */
int hutch_channel_open(const char *token)
{
    channel.pid = getpid();
    channel.sock = 3;
    memcpy(channel.token, token, TOKEN_LEN);
    for (int i = 0; i < 2; i++) {
        channel.streams[i] = fcntl(i + 1, F_DUPFD_CLOEXEC, 64);
        if (channel.streams[i] < 0) /* few are allowed */
            channel.streams[i] = fcntl(i + 1, F_DUPFD_CLOEXEC, 4);
        if (channel.streams[i] < 0)
            return -1;
    }
    return 0;
}

/* In a process that goes on in the place of another: numbers go on as well. */
void hutch_channel_move(int sock)
{
    channel.pid = getpid();
    channel.sock = sock;
}

/* A frame without a number: body is the object. -1 with errno. */
int hutch_channel_send_unnumbered(int sock, const char *body, size_t len)
{
    return write_frame(sock, "", 0, body, len);
}

/* A frame, with its number and the marks before it: @body is the object's text after its opening brace. -1 with
 * errno. */
int hutch_channel_send(const char *body, size_t len)
{
    char text[MARK_LEN + 1], head[32];
    int n;

    if (getpid() != channel.pid)
        return 0;
    channel.count++;
    text[0] = '\0';
    memcpy(text + 1, channel.token, TOKEN_LEN);
    snprintf(text + 1 + TOKEN_LEN, sizeof(text) - 1 - TOKEN_LEN, "%08x\n", channel.count);
    for (int i = 0; i < 2; i++)
        write_all(channel.streams[i], text, MARK_LEN); /* a stream without a reader needs no mark */
    n = snprintf(head, sizeof(head), "{\"n\":%u,", channel.count);
    return write_frame(channel.sock, head, (size_t)n, body, len);
}

/* What a program writes to standard output (1) or error (2). -1 with errno. */
int hutch_channel_write(int stream, const char *data, size_t len)
{
    return write_all(channel.streams[stream - 1], data, len);
}

/* For all threads at once; one that Python has noted already is still to be raised. */
void hutch_channel_deafen(void)
{
    signal(SIGINT, SIG_IGN);
}
