/* Descriptions of sandboxes as bytes: what is refused leaves nothing behind. */
#include "runtime/launcher/spec_wire.h"

#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

/* The bytes of a description whose arguments are "first", "second" and "third". The caller frees. */
static char *encode(size_t *ret_len)
{
    char first[] = "first", second[] = "second", third[] = "third", host[] = "h", cwd[] = "/";
    char *argv[] = { first, second, third, NULL }, *envp[] = { NULL };
    struct sandbox_spec spec = { .hostname = host, .cwd = cwd, .root_kind = ROOT_HOST, .argv = argv, .envp = envp };
    struct hutch_err err;
    auto_fd fd = -1;
    char *data = NULL;

    if (hutch_spec_encode(&spec, &fd, &err) < 0 || lseek(fd, 0, SEEK_SET) < 0 ||
        hutch_fd_slurp(fd, SPEC_WIRE_MAX, "it", &data, ret_len, &err) < 0)
        fail_msg("%s", err.msg);
    return data;
}

static int decode(const char *data, size_t len, struct sandbox_spec *ret)
{
    auto_fd fd = memfd_create("spec", MFD_CLOEXEC);
    struct hutch_err err = { .msg = "" };
    int rc;

    assert_true(fd >= 0);
    assert_int_equal(hutch_fd_write_all(fd, data, len), 0);
    rc = hutch_spec_decode(fd, ret, &err);
    assert_int_equal(rc < 0, err.msg[0] != '\0');
    return rc;
}

static void test_what_was_written_is_read(void **state)
{
    struct sandbox_spec spec;
    size_t len;
    auto_free char *data = encode(&len);

    (void)state;
    assert_int_equal(decode(data, len, &spec), 0);
    assert_string_equal(spec.argv[0], "first");
    assert_string_equal(spec.argv[2], "third");
    assert_null(spec.argv[3]);
    hutch_spec_done(&spec);
}

static void test_a_cut_one_is_refused(void **state)
{
    struct sandbox_spec spec;
    size_t len;
    auto_free char *data = encode(&len);

    (void)state;
    for (size_t i = 0; i < len; i++)
        assert_int_equal(decode(data, i, &spec), -1);
}

/* A list ends with NULL, so what stands behind a string that is NULL is out of reach. */
static void test_a_null_string_in_a_list_leaks_nothing(void **state)
{
    static const uint32_t no_string = UINT32_MAX;
    struct sandbox_spec spec;
    size_t len, before;
    auto_free char *data = encode(&len);
    char *at = memmem(data, len, "first", 5);

    (void)state;
    assert_non_null(at);
    memcpy(at - sizeof(no_string), &no_string, sizeof(no_string));
    memmove(at, at + 5, (size_t)(data + len - at) - 5);
    before = mallinfo2().uordblks; /* a sanitizer looks for leaks itself */
    assert_int_equal(decode(data, len - 5, &spec), -1);
    assert_int_equal(mallinfo2().uordblks, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_written_is_read),
        cmocka_unit_test(test_a_cut_one_is_refused),
        cmocka_unit_test(test_a_null_string_in_a_list_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
