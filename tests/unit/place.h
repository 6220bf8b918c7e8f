/* place.h - for tests about files: a scratch directory with "data" in it, which is gone after the test, whatever it
 * left there. */
#ifndef HUTCH_TEST_PLACE_H
#define HUTCH_TEST_PLACE_H

#include "sandbox/fd.h"
#include "sandbox/rmtree.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct place {
    char path[64];
    int top, data; /* the directory that is outside; "data" in it */
    int store;     /* one beside it, of a test that opens one; or -1 */
};

static inline void place_open(struct place *p)
{
    snprintf(p->path, sizeof(p->path), "/tmp/hutch-%s.XXXXXX", program_invocation_short_name);
    assert_non_null(mkdtemp(p->path));
    p->top = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(p->top, "data", 0755), 0);
    p->data = openat(p->top, "data", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    p->store = -1;
    assert_true(p->data >= 0);
}

static inline void place_close(struct place *p)
{
    struct hutch_err err = { 0 };
    auto_fd tmp = open("/tmp", O_PATH | O_CLOEXEC);

    hutch_fd_closep(&p->store);
    hutch_fd_closep(&p->data);
    hutch_fd_closep(&p->top);
    if (hutch_rmtree(tmp, strrchr(p->path, '/') + 1, &err) < 0)
        fail_msg("%s", err.msg);
}

/* The same around one test, or around a group of them. */
static inline int place_set_up(void **state)
{
    *state = calloc(1, sizeof(struct place));
    place_open(*state);
    return 0;
}

static inline int place_tear_down(void **state)
{
    place_close(*state);
    free(*state);
    return 0;
}

static inline void put(int dirfd, const char *name, const char *text)
{
    auto_fd fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(hutch_fd_write_all(fd, text, strlen(text)), 0);
}

static inline void assert_text(int dirfd, const char *name, const char *want)
{
    auto_fd fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    char buf[256] = "";

    if (fd < 0 || read(fd, buf, sizeof(buf) - 1) < 0)
        fail_msg("%s: %s", name, strerror(errno));
    assert_string_equal(buf, want);
}

/* A socket in "data". */
static inline void put_socket(const struct place *p, const char *name)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    auto_fd fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/data/%s", p->path, name);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
}

/* "name" in "data" is a link to the outside, a FIFO and a file, one after the other; there is a directory "make". */
static inline void put_in_turn(const struct place *p)
{
    (void)!symlinkat("../secret", p->data, "make/a");
    renameat(p->data, "make/a", p->data, "name");
    mkfifoat(p->data, "make/a", 0644);
    renameat(p->data, "make/a", p->data, "name");
    close(openat(p->data, "make/a", O_WRONLY | O_CREAT, 0644));
    renameat(p->data, "make/a", p->data, "name");
}

static inline void end_process(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* A process that holds a lease on the file: open(2) of others waits for it, by default 45 seconds. -1: there are no
 * leases here. */
static inline pid_t hold_lease(int dirfd, const char *name)
{
    int said[2];
    char c = 0;
    pid_t pid;

    assert_int_equal(pipe2(said, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        int fd = openat(dirfd, name, O_RDWR | O_CLOEXEC);

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGIO, SIG_IGN);
        c = fcntl(fd, F_SETLEASE, F_WRLCK) == 0 ? 'y' : 'n';
        if (write(said[1], &c, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(said[1]);
    assert_int_equal(read(said[0], &c, 1), 1);
    close(said[0]);
    if (c == 'y')
        return pid;
    end_process(pid);
    return -1;
}

#endif
