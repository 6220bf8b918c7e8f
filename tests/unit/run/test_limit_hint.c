/* test_limit_hint.c - which limit a program is told to have run into. */
#include "runtime/run/limit_hint.h"

#include "runtime/config/limits.h"
#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t limits[LIMIT_COUNT] = {
    [LIMIT_MEMORY] = 512u << 20, [LIMIT_PIDS] = 64, [LIMIT_FILE_SIZE] = 1000, [LIMIT_OPEN_FILES] = 256,
    [LIMIT_DATA_SIZE] = 2000, [LIMIT_TMP_SIZE] = 4096,
};

#define FILES "the limit 'open_files' (256) may have been in the way: 'open_files' in the limits of a policy raises it"
#define PIDS_BY(how) "the limit 'pids' (64) " how ": --pids-limit or 'pids' in the limits of a policy raises it"
#define PIDS PIDS_BY("may have been in the way")
#define TMP "the limit 'tmp_size' (4096 bytes, of /tmp and of /dev/shm) may have been in the way: " \
            "--tmpfs /tmp:SIZE or 'tmp_size' in the limits of a policy raises it"
#define LARGE "the limit 'file_size' (1000 bytes) may have been in the way: " \
              "'file_size' in the limits of a policy raises it"
#define MEMORY "the limit 'memory' (536870912 bytes) may have been in the way: " \
               "--memory or 'memory' in the limits of a policy raises it"
#define DATA "the limit 'data_size' (2000 bytes, of /mnt/data) was reached: " \
             "'data_size' in the limits of a policy raises it"

static const struct {
    const char *text, *want;
    bool was_pids_reached, is_data_full;
} rows[] = {
    { "", "", .was_pids_reached = false },
    { "ValueError: no", "", .is_data_full = true },
    { "OSError: [Errno 24] Too many open files: '/dev/null'", FILES, .is_data_full = true },
    { "bash: /x: too many open files", FILES, .is_data_full = false },
    { "Error: EMFILE: too many open files, open 'x'", FILES, .is_data_full = false },
    { "failed to set rlimit for open files. Try starting as root", FILES, .is_data_full = false },
    { "The current environment will only allow you to open 256 file descriptors.", FILES, .is_data_full = false },
    { "two file descriptors", "", .is_data_full = false },
    { "RuntimeError: can't start new thread", PIDS, .is_data_full = false },
    { "RuntimeError: can't start new thread", PIDS_BY("was reached"), .was_pids_reached = true },
    { "ValueError: no", PIDS_BY("was reached"), .was_pids_reached = true },
    { "sh: 1: Cannot fork", PIDS, .is_data_full = false },
    { "bash: fork: retry: Resource temporarily unavailable", PIDS, .is_data_full = false },
    { "Error: spawn sh EAGAIN", PIDS, .is_data_full = false },
    { "what():  Resource temporarily unavailable after std::system_error", PIDS, .is_data_full = false },
    { "BlockingIOError: [Errno 11] Resource temporarily unavailable\n  sock.recv(1)", "", .is_data_full = false },
    { "OSError: [Errno 28] No space left on device", TMP, .is_data_full = false },
    { "OSError: [Errno 28] No space left on device", DATA, .is_data_full = true },
    { "OSError: [Errno 27] File too large", LARGE, .is_data_full = false },
    { "request entity: file too large", "", .is_data_full = false },
    { "MemoryError", MEMORY, .is_data_full = false },
    { "java.lang.OutOfMemoryError: Java heap space", MEMORY, .is_data_full = false },
    { "memory allocation of the plan", "", .is_data_full = false },
    { "memory allocation of 99 bytes failed", MEMORY, .is_data_full = false },
    { "Too many open files, Cannot fork, MemoryError", FILES "; " PIDS, .is_data_full = false }, /* two at most */
};

static void test_texts(void **state)
{
    char text[512];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct limit_hint hint = { .limits = limits, .was_pids_reached = rows[i].was_pids_reached,
                                   .is_data_full = rows[i].is_data_full };

        hint.texts[0].data = rows[i].text;
        hint.texts[0].len = strlen(rows[i].text);
        hutch_limit_hint_write(&hint, text, sizeof(text));
        assert_string_equal(text, rows[i].want);
        hint.texts[0].data = NULL;
        hutch_limit_hint_set_exception(&hint, NULL, rows[i].text);
        hutch_limit_hint_write(&hint, text, sizeof(text));
        assert_string_equal(text, rows[i].want);
    }
}

/* The hint is silent about a resource without a limit, and names the option that raises a limit. */
static void test_limits(void **state)
{
    static const uint64_t none[LIMIT_COUNT];
    struct limit_hint hint = { .limits = none, .was_pids_reached = true, .is_data_full = true };
    char text[512], option[64];

    (void)state;
    hutch_limit_hint_set_exception(&hint, "Too many open files, Cannot fork, MemoryError", "ENOSPC EFBIG");
    hutch_limit_hint_write(&hint, text, sizeof(text));
    assert_string_equal(text, "");
    for (int i = 0; i < LIMIT_COUNT; i++) {
        uint64_t one[LIMIT_COUNT] = { 0 };

        one[i] = 7;
        hint.limits = one;
        hutch_limit_hint_write(&hint, text, sizeof(text));
        if (i == LIMIT_TMP_SIZE || !text[0]) /* of which one is of another option, and the others are never told */
            continue;
        snprintf(option, sizeof(option), ": %s", hutch_limit_rows[i].option ? hutch_limit_rows[i].option : "'");
        assert_non_null(strstr(text, option));
    }
}

/* Only the end of a text is looked at, and nothing behind it; a small room is not overflowed. */
static void test_bounds(void **state)
{
    static const char word[] = "Cannot fork";
    const size_t len = 3 * LIMIT_HINT_MAX;
    char *text = malloc(len), said[512], small[10];
    struct limit_hint hint = { .limits = limits };

    (void)state;
    memset(text, 'x', len);
    memcpy(text + len - sizeof(word), word, sizeof(word) - 1);
    hint.texts[0].data = text;
    hint.texts[0].len = len;
    hutch_limit_hint_write(&hint, said, sizeof(said));
    assert_string_equal(said, PIDS);
    hutch_limit_hint_write(&hint, small, sizeof(small));
    assert_string_equal(small, "the limit");
    hint.texts[0].len = len - 2;
    hutch_limit_hint_write(&hint, said, sizeof(said));
    assert_string_equal(said, "");
    memset(text, 'x', len);
    memcpy(text + len - LIMIT_HINT_MAX - 2, word, sizeof(word) - 1);
    hint.texts[0].len = len;
    hutch_limit_hint_write(&hint, said, sizeof(said));
    assert_string_equal(said, "");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_bounds),
    };

    return cmocka_run_group_tests_name("limit_hint", tests, NULL, NULL);
}
