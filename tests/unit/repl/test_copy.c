/* test_copy.c - copies between files: how much, and that they can be called off. */
#include "runtime/repl/copy.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>

static int make_file(size_t size)
{
    int fd = memfd_create("copy", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    return fd;
}

static void test_sizes(void **state)
{
    static const struct {
        const char *label;
        size_t size;
        uint64_t max;
        int want_rc;
        uint64_t want;
    } rows[] = {
        { "empty", 0, 0, 0, 0 },
        { "one too many for none", 1, 0, -1, 0 },
        { "exactly", 300000, 300000, 0, 300000 },
        { "one too many", 300001, 300000, -1, 300000 },
        { "without bound", 300000, UINT64_MAX, 0, 300000 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        auto_fd from = make_file(rows[i].size), to = make_file(0);
        struct hutch_err err = { 0 };
        uint64_t bytes = 99;
        struct stat st;

        if (hutch_repl_copy(from, to, rows[i].max, NULL, NULL, &bytes, &err) != rows[i].want_rc)
            fail_msg("%s: %s", rows[i].label, err.msg);
        assert_int_equal(bytes, rows[i].want);
        assert_int_equal(fstat(to, &st), 0);
        assert_int_equal(st.st_size, rows[i].want);
        if (rows[i].want_rc < 0)
            assert_int_equal(err.errnum, EFBIG);
    }
}

static bool is_third_time(void *user)
{
    return ++*(int *)user == 3;
}

static void test_called_off(void **state)
{
    auto_fd from = make_file(10u << 20), to = make_file(0);
    struct hutch_err err;
    uint64_t bytes;
    int n = 0;

    (void)state;
    assert_int_equal(hutch_repl_copy(from, to, UINT64_MAX, is_third_time, &n, &bytes, &err), -1);
    assert_int_equal(err.errnum, EINTR);
    assert_int_equal(n, 3);
    assert_in_range(bytes, 1, (10u << 20) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_called_off),
    };

    return cmocka_run_group_tests_name("copy", tests, NULL, NULL);
}
