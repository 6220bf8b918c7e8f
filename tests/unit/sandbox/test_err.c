/* test_err.c - one sentence, cut but never overflowed, and clean enough for a terminal. */
#include "sandbox/err.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SIZE sizeof(((struct hutch_err *)NULL)->msg)

static void test_set(void **state)
{
    static const struct { const char *label; int errnum; const char *text, *want; } rows[] = {
        { "one of our own rules", 0, "two dogs in a hutch", "two dogs in a hutch" },
        { "with the kernel's reason", ENOENT, "open 'x'", "open 'x': No such file or directory" },
        { "a number that no errno has", 99999, "open 'x'", "open 'x': unknown error" },
        { "nothing said", EPERM, "", ": Operation not permitted" },
        { "bytes that a terminal obeys", 0, "open '\033[2J\n\r\t\b\177'", "open '?[2J?" "?" "?" "?" "?'" },
        { "bytes above 127 are names in UTF-8", 0, "open '\303\244'", "open '\303\244'" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct hutch_err err = { .errnum = -7 };

        print_message("  %s\n", rows[i].label);
        assert_int_equal(hutch_err_set(&err, rows[i].errnum, "%s", rows[i].text), -1);
        assert_int_equal(err.errnum, rows[i].errnum);
        assert_string_equal(err.msg, rows[i].want);
    }
}

/* A rule of our own has a code for the caller, and its sentence nothing behind it. */
static void test_say(void **state)
{
    struct hutch_err err;

    (void)state;
    assert_int_equal(hutch_err_say(&err, EINVAL, "%d dogs\nin a hutch", 2), -1);
    assert_int_equal(err.errnum, EINVAL);
    assert_string_equal(err.msg, "2 dogs?in a hutch");
    hutch_err_wrap(&err, "feed them");
    assert_int_equal(err.errnum, EINVAL);
    assert_string_equal(err.msg, "feed them: 2 dogs?in a hutch");
}

static void test_wrap_keeps_the_root_cause(void **state)
{
    struct hutch_err err;

    (void)state;
    hutch_err_set(&err, EACCES, "open 'memory.max'");
    assert_int_equal(hutch_err_wrap(&err, "limit memory to %d bytes", 4096), -1);
    assert_int_equal(hutch_err_wrap(&err, "start sandbox '%s'", "a\nb"), -1);
    assert_int_equal(err.errnum, EACCES);
    assert_string_equal(err.msg,
                        "start sandbox 'a?b': limit memory to 4096 bytes: open 'memory.max': Permission denied");
}

/* Every length around the size of the message: always terminated, and a beginning of what was meant. */
static void test_long_texts_are_cut(void **state)
{
    struct { struct hutch_err err; char after[16]; } box;
    char text[2 * SIZE], want[4 * SIZE];

    (void)state;
    for (size_t len = SIZE - 60; len < 2 * SIZE - 1; len++) {
        memset(text, 'x', len);
        text[len] = '\0';
        memset(&box, '#', sizeof(box));
        hutch_err_set(&box.err, ENOENT, "%s", text);
        assert_non_null(memchr(box.err.msg, '\0', SIZE));
        strcpy(stpcpy(want, text), ": No such file or directory");
        assert_memory_equal(box.err.msg, want, strlen(box.err.msg));
        assert_true(strlen(box.err.msg) >= (strlen(want) < SIZE - 3 ? strlen(want) : SIZE - 4));
        assert_memory_equal(box.after, "################", sizeof(box.after));

        hutch_err_set(&box.err, EPERM, "inner");
        hutch_err_wrap(&box.err, "%s", text);
        assert_non_null(memchr(box.err.msg, '\0', SIZE));
        strcpy(stpcpy(want, text), ": inner: Operation not permitted");
        assert_memory_equal(box.err.msg, want, strlen(box.err.msg));
        assert_int_equal(box.err.errnum, EPERM);
        assert_memory_equal(box.after, "################", sizeof(box.after));
    }
}

static void test_many_wraps(void **state)
{
    struct hutch_err err;

    (void)state;
    hutch_err_set(&err, EIO, "the bottom");
    for (int i = 0; i < 1000; i++)
        hutch_err_wrap(&err, "layer %d", i);
    assert_int_equal(err.errnum, EIO);
    assert_memory_equal(err.msg, "layer 999: layer 998: ", 22);
    assert_true(strlen(err.msg) < SIZE);
}

static void test_received(void **state)
{
    struct hutch_err err;

    (void)state;
    memset(&err, 'x', sizeof(err)); /* it does not end */
    hutch_err_receive(&err, "the launcher");
    assert_int_equal(strlen(err.msg), SIZE - 1);
    strcpy(err.msg, "a\033[31mb\n");
    hutch_err_receive(&err, "the launcher");
    assert_string_equal(err.msg, "a?[31mb?");
    err = (struct hutch_err){ .errnum = EIO };
    hutch_err_receive(&err, "the launcher");
    assert_string_equal(err.msg, "the launcher failed and did not say why: Input/output error");
    err = (struct hutch_err){ .errnum = -7 };
    hutch_err_receive(&err, "the launcher");
    assert_string_equal(err.msg, "the launcher failed and did not say why");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_say),
        cmocka_unit_test(test_wrap_keeps_the_root_cause),
        cmocka_unit_test(test_long_texts_are_cut),
        cmocka_unit_test(test_many_wraps),
        cmocka_unit_test(test_received),
    };

    return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
