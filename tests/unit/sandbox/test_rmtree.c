/* test_rmtree.c - trees that hostile code left behind are removed, and nothing else is. */
#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/rmtree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cmocka.h>

struct place {
    char path[64];
    int fd;
};

static int set_up(void **state)
{
    struct place *p = calloc(1, sizeof(*p));

    strcpy(p->path, "/tmp/hutch-test-rmtree.XXXXXX");
    assert_non_null(mkdtemp(p->path));
    p->fd = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(p->fd >= 0);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;

    close(p->fd);
    assert_int_equal(rmdir(p->path), 0); /* each test removes all that it made */
    free(p);
    return 0;
}

static void touch(int dirfd, const char *name)
{
    auto_fd fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
}

static bool is_there(int dirfd, const char *name)
{
    return faccessat(dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void remove_ok(int dirfd, const char *name)
{
    struct hutch_err err = { 0 };

    if (hutch_rmtree(dirfd, name, &err) < 0)
        fail_msg("%s", err.msg);
    assert_false(is_there(dirfd, name));
}

static void test_names_that_are_not_one_component(void **state)
{
    static const char *const names[] = { "", ".", "..", "/", "a/b", "../x", "/etc" };
    struct place *p = *state;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct hutch_err err = { 0 };

        assert_int_equal(hutch_rmtree(p->fd, names[i], &err), -1);
        assert_int_equal(err.errnum, EINVAL);
        assert_non_null(strstr(err.msg, "the name must be a single component"));
    }
}

static void test_simple_things(void **state)
{
    struct place *p = *state;
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    auto_fd sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    remove_ok(p->fd, "never-there");
    touch(p->fd, "file");
    remove_ok(p->fd, "file");
    assert_int_equal(mkfifoat(p->fd, "fifo", 0600), 0);
    remove_ok(p->fd, "fifo");
    assert_int_equal(mkdirat(p->fd, "dir", 0), 0);
    remove_ok(p->fd, "dir");
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/sock", p->path);
    assert_int_equal(bind(sock, (struct sockaddr *)&addr, sizeof(addr)), 0);
    remove_ok(p->fd, "sock");
}

static void test_links_lead_nowhere(void **state)
{
    struct place *p = *state;

    assert_int_equal(mkdirat(p->fd, "outside", 0700), 0);
    assert_int_equal(mkdirat(p->fd, "outside/sub", 0700), 0);
    touch(p->fd, "outside/keep");
    assert_int_equal(mkdirat(p->fd, "tree", 0700), 0);
    assert_int_equal(symlinkat("../outside", p->fd, "tree/link"), 0);
    assert_int_equal(symlinkat("..", p->fd, "tree/up"), 0);
    assert_int_equal(symlinkat("/", p->fd, "tree/root"), 0);
    assert_int_equal(linkat(p->fd, "outside/keep", p->fd, "tree/hard", 0), 0);
    assert_int_equal(symlinkat("outside", p->fd, "top"), 0);

    remove_ok(p->fd, "tree");
    remove_ok(p->fd, "top"); /* the link, not what it names */
    assert_true(is_there(p->fd, "outside/keep"));
    assert_true(is_there(p->fd, "outside/sub"));
    remove_ok(p->fd, "outside");
}

static void test_no_permissions(void **state)
{
    static const mode_t modes[] = { 0, 0100, 0200, 0400, 0500, 0600, 01000 };
    struct place *p = *state;
    char name[32];

    assert_int_equal(mkdirat(p->fd, "tree", 0700), 0);
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
        snprintf(name, sizeof(name), "tree/m%zu", i);
        assert_int_equal(mkdirat(p->fd, name, 0700), 0);
        snprintf(name, sizeof(name), "tree/m%zu/d", i);
        assert_int_equal(mkdirat(p->fd, name, 0700), 0);
        snprintf(name, sizeof(name), "tree/m%zu/d/f", i);
        touch(p->fd, name);
        snprintf(name, sizeof(name), "tree/m%zu/d", i);
        assert_int_equal(fchmodat(p->fd, name, modes[i], 0), 0);
        snprintf(name, sizeof(name), "tree/m%zu", i);
        assert_int_equal(fchmodat(p->fd, name, modes[i], 0), 0);
    }
    assert_int_equal(fchmodat(p->fd, "tree", 0, 0), 0);
    remove_ok(p->fd, "tree");
}

static void test_any_byte_in_a_name(void **state)
{
    struct place *p = *state;
    char longest[256];

    assert_int_equal(mkdirat(p->fd, "tree", 0700), 0);
    for (int c = 1; c < 256; c++) {
        char name[] = { 't', 'r', 'e', 'e', '/', (char)c, (char)c, (char)c, '\0' };

        if (c == '/')
            continue;
        if (c % 2)
            touch(p->fd, name);
        else
            assert_int_equal(mkdirat(p->fd, name, 0700), 0);
    }
    memset(longest, 'n', 255);
    longest[255] = '\0';
    {
        auto_fd tree = openat(p->fd, "tree", O_PATH | O_CLOEXEC);

        touch(tree, longest);
    }
    remove_ok(p->fd, "tree");
}

