/* test_helpers.c - helpers of an engine that die, hang, cannot be made or say anything: every run gets its result. */
#include "tests/unit/lib/lair.h" /* the first: it makes calls of libc fail */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A zygote that dies while it forks: its runs begin again with the spare. */
static void test_a_zygote_dies(void **state)
{
    struct lair *p = *state;
    struct hutch_request request = request_for("#! out");
    uint64_t id;

    open_engine(p, "fork:5");
    for (int i = 0; i < 20; i++) {
        id = submit(p, &request);
        await(p, (unsigned)i + 1);
        assert_int_equal(runs[id].results, 1);
        assert_int_equal(runs[id].verdict, HUTCH_OK);
    }
    await_full_pool(p);
    assert_int_equal(stats_of(p).lost_zygotes, 1);
    assert_int_equal(stats_of(p).zygotes[0].recycled + stats_of(p).zygotes[1].recycled, 1);
    close_engine(p);
}

/* Its worker is killed before it has read the job: nothing of the program has run, so it begins again. */
static void test_a_job_that_nobody_reads(void **state)
{
    struct lair *p = *state;
    struct hutch_request request = request_for("#! out");
    uint64_t id;

    open_engine(p, "deaf:2");
    await_full_pool(p);
    id = submit(p, &request);
    await(p, 1);
    assert_int_equal(runs[id].verdict, HUTCH_OK);
    assert_string_equal(runs[id].out, "said\n");
    assert_int_equal(runs[id].restarts, 2);
    assert_int_equal(stats_of(p).restarted, 2);
    assert_int_equal(stats_of(p).lost_sandboxes, 2);
    close_engine(p);

    n_results = 0;
    open_engine(p, "deaf:100");
    id = submit(p, &request);
    await(p, 1);
    assert_int_equal(runs[id].verdict, HUTCH_SETUP_FAILED); /* but not for ever */
    assert_string_equal(runs[id].message, "its sandbox was broken from outside, 4 times");
    close_engine(p);
}

/* A zygote that this image cannot have is given up, and its runs go to its parent; one that dies without a word is
 * tried again. */
static void test_a_zygote_that_cannot_be(void **state)
{
    struct lair *p = *state;
    struct hutch_request request = request_for("import numpy\n#! out");
    uint64_t id;

    open_engine(p, "refuse");
    id = submit(p, &request);
    await(p, 1);
    assert_int_equal(runs[id].verdict, HUTCH_OK);
    while (stats_of(p).building > 0 || stats_of(p).prepared < 2)
        turn(p);
    id = submit(p, &request);
    await(p, 2);
    assert_string_equal(runs[id].zygote, "bare");
    assert_false(stats_of(p).zygotes[1].is_ready);
    assert_int_equal(stats_of(p).zygotes[1].prepared, 0);
    close_engine(p);

    n_results = 0;
    open_engine(p, "speechless");
    id = submit(p, &request);
    await(p, 1);
    assert_int_equal(runs[id].verdict, HUTCH_OK); /* by the parent */
    assert_string_equal(runs[id].zygote, "data");
    close_engine(p);
}

static void test_recycling(void **state)
{
    struct lair *p = *state;
    struct hutch_request request = request_for("#! out");

    p->options.recycle_forks = 10;
    open_engine(p, "");
    for (unsigned i = 1; i <= 60; i++) {
        uint64_t id = submit(p, &request);

        await(p, i);
        assert_int_equal(runs[id].verdict, HUTCH_OK);
    }
    await_full_pool(p);
    assert_true(stats_of(p).zygotes[0].recycled >= 2);
    assert_true(stats_of(p).zygotes[0].is_ready);
    assert_int_equal(stats_of(p).lost_zygotes, 0); /* nobody died: they were let go */
    close_engine(p);
}

