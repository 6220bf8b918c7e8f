/* test_processes.c - processes of a session whose helpers say anything, and while calls of libc fail. */
#include "tests/unit/lib/passages.h" /* the first: it makes calls of libc fail */

#include "sandbox/clock.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    unsigned ends;
    int exit_code;
    size_t n_said;
    char said[16], why[256];
} spawned[2];

static void on_said(void *user, uint64_t session, uint64_t process, int stream, const char *data, size_t len)
{
    const size_t i = (size_t)user;

    (void)session;
    (void)process;
    assert_int_equal(stream, 1);
    for (size_t k = 0; k < len && spawned[i].n_said + 1 < sizeof(spawned[i].said); k++)
        spawned[i].said[spawned[i].n_said++] = data[k];
}

static void on_process_end(void *user, uint64_t session, uint64_t process, const struct hutch_process_end *end)
{
    const size_t i = (size_t)user;

    (void)session;
    (void)process;
    spawned[i].ends++;
    spawned[i].exit_code = end->exit_code;
    snprintf(spawned[i].why, sizeof(spawned[i].why), "%s", end->why);
}

/* What may be asked of it at any time. */
static void ask_of_process(struct lair *p, uint64_t session, uint64_t process)
{
    struct hutch_error error;

    hutch_process_write(p->engine, session, process, "input", 5, &error);
    hutch_process_close_stdin(p->engine, session, process, &error);
    hutch_process_hold(p->engine, session, process, 1, &error);
    free(hutch_session_processes(p->engine, session, &error));
    hutch_process_hold(p->engine, session, process, 0, &error);
}

/* Two processes, one before the session has a sandbox. */
static void go_through_processes(struct lair *p, const char *label)
{
    static const char *const args[] = { "program", "argument", NULL };
    struct hutch_session_options options;
    struct hutch_process_options process;
    struct hutch_error error = { .message = "" };
    uint64_t id = 0, number;

    memset(spawned, 0, sizeof(spawned));
    memset(&last_word, 0, sizeof(last_word));
    hutch_session_options_init(&options);
    options.max_processes = 2;
    options.on_end = on_end;
    if (hutch_session_open(p->engine, &options, &id, &error) < 0) {
        if (!error.message[0])
            fail_msg("%s: a session is refused without a reason", label);
        return;
    }
    hutch_process_options_init(&process);
    process.args = args;
    process.has_input = 1;
    process.on_output = on_said;
    process.on_end = on_process_end;
    for (size_t i = 0; i < ARRAY_SIZE(spawned); i++) {
        process.user = (void *)i;
        error.message[0] = '\0';
        if (hutch_session_spawn(p->engine, id, &process, &number, &error) < 0) {
            if (!error.message[0])
                fail_msg("%s: process %zu is refused without a reason", label, i);
            continue;
        }
        ask_of_process(p, id, number);
        while (spawned[i].ends == 0)
            turn(p);
        if (spawned[i].exit_code != 0 && !spawned[i].why[0])
            fail_msg("%s: process %zu does not say why it failed", label, i);
        if (spawned[i].exit_code == 0 && strcmp(spawned[i].said, "said\n") != 0)
            fail_msg("%s: process %zu is well, and has said '%s'", label, i, spawned[i].said);
    }
    close_session(p, id, label);
    for (size_t i = 0; i < ARRAY_SIZE(spawned); i++)
        if (spawned[i].ends > 1)
            fail_msg("%s: process %zu has %u ends", label, i, spawned[i].ends);
}

static void check_all_processes(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(spawned); i++)
        if (spawned[i].ends != 1 || spawned[i].exit_code != 0)
            fail_msg("nothing fails, and process %zu does: %s", i, spawned[i].why);
}

static void test_failpoints_of_processes(void **state)
{
    static const struct passage passage = { "processes", go_through_processes, check_all_processes, 500 };

    try_each_call(*state, &passage);
}

#define ROUGH_SESSIONS 4
#define ROUGH_PROCESSES 3

static unsigned rough_ends[ROUGH_SESSIONS * ROUGH_PROCESSES], n_rough_ends, n_rough_ok, n_rough_sessions;

static void on_rough_end(void *user, uint64_t session, uint64_t process, const struct hutch_process_end *end)
{
    (void)session;
    (void)process;
    rough_ends[(size_t)user]++;
    n_rough_ends++;
    n_rough_ok += end->exit_code == 0;
    assert_true(end->exit_code == 0 || end->exit_code > 0 || end->signal != 0 || end->why[0]);
}

static void on_rough_session(void *user, uint64_t session, const char *why, const char *directory)
{
    (void)user;
    (void)session;
    (void)directory;
    assert_true(why[0]);
    n_rough_sessions--;
}

static void on_nothing(void *user, uint64_t session, uint64_t process, int stream, const char *data, size_t len)
{
    (void)user;
    (void)session;
    (void)process;
    (void)data;
    assert_true((stream == 1 || stream == 2) && len > 0);
}

/* Whatever the spawner, the processes and init say, and whichever of them ends: each process has one end. */
static void test_anything_of_processes(void **state)
{
    static const char *const args[] = { "program", NULL };
    struct lair *p = *state;
    unsigned n_all = 0, n_ok = 0;

    for (int seed = 1; seed <= 8; seed++) {
        struct hutch_session_options options;
        struct hutch_process_options process;
        uint64_t sessions[ROUGH_SESSIONS], number;
        unsigned n = 0;
        char how[16];
        double until;

        memset(rough_ends, 0, sizeof(rough_ends));
        n_rough_ends = n_rough_ok = n_rough_sessions = 0;
        snprintf(how, sizeof(how), "%d lives", seed);
        open_engine(p, how);
        p->engine->core.setup_ms = p->engine->core.import_ms = p->engine->core.answer_ms = 300;
        hutch_process_options_init(&process);
        process.args = args;
        process.has_input = 1;
        process.on_output = on_nothing;
        process.on_end = on_rough_end;
        for (size_t i = 0; i < ROUGH_SESSIONS; i++) {
            hutch_session_options_init(&options);
            options.max_processes = ROUGH_PROCESSES;
            options.on_end = on_rough_session;
            assert_int_equal(hutch_session_open(p->engine, &options, &sessions[i], NULL), 0);
            n_rough_sessions++;
            for (size_t k = 0; k < ROUGH_PROCESSES; k++, n++) {
                process.user = (void *)(uintptr_t)n;
                process.terminal = k == 2; /* its master never comes: what comes may be anything */
                assert_int_equal(hutch_session_spawn(p->engine, sessions[i], &process, &number, NULL), 0);
                ask_of_process(p, sessions[i], number);
            }
        }
        /* one whose end was not told to the engine runs until its session is closed */
        for (until = hutch_clock_ms() + 1500; n_rough_ends < n && hutch_clock_ms() < until;)
            turn_within(p, 100);
        for (size_t i = 0; i < ROUGH_SESSIONS; i++)
            hutch_session_close(p->engine, sessions[i]);
        while (n_rough_sessions > 0)
            turn(p);
        for (unsigned i = 0; i < n; i++)
            assert_int_equal(rough_ends[i], 1);
        n_all += n;
        n_ok += n_rough_ok;
        close_engine(p);
    }
    print_message("%u of %u processes ended well\n", n_ok, n_all);
    assert_true(n_ok > 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_failpoints_of_processes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_anything_of_processes, set_up, tear_down),
    };

    begin_program(argc, argv);
    return cmocka_run_group_tests_name("processes of an engine", tests, NULL, NULL);
}
