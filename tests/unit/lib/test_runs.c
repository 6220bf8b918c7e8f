/* test_runs.c - runs of an engine whose helpers do what they are asked: how they end, and how the engine does. */
#include "tests/unit/lib/lair.h" /* the first: it makes calls of libc fail */

#include <seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static void test_runs(void **state)
{
    struct lair *p = *state;
    struct hutch_request request;
    char want[128];
    uint64_t id;

    open_engine(p, "");
    request = request_for("#! out err");
    id = submit(p, &request); /* before anything is ready */
    await(p, 1);
    assert_int_equal(runs[id].verdict, HUTCH_OK);
    assert_string_equal(runs[id].out, "said\n");
    assert_string_equal(runs[id].err, "complained\n");
    assert_string_equal(runs[id].zygote, "bare");
    assert_false(runs[id].was_prepared);
    await_full_pool(p);

    request = request_for("#! echo fail");
    request.input = "given\n";
    request.input_len = 6;
    id = submit(p, &request);
    assert_int_equal(runs[id].results, 0); /* never before submit returns */
    await(p, 2);
    assert_int_equal(runs[id].verdict, HUTCH_ERROR);
    assert_int_equal(runs[id].exit_code, 3);
    assert_string_equal(runs[id].out, "given\n");
    assert_true(runs[id].was_prepared);

    request = request_for("import numpy\n#! out");
    request.on_output = on_output;
    id = submit(p, &request);
    await(p, 3);
    assert_string_equal(runs[id].zygote, "data");
    assert_string_equal(runs[id].streamed, "1:said\n");
    assert_string_equal(runs[id].out, "");

    request = request_for("import no_such_module\n#!");
    id = submit(p, &request);
    await(p, 4);
    assert_string_equal(runs[id].zygote, "bare"); /* the other one has not got it either */

    request = request_for("#! file");
    id = submit(p, &request);
    request.keep_data = 1;
    assert_int_equal(submit(p, &request), id + 1);
    await(p, 6);
    assert_string_equal(runs[id].directory, "");
    snprintf(want, sizeof(want), "%s/outputs/", p->home);
    assert_memory_equal(runs[id + 1].directory, want, strlen(want));

    request = request_for("#! out");
    request.data_dir = p->dir;
    assert_int_equal(hutch_engine_submit(p->engine, &request, NULL, NULL), -1); /* hutch's own lies in it */
    request.data_dir = "/usr/include";
    id = submit(p, &request);
    await(p, 7);
    assert_int_equal(runs[id].verdict, HUTCH_OK);
    assert_string_equal(runs[id].directory, "/usr/include");

    request = request_for("echo");
    request.language = "sh";
    id = submit(p, &request);
    await(p, 8);
    assert_string_equal(runs[id].out, "executed\n");
    assert_string_equal(runs[id].zygote, "");

    request = request_for("#! out");
    request.memory_bytes = 64 << 20;
    request.pids = 10;
    request.cpus = 500;
    await_full_pool(p);
    id = submit(p, &request);
    await(p, 9);
    assert_string_equal(runs[id].out, "said\n");
    assert_true(runs[id].was_prepared); /* its limits were made tighter */
    request.policy = p->policy; /* that of the engine */
    await_full_pool(p);
    id = submit(p, &request);
    await(p, 10);
    assert_true(runs[id].was_prepared);
    request.policy = "default";
    id = submit(p, &request);
    await(p, 11);
    assert_string_equal(runs[id].out, "said\n");
    assert_false(runs[id].was_prepared);

    request = request_for("#! out");
    request.env = (const char *const[]){ "PYTHONHASHSEED=0", NULL };
    id = submit(p, &request);
    await(p, 12);
    assert_string_equal(runs[id].out, "executed\n"); /* too late for an interpreter that runs */
    for (uint64_t i = 1; i <= 12; i++)
        assert_int_equal(runs[i].results, 1);
    close_engine(p);
}

static void test_ends(void **state)
{
    struct lair *p = *state;
    struct hutch_request request = request_for("#! out vanish");
    uint64_t id;

    open_engine(p, "");
    id = submit(p, &request);
    await(p, 1);
    assert_int_equal(runs[id].verdict, HUTCH_KILLED); /* its code had begun: not again */
    assert_string_equal(runs[id].message, "the sandbox was killed from outside");
    assert_string_equal(runs[id].out, "said\n");
    assert_int_equal(runs[id].restarts, 0);

    request = request_for("#! out wait");
    request.wall_ms = 100;
    id = submit(p, &request);
    await(p, 2);
    assert_int_equal(runs[id].verdict, HUTCH_TIMEOUT);

    request.wall_ms = 0;
    request.on_output = on_output;
    id = submit(p, &request);
    while (!runs[id].streamed[0])
        turn(p);
    assert_int_equal(hutch_engine_cancel(p->engine, id), 1);
    /* The end of its sandbox is all that ends it, which a player does not notice by himself. */
    hutch_engine_free(p->engine);
    p->engine = NULL;
    assert_int_equal(runs[id].results, 0);
}

static void submit_another(void *user, uint64_t id, const struct hutch_result *r)
{
    struct lair *p = user;
    struct hutch_request request = request_for("#! out");

    on_result(NULL, id, r);
    request.on_result = submit_another;
    request.user = p;
    if (id <= 90)
        submit(p, &request);
}

static void test_callbacks_may_submit(void **state)
{
    struct lair *p = *state;
    struct hutch_request request = request_for("#! out");

    request.on_result = submit_another;
    request.user = p;
    open_engine(p, "");
    for (int i = 0; i < 10; i++)
        submit(p, &request);
    await(p, 100);
    for (uint64_t id = 1; id <= 100; id++) {
        assert_int_equal(runs[id].results, 1);
        assert_int_equal(runs[id].verdict, HUTCH_OK);
    }
    assert_int_equal(stats_of(p).finished, 100);
    close_engine(p);
}

/* An engine ends with whatever is on its way, without a call. */
static void test_free_at_any_time(void **state)
{
    struct lair *p = *state;

    for (int turns = 0; turns < 40; turns++) {
        struct hutch_request request = request_for(turns % 2 ? "#! out wait" : "import numpy\n#! file");

        n_results = 0;
        open_engine(p, "");
        for (int i = 0; i < 6; i++)
            submit(p, &request);
        for (int i = 0; i < turns; i++) /* some of them for nothing */
            turn_within(p, 2);
        close_engine(p);
    }
}

/* As under valgrind 3.19. The filter stays, so this is the last test. */
static void test_without_pidfd_open(void **state)
{
    struct lair *p = *state;
    struct hutch_request request = request_for("#! out");
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);

    assert_non_null(filter);
    assert_int_equal(seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(pidfd_open), 0), 0);
    assert_int_equal(seccomp_load(filter), 0);
    seccomp_release(filter);
    open_engine(p, "");
    submit(p, &request);
    await(p, 1);
    assert_int_equal(runs[1].verdict, HUTCH_OK);
    close_engine(p); /* looks for processes that were not waited for */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_runs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_ends, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_callbacks_may_submit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_free_at_any_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_without_pidfd_open, set_up, tear_down),
    };

    begin_program(argc, argv);
    return cmocka_run_group_tests_name("runs of an engine", tests, NULL, NULL);
}
