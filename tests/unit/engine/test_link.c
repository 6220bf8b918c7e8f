/* test_link.c - a packet that the kernel does not take, because all processes of a user have too many descriptors on
 * their way: it waits without turning in circles, and goes when there is room again. */
#include "runtime/engine/link.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/fdpass.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define NO_ONE 54321 /* root may have as many as it likes: the test is another user's, of whom there are no processes */
#define HELD 250     /* descriptors on their way at once */
#define LIMIT 100
#define WAIT_MS 400
#define MOST_TURNS 60 /* in that time; one that turns in circles does thousands */

static struct loop loop = LOOP_INIT;

/* What has to be so in the child, whose word is its exit status. */
#define MUST(condition)                                                           \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            _exit(1);                                                             \
        }                                                                         \
    } while (0)

static void hold_descriptors(int pair[2])
{
    int fds[HELD];

    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    for (int i = 0; i < HELD; i++)
        fds[i] = pair[0];
    MUST(hutch_fdpass_send(pair[0], "x", 1, fds, HELD, 0) == 1);
}

static int turns_within(int ms)
{
    double end = hutch_clock_ms() + ms;
    int n = 0;

    for (double left; (left = end - hutch_clock_ms()) > 0; n++) {
        struct pollfd p = { .fd = loop.epoll_fd, .events = POLLIN };

        if (poll(&p, 1, (int)left + 1) == 0)
            break;
        hutch_loop_begin_turn(&loop);
        hutch_loop_run_due(&loop);
        hutch_loop_end_turn(&loop, false);
    }
    return n;
}

static void send_below_a_flood(void)
{
    struct link link = LINK_INIT;
    struct rlimit few = { LIMIT, LIMIT };
    struct hutch_err err;
    int pair[2], held[2], fd = -1;
    size_t n_fds = 0;
    char buf[8];

    MUST(geteuid() != 0 || setresuid(NO_ONE, NO_ONE, NO_ONE) == 0);
    MUST(hutch_loop_open(&loop, &err) == 0);
    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    MUST(hutch_link_open(&link, &loop, pair[0], &err) == 0);
    hold_descriptors(held);
    MUST(setrlimit(RLIMIT_NOFILE, &few) == 0);
    MUST(hutch_link_send(&link, "ab", 2, "cd", 2, &held[0], 1, &err) == 0);
    MUST(hutch_link_send(&link, "e", 1, NULL, 0, NULL, 0, &err) == 0);
    MUST(link.first != NULL);
    MUST(turns_within(WAIT_MS) < MOST_TURNS);
    MUST(recv(pair[1], buf, sizeof(buf), MSG_DONTWAIT) < 0 && errno == EAGAIN);
    MUST(recv(held[1], buf, sizeof(buf), 0) == 1); /* which drops what came with it */
    for (int i = 0; i < 25 && link.first; i++)
        turns_within(WAIT_MS);
    MUST(link.first == NULL);
    MUST(hutch_fdpass_receive(pair[1], buf, sizeof(buf), &fd, 1, &n_fds, MSG_DONTWAIT) == 4 && n_fds == 1);
    MUST(recv(pair[1], buf, sizeof(buf), MSG_DONTWAIT) == 1 && buf[0] == 'e');
    hutch_link_close(&link);
    hutch_loop_done(&loop);
    _exit(0);
}

static void test_a_flood_of_descriptors(void **state)
{
    int status = 0;
    pid_t pid = fork();

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0)
        send_below_a_flood();
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_a_flood_of_descriptors) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
