/* Sizes, durations, CPU counts and numbers. */
#include "runtime/text/quantity.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef int parse_fn(const char *text, uint64_t *ret, struct hutch_err *err);

struct parse_case {
    const char *text;
    uint64_t want;
    int errnum;          /* 0: @want comes out */
    const char *message; /* NULL: not looked at */
};

static void run_cases(parse_fn *parse, const struct parse_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct hutch_err err = { .errnum = -1 };
        uint64_t got = 12345;
        int rc = parse(cases[i].text, &got, &err);

        if (cases[i].errnum == 0) {
            if (rc != 0 || got != cases[i].want)
                fail_msg("'%s': got %d, %" PRIu64 " (%s), wanted %" PRIu64, cases[i].text, rc, got, err.msg,
                         cases[i].want);
            assert_int_equal(err.errnum, -1);
            continue;
        }
        if (rc != -1 || err.errnum != cases[i].errnum)
            fail_msg("'%s': got %d, errnum %d, wanted errnum %d", cases[i].text, rc, err.errnum, cases[i].errnum);
        assert_int_equal(got, 12345);
        if (cases[i].message)
            assert_string_equal(err.msg, cases[i].message);
    }
}

static void test_bytes(void **state)
{
    static const struct parse_case cases[] = {
        { "0", 0, 0, NULL },
        { "1073741824", 1073741824, 0, NULL },
        { "1b", 1, 0, NULL },
        { "64M", 64ull << 20, 0, NULL },
        { "512m", 512ull << 20, 0, NULL },
        { "20kb", 20480, 0, NULL },
        { "1GiB", 1ull << 30, 0, NULL },
        { "2t", 2ull << 40, 0, NULL },
        { "1.5g", 3ull << 29, 0, NULL },
        { "0.0000001k", 1, 0, NULL }, /* never rounded to nothing */
        { "18446744073709551615", UINT64_MAX, 0, NULL },
        { "16777215t", 16777215ull << 40, 0, NULL },
        { "18446744073709551616", 0, ERANGE, "'18446744073709551616' is too large for a size" },
        { "16777216t", 0, ERANGE, "'16777216t' is too large for a size" },
        { "99999999999G", 0, ERANGE, NULL },
        { "-1", 0, EINVAL, "'-1' is not a size: write a number of bytes, or one with K, M, G or T as in 512m" },
        { "", 0, EINVAL, "'' is not a size: write a number of bytes, or one with K, M, G or T as in 512m" },
        { "+5", 0, EINVAL, NULL },
        { " 5", 0, EINVAL, NULL },
        { "5 ", 0, EINVAL, NULL },
        { "5 m", 0, EINVAL, NULL },
        { "0x10", 0, EINVAL, NULL },
        { "1e3", 0, EINVAL, NULL },
        { "1.5", 0, EINVAL, NULL }, /* half a byte */
        { "1.m", 0, EINVAL, NULL },
        { ".5m", 0, EINVAL, NULL },
        { "1.0000000001g", 0, EINVAL, NULL },
        { "1,5g", 0, EINVAL, NULL },
        { "1mm", 0, EINVAL, NULL },
        { "512q", 0, EINVAL, NULL },
        { "lots", 0, EINVAL, NULL },
    };

    (void)state;
    run_cases(hutch_parse_bytes, cases, ARRAY_SIZE(cases));
}

static void test_durations(void **state)
{
    static const struct parse_case cases[] = {
        { "0", 0, 0, NULL },
        { "30", 30000, 0, NULL },
        { "30s", 30000, 0, NULL },
        { "500ms", 500, 0, NULL },
        { "2m", 120000, 0, NULL },
        { "1h", 3600000, 0, NULL },
        { "1d", 86400000, 0, NULL },
        { "1.5h", 5400000, 0, NULL },
        { "0.25", 250, 0, NULL },
        { "0.0001s", 1, 0, NULL },
        { "0.5ms", 1, 0, NULL },
        { "18446744073709551615ms", UINT64_MAX, 0, NULL },
        { "18446744073709551615s", 0, ERANGE, "'18446744073709551615s' is too large for a duration" },
        { "-5s", 0, EINVAL, "'-5s' is not a duration: write a number of seconds, or one with ms, s, m, h or d as in "
                            "500ms" },
        { "", 0, EINVAL, NULL },
        { "s", 0, EINVAL, NULL },
        { "1m30s", 0, EINVAL, NULL },
        { "inf", 0, EINVAL, NULL },
        { "nan", 0, EINVAL, NULL },
    };

    (void)state;
    run_cases(hutch_parse_duration_ms, cases, ARRAY_SIZE(cases));
}

static void test_cpus(void **state)
{
    static const struct parse_case cases[] = {
        { "1", 1000, 0, NULL },
        { "0.5", 500, 0, NULL },
        { "2.25", 2250, 0, NULL },
        { "0.0001", 1, 0, NULL },
        { "0", 0, 0, NULL },
        { "18446744073709551615", 0, ERANGE, "'18446744073709551615' is too large for a number of CPUs" },
        { "-1", 0, EINVAL, "'-1' is not a number of CPUs: write it as in 1 or 0.5" },
        { "50%", 0, EINVAL, NULL },
        { "1k", 0, EINVAL, NULL },
    };

    (void)state;
    run_cases(hutch_parse_cpus, cases, ARRAY_SIZE(cases));
}

static void test_u64(void **state)
{
    static const struct parse_case cases[] = {
        { "0", 0, 0, NULL },
        { "64", 64, 0, NULL },
        { "007", 7, 0, NULL },
        { "18446744073709551615", UINT64_MAX, 0, NULL },
        { "18446744073709551616", 0, ERANGE, "'18446744073709551616' is too large for a whole number" },
        /* strtoull(3) would wrap around */
        { "-1", 0, EINVAL, "'-1' is not a whole number: write digits only, as in 64" },
        { "1.0", 0, EINVAL, NULL },
        { "64k", 0, EINVAL, NULL },
        { "6 4", 0, EINVAL, NULL },
    };

    (void)state;
    run_cases(hutch_parse_u64, cases, ARRAY_SIZE(cases));
}

static void test_message_repeats_little_of_a_long_text(void **state)
{
    char text[2000];
    struct hutch_err err;
    uint64_t got;

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(hutch_parse_u64(text, &got, &err), -1);
    assert_non_null(strstr(err.msg, "write digits only"));
    assert_in_range(strlen(err.msg), 20, 200);
}

static void test_control_characters_do_not_reach_the_message(void **state)
{
    struct hutch_err err;
    uint64_t got;

    (void)state;
    assert_int_equal(hutch_parse_bytes("\033[2J", &got, &err), -1);
    assert_null(strchr(err.msg, '\033'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_cpus),
        cmocka_unit_test(test_u64),
        cmocka_unit_test(test_message_repeats_little_of_a_long_text),
        cmocka_unit_test(test_control_characters_do_not_reach_the_message),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
