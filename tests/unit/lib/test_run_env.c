/* test_run_env.c - the environment of a run, put together of the sandbox's, its limits' and its own. */
#include "runtime/lib/run_env.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_later_values_keep_the_place(void **state)
{
    static const char *const base[] = { "PATH=/bin", "A=1", "AB=2", "B=", NULL };
    static const char *const more[] = { "AB=3", "C=4", "A=5=6", "C=7", NULL };
    static const char *const want[] = { "PATH=/bin", "A=5=6", "AB=3", "B=", "C=7" };
    const struct sandbox_spec spec = { .envp = (char **)base };
    const uint64_t limits[LIMIT_COUNT] = { 0 };
    auto_run_env env = { .list = NULL };
    struct hutch_err err;

    (void)state;
    assert_int_equal(hutch_run_env_merge(&spec, limits, more, &env, &err), 0);
    assert_int_equal(env.n, ARRAY_SIZE(want));
    for (size_t i = 0; i < env.n; i++)
        assert_string_equal(env.list[i], want[i]);
    assert_null(env.list[env.n]);
}

/* As many as no request may have, each twice: compared with one another they would keep the engine's loop for minutes,
 * and this test with it. */
static void test_many_variables(void **state)
{
    enum { N = 200000, LEN = 16 };
    const struct sandbox_spec spec = { .envp = NULL };
    const uint64_t limits[LIMIT_COUNT] = { 0 };
    auto_free char *texts = malloc((size_t)2 * N * LEN);
    auto_free const char **more = calloc((size_t)2 * N + 1, sizeof(*more));
    auto_run_env env = { .list = NULL };
    struct hutch_err err;

    (void)state;
    assert_true(texts && more);
    for (size_t i = 0; i < (size_t)2 * N; i++) {
        more[i] = texts + i * LEN;
        sprintf(texts + i * LEN, "V%zu=%d", i % N * 7919 % N, i >= N);
    }
    assert_int_equal(hutch_run_env_merge(&spec, limits, more, &env, &err), 0);
    assert_int_equal(env.n, N);
    assert_string_equal(env.list[0], "V0=1");
    assert_string_equal(env.list[1], "V7919=1");
    assert_null(env.list[N]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_later_values_keep_the_place),
        cmocka_unit_test(test_many_variables),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