/* Makes @levels directories within each other, each with a file beside it. */
static void make_deep(int dirfd, const char *top, int levels, mode_t mode)
{
    auto_fd at = -1;

    assert_int_equal(mkdirat(dirfd, top, 0700), 0);
    at = openat(dirfd, top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < levels; i++) {
        int next;

        touch(at, "before");
        assert_int_equal(mkdirat(at, "deeper", 0700), 0);
        touch(at, "zz-after");
        next = openat(at, "deeper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        assert_int_equal(fchmod(at, mode), 0);
        close(at);
        at = next;
    }
}

static void test_five_thousand_levels(void **state)
{
    struct place *p = *state;

    make_deep(p->fd, "deep", 5000, 0700);
    remove_ok(p->fd, "deep");
    make_deep(p->fd, "deep", 100, 0);
    remove_ok(p->fd, "deep");
}

static void test_wide(void **state)
{
    struct place *p = *state;
    char name[32];

    /* several buffers of getdents64(2), and subtrees deeper than what is held open */
    assert_int_equal(mkdirat(p->fd, "wide", 0700), 0);
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "wide/f%d", i);
        touch(p->fd, name);
    }
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "wide/d%d", i);
        make_deep(p->fd, name, 70, 0700);
    }
    remove_ok(p->fd, "wide");
}

/* It stops when its time is over, and goes on the next time. */
static void test_a_removal_that_takes_too_long(void **state)
{
    struct place *p = *state;
    struct hutch_err err = { 0 };

    make_deep(p->fd, "deep", 100, 0700);
    assert_int_equal(hutch_rmtree_until(p->fd, "deep", hutch_clock_ms() - 1, &err), -1);
    assert_int_equal(err.errnum, ETIMEDOUT);
    assert_int_equal(faccessat(p->fd, "deep", F_OK, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(hutch_rmtree_until(p->fd, "deep", hutch_clock_ms() + 60000, &err), 0);
}

/* Several removals at once: each succeeds, and then nothing is left. */
static void test_removals_that_meet(void **state)
{
    struct place *p = *state;
    char name[32];

    for (int round = 0; round < 10; round++) {
        int status, ready[2];
        pid_t pids[3];

        assert_int_equal(mkdirat(p->fd, "tree", 0700), 0);
        for (int i = 0; i < 10; i++) {
            snprintf(name, sizeof(name), "tree/d%d", i);
            make_deep(p->fd, name, 50, 0700);
        }
        assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
        for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
            pids[i] = fork();
            assert_true(pids[i] >= 0);
            if (pids[i] == 0) {
                struct hutch_err err = { 0 };
                char c;

                close(ready[1]);
                if (read(ready[0], &c, 1) < 0) /* all go when the parent closes its end */
                    _exit(3);
                if (hutch_rmtree(p->fd, "tree", &err) == 0)
                    _exit(is_there(p->fd, "tree") ? 2 : 0);
                print_error("%s\n", err.msg);
                _exit(1);
            }
        }
        close(ready[0]);
        close(ready[1]);
        for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
            assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
            assert_int_equal(status, 0);
        }
    }
}

static void test_another_users_file_stays(void **state)
{
    struct place *p = *state;
    int status;
    pid_t pid;

    if (geteuid() != 0) {
        print_message("skip: making a directory of another user needs root\n");
        skip();
    }
    assert_int_equal(mkdirat(p->fd, "theirs", 0700), 0);
    touch(p->fd, "theirs/file");
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct hutch_err err = { 0 };

        if (setresuid(65534, 65534, 65534) < 0 || hutch_rmtree(p->fd, "theirs", &err) != -1)
            _exit(1);
        _exit(err.errnum == EACCES && strncmp(err.msg, "remove ", 7) == 0 ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(is_there(p->fd, "theirs/file"));
    remove_ok(p->fd, "theirs");
}

static void test_a_mount_is_left_alone(void **state)
{
    struct place *p = *state;
    struct hutch_err err = { 0 };
    char source[96], target[96];

    assert_int_equal(mkdirat(p->fd, "user-data", 0700), 0);
    touch(p->fd, "user-data/precious");
    assert_int_equal(mkdirat(p->fd, "run", 0700), 0);
    assert_int_equal(mkdirat(p->fd, "run/mnt", 0700), 0);
    snprintf(source, sizeof(source), "%s/user-data", p->path);
    snprintf(target, sizeof(target), "%s/run/mnt", p->path);
    if (mount(source, target, NULL, MS_BIND, NULL) < 0) {
        remove_ok(p->fd, "user-data");
        remove_ok(p->fd, "run");
        print_message("skip: bind mounts need CAP_SYS_ADMIN\n");
        skip();
    }
    assert_int_equal(hutch_rmtree(p->fd, "run", &err), -1);
    assert_int_equal(err.errnum, EBUSY);
    assert_string_equal(err.msg,
                        "remove tree 'run': remove 'mnt', on which something is mounted: Device or resource busy");
    assert_true(is_there(p->fd, "user-data/precious"));
    assert_int_equal(umount2(target, MNT_DETACH), 0);
    remove_ok(p->fd, "run");
    remove_ok(p->fd, "user-data");
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_names_that_are_not_one_component),
        T(test_simple_things),
        T(test_links_lead_nowhere),
        T(test_no_permissions),
        T(test_any_byte_in_a_name),
        T(test_five_thousand_levels),
        T(test_wide),
        T(test_a_removal_that_takes_too_long),
        T(test_removals_that_meet),
        T(test_another_users_file_stays),
        T(test_a_mount_is_left_alone),
    };

    return cmocka_run_group_tests_name("rmtree", tests, NULL, NULL);
}
