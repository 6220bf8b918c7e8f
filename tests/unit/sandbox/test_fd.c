/* test_fd.c - who owns a descriptor, and the loops around read(2) and write(2). */
#include "sandbox/fd.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

static int set_up(void **state)
{
    char *path = strdup("/tmp/hutch-test-fd.XXXXXX");

    assert_non_null(mkdtemp(path));
    *state = path;
    return 0;
}

static int tear_down(void **state)
{
    assert_int_equal(rmdir(*state), 0);
    free(*state);
    return 0;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void test_ownership(void **state)
{
    int kept, gone, unset = -1;

    (void)state;
    {
        auto_fd a = open("/dev/null", O_RDONLY | O_CLOEXEC);
        auto_fd b = open("/dev/null", O_RDONLY | O_CLOEXEC);

        assert_true(a >= 0 && b >= 0);
        gone = a;
        kept = hutch_fd_take(&b);
        assert_int_equal(b, -1);
        errno = E2BIG;
    }
    assert_int_equal(errno, E2BIG); /* what went wrong before survives the cleaning up */
    assert_false(is_open(gone));
    assert_true(is_open(kept));
    hutch_fd_closep(&kept);
    assert_int_equal(kept, -1);
    hutch_fd_closep(&kept);
    hutch_fd_closep(&unset);
    assert_true(is_open(0)); /* an unset descriptor is -1, never 0 */
}

/* A reader that takes a byte now and then: write(2) stops in the middle, and must be called again. */
static void test_write_all_and_read_full(void **state)
{
    enum { LEN = 300000 };
    char *sent = malloc(LEN), *got = malloc(LEN + 1);
    int fds[2], status;
    pid_t pid;

    (void)state;
    for (int i = 0; i < LEN; i++)
        sent[i] = (char)(i * 7);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(fds[0]);
        _exit(hutch_fd_write_all(fds[1], sent, LEN) == 0 ? 0 : 1);
    }
    close(fds[1]);
    assert_int_equal(hutch_fd_read_full(fds[0], got, 1000), 1000);
    assert_int_equal(hutch_fd_read_full(fds[0], got + 1000, LEN), LEN - 1000); /* ends at the end of file */
    assert_memory_equal(sent, got, LEN);
    assert_int_equal(hutch_fd_read_full(fds[0], got, LEN), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(fds[0]);

    assert_int_equal(hutch_fd_write_all(-1, sent, 1), -1);
    assert_int_equal(errno, EBADF);
    assert_int_equal(hutch_fd_write_all(-1, sent, 0), 0);
    assert_int_equal(hutch_fd_read_full(-1, got, 1), -1);
    free(sent);
    free(got);
}

static void write_to(const char *dir, const char *name, size_t len)
{
    char path[128], block[1024];
    auto_fd fd = -1;

    memset(block, 'a', sizeof(block));
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    for (; len > 0; len -= len < sizeof(block) ? len : sizeof(block))
        assert_int_equal(hutch_fd_write_all(fd, block, len < sizeof(block) ? len : sizeof(block)), 0);
}

static void test_slurp(void **state)
{
    static const struct { size_t len, max; bool ok; } rows[] = {
        { 0, 0, true },         { 0, 10, true },         { 1, 0, false },           { 10, 10, true },
        { 11, 10, false },      { 16383, 16383, true },  { 16384, 16384, true },    { 16385, 16384, false },
        { 32767, 40000, true }, { 100000, 100000, true }, { 100000, 99999, false },
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct hutch_err err = { .errnum = -7 };
        char *data = NULL, path[128], want[256];
        size_t len = 77;

        write_to(*state, "f", rows[i].len);
        snprintf(path, sizeof(path), "%s/f", (char *)*state);
        if (rows[i].ok) {
            assert_int_equal(hutch_fd_slurp_path(path, rows[i].max, &data, &len, &err), 0);
            assert_int_equal(err.errnum, -7); /* untouched on success */
            assert_int_equal(len, rows[i].len);
            assert_int_equal(strlen(data), rows[i].len);
            free(data);
        } else {
            assert_int_equal(hutch_fd_slurp_path(path, rows[i].max, &data, &len, &err), -1);
            assert_int_equal(err.errnum, EFBIG);
            snprintf(want, sizeof(want), "read '%s' (the limit is %zu bytes): File too large", path, rows[i].max);
            assert_string_equal(err.msg, want);
            assert_null(data);
            assert_int_equal(len, 77);
        }
        assert_int_equal(unlink(path), 0);
    }
}

static void test_slurp_bounds_what_never_ends(void **state)
{
    struct hutch_err err;
    char *data = NULL;
    size_t len;

    (void)state;
    assert_int_equal(hutch_fd_slurp_path("/dev/zero", 1 << 20, &data, &len, &err), -1);
    assert_string_equal(err.msg, "read '/dev/zero' (the limit is 1048576 bytes): File too large");
    assert_int_equal(hutch_fd_slurp_path("/nowhere/at/all", 10, &data, &len, &err), -1);
    assert_string_equal(err.msg, "open '/nowhere/at/all': No such file or directory");
    assert_int_equal(hutch_fd_slurp_path("/", 10, &data, &len, &err), -1);
    assert_string_equal(err.msg, "read '/': Is a directory");
    assert_null(data);
}

static void test_write_file_at(void **state)
{
    char path[128], *data;
    struct hutch_err err = { .errnum = -7 };
    auto_fd dirfd = open(*state, O_PATH | O_DIRECTORY | O_CLOEXEC);
    size_t len;

    write_to(*state, "f", 0);
    assert_int_equal(symlinkat("f", dirfd, "link"), 0);
    assert_int_equal(hutch_fd_write_file_at(dirfd, "f", "1048576", &err), 0);
    assert_int_equal(err.errnum, -7);
    assert_int_equal(hutch_fd_write_file_at(dirfd, "link", "x", &err), -1);
    assert_int_equal(err.errnum, ELOOP);
    assert_int_equal(hutch_fd_write_file_at(dirfd, "new", "x", &err), -1); /* does not make files */
    assert_string_equal(err.msg, "open 'new': No such file or directory");
    snprintf(path, sizeof(path), "%s/f", (char *)*state);
    assert_int_equal(hutch_fd_slurp_path(path, 100, &data, &len, &err), 0);
    assert_string_equal(data, "1048576");
    free(data);
    assert_int_equal(symlinkat("/dev/full", dirfd, "dev"), 0);
    {
        auto_fd dev = open("/dev", O_PATH | O_DIRECTORY | O_CLOEXEC);

        assert_int_equal(hutch_fd_write_file_at(dev, "full", "x", &err), -1);
        assert_string_equal(err.msg, "write 'x' to 'full': No space left on device");
    }
    assert_int_equal(unlinkat(dirfd, "f", 0), 0);
    assert_int_equal(unlinkat(dirfd, "link", 0), 0);
    assert_int_equal(unlinkat(dirfd, "dev", 0), 0);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_ownership),
        T(test_write_all_and_read_full),
        T(test_slurp),
        T(test_slurp_bounds_what_never_ends),
        T(test_write_file_at),
    };

    return cmocka_run_group_tests_name("fd", tests, NULL, NULL);
}
