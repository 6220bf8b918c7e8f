/* test_descriptors.c - an engine that may have few descriptors. */
#include "tests/unit/lib/lair.h" /* the first: it makes calls of libc fail */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static void set_open_files(rlim_t soft)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = soft;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void check_refusal(const struct hutch_error *error, unsigned limit)
{
    char want[64];

    snprintf(want, sizeof(want), "more are needed, and the limit is %u: raise RLIMIT_NOFILE", limit);
    if (error->code != EMFILE || !strstr(error->message, want))
        fail_msg("a limit of %u: error %d, '%s'", limit, error->code, error->message);
}

/* Under whatever limit: an engine does not open and says what it needs, or it runs all that it takes. */
static void test_few_descriptors(void **state)
{
    static const struct hutch_zygote one = { .name = "bare", .min = 1, .max = 8 };
    const unsigned max_limit = 400, n_enough = 6;
    struct lair *p = *state;
    unsigned opened = 0, n_refused = 0;
    struct rlimit usual;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    p->options.zygotes = &one;
    p->options.n_zygotes = 1;
    p->options.max_running = 2;
    setenv("HUTCH_FAKE", "", 1);
    for (unsigned limit = 16; opened < n_enough; limit++) {
        struct hutch_request request = request_for("#! out file");
        struct hutch_error error = { .message = "" };
        int rc;

        memset(runs, 0, sizeof(runs));
        n_results = 0;
        assert_true(limit < max_limit);
        set_open_files(limit);
        rc = hutch_engine_open(&p->options, &p->engine, &error);
        if (rc < 0)
            check_refusal(&error, limit);
        for (int i = 0; rc == 0 && i < 12; i++) { /* more than there is room for in the pool */
            request.data_dir = i % 4 == 3 ? "/usr/include" : NULL;
            request.keep_data = i % 4 == 2;
            submit(p, &request);
        }
        if (rc == 0)
            await(p, 12);
        set_open_files(usual.rlim_cur);
        for (uint64_t id = 1; rc == 0 && id <= 12; id++)
            if (runs[id].results != 1 || runs[id].verdict != HUTCH_OK)
                fail_msg("a limit of %u: run %u: %u results, %s", limit, (unsigned)id, runs[id].results,
                         runs[id].message);
        opened += rc == 0;
        n_refused += rc < 0;
        if (rc == 0)
            close_engine(p);
        else
            p->engine = NULL;
        assert_int_equal(count_fds(), p->n_fds);
    }
    print_message("%u limits are too low for this engine\n", n_refused);
    assert_true(n_refused > 0);
}

/* A session is refused while there are still enough for all that was promised before. */
static void test_too_many_sessions(void **state)
{
    const unsigned limit = 400;
    struct hutch_session_options session;
    struct hutch_request request = request_for("#! out");
    struct hutch_error error = { .message = "" };
    struct lair *p = *state;
    struct rlimit usual;
    uint64_t id = 0;
    unsigned n = 0;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    open_engine(p, "");
    for (int i = 0; i < 24; i++) /* the pools grow */
        submit(p, &request);
    await(p, 24);
    set_open_files(limit);
    hutch_session_options_init(&session);
    while (n < limit && hutch_session_open(p->engine, &session, &id, &error) == 0)
        n++;
    check_refusal(&error, limit);
    assert_in_range(n, 5, limit / 10);
    for (int i = 0; i < 24; i++)
        submit(p, &request);
    await(p, 48);
    for (size_t i = 0; i < MAX_RUNS; i++)
        if (runs[i].results > 0)
            assert_int_equal(runs[i].verdict, HUTCH_OK);
    set_open_files(limit / 4);
    assert_int_equal(hutch_session_checkpoint(p->engine, id, NULL, NULL, &error), -1);
    check_refusal(&error, limit / 4);
    assert_int_equal(hutch_session_fork(p->engine, id, NULL, NULL, &error), -1);
    check_refusal(&error, limit / 4);
    request.policy = "default"; /* by a template of its own */
    assert_int_equal(hutch_engine_submit(p->engine, &request, NULL, &error), -1);
    check_refusal(&error, limit / 4);
    set_open_files(usual.rlim_cur);
    assert_int_equal(hutch_session_open(p->engine, &session, NULL, &error), 0); /* a limit may be raised at any time */
    close_engine(p);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_few_descriptors, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_too_many_sessions, set_up, tear_down),
    };

    begin_program(argc, argv);
    return cmocka_run_group_tests_name("descriptors of an engine", tests, NULL, NULL);
}