/* Whichever helper process stops to answer is replaced, and the runs that have not begun find out nothing. */
static void test_a_helper_that_hangs(void **state)
{
    struct lair *p = *state;

    p->options.answer_ms = 500;
    for (int role = OPENER; role <= ZYGOTE; role++)
        for (unsigned orders = role == OPENER ? 0 : 3; orders < 7; orders += 3) {
            struct hutch_request request = request_for("#! out");
            char how[16];

            memset(runs, 0, sizeof(runs));
            n_results = 0;
            request.data_dir = role == OPENER ? "/usr/include" : NULL;
            snprintf(how, sizeof(how), "mute:%d:%u", role, orders);
            open_engine(p, how);
            setenv("HUTCH_FAKE", "", 1); /* for the opener's successor */
            for (int i = 0; i < 12; i++)
                submit(p, &request);
            await(p, 12);
            for (uint64_t id = 1; id <= 12; id++)
                if (runs[id].results != 1 || runs[id].verdict != HUTCH_OK)
                    fail_msg("%s: run %u: %u results, %s", how, (unsigned)id, runs[id].results, runs[id].message);
            assert_true(stats_of(p).hung > 0);
            assert_true(role == ZYGOTE ? stats_of(p).lost_zygotes > 0 : stats_of(p).lost_launchers > 0);
            close_engine(p);
        }
}

/* Whom a run waits for in vain is named. */
static void test_a_run_that_cannot_start(void **state)
{
    struct lair *p = *state;
    struct hutch_request request = request_for("#! out");

    p->options.answer_ms = 30000;
    p->options.setup_ms = 200;
    open_engine(p, "mute:1:3");
    submit(p, &request);
    await(p, 1);
    assert_int_equal(runs[1].verdict, HUTCH_SETUP_FAILED);
    assert_string_equal(runs[1].message, "no sandbox was ready within 0.2 s: it waits for the launcher");
    close_engine(p);
}

/* No signal ends it, as where it hangs in the kernel: its run is told of, and it is said what hung. */
static void test_a_sandbox_that_cannot_be_killed(void **state)
{
    struct lair *p = *state;
    struct hutch_request request = request_for("#! out wait");
    uint64_t id;

    request.on_output = on_output;
    p->options.setup_ms = 200;
    open_engine(p, "");
    id = submit(p, &request);
    while (!runs[id].streamed[0])
        turn(p);
    assert_int_equal(hutch_engine_cancel(p->engine, id), 1);
    await(p, 1);
    assert_int_equal(runs[id].results, 1);
    assert_int_equal(runs[id].verdict, HUTCH_KILLED);
    assert_string_equal(runs[id].streamed, "1:said\n");
    assert_true(stats_of(p).hung > 0);
    close_engine(p);
}

/* Whatever the helpers say: every run gets exactly one result, with words where it could not start, and nothing is left
 * behind. */
static void test_anything_from_the_helpers(void **state)
{
    struct lair *p = *state;
    unsigned n_ok = 0, n_all = 0;

    for (int seed = 1; seed <= 16; seed++) {
        struct hutch_request request = request_for(seed % 3 ? "#! out" : "import numpy\n#! out err file");
        char how[16];
        unsigned n = 0;

        memset(runs, 0, sizeof(runs));
        n_results = 0;
        snprintf(how, sizeof(how), "%d", seed);
        open_engine(p, how);
        /* much of what it waits for never comes */
        p->engine->core.setup_ms = p->engine->core.import_ms = p->engine->core.answer_ms = 50;
        for (int i = 0; i < 30; i++) {
            request.data_dir = i % 8 == 7 ? "/usr/include" : NULL;
            request.language = i % 11 == 10 ? "sh" : NULL;
            request.memory_bytes = i % 4 == 2 ? 64 << 20 : 0;
            request.policy = i % 13 == 12 ? "default" : NULL;
            request.wall_ms = 300;
            request.user = p;
            submit(p, &request);
            n++;
        }
        await(p, n);
        for (uint64_t id = 1; id <= n; id++) {
            assert_int_equal(runs[id].results, 1);
            assert_true(runs[id].verdict != HUTCH_SETUP_FAILED || runs[id].message[0]);
            n_ok += runs[id].verdict == HUTCH_OK;
        }
        n_all += n;
        close_engine(p);
    }
    print_message("%u of %u runs ended well\n", n_ok, n_all);
    assert_true(n_ok > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_zygote_dies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_job_that_nobody_reads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_zygote_that_cannot_be, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_recycling, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_helper_that_hangs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_run_that_cannot_start, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_sandbox_that_cannot_be_killed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_anything_from_the_helpers, set_up, tear_down),
    };

    begin_program(argc, argv);
    return cmocka_run_group_tests_name("helpers of an engine", tests, NULL, NULL);
}
