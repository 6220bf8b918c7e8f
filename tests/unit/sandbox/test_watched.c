/* test_watched.c - which processes init watches: its own living children, each once, until it has reaped them. */
#include "sandbox/watched.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static pid_t make_child(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        setpgid(0, 0);
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    setpgid(pid, pid); /* whichever is first */
    return pid;
}

static int await(pid_t pid)
{
    int status = 0;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void test_own_living_children_only(void **state)
{
    struct watched watched = { 0 };
    pid_t pid = make_child();

    (void)state;
    assert_false(hutch_watched_add(&watched, 0));
    assert_false(hutch_watched_add(&watched, 1));
    assert_false(hutch_watched_add(&watched, -1));
    assert_false(hutch_watched_add(&watched, getpid()));
    assert_true(hutch_watched_add(&watched, pid));
    assert_false(hutch_watched_add(&watched, pid)); /* one end would be told twice */
    kill(pid, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT), 0);
    assert_false(hutch_watched_is_living_child(pid)); /* a zombie */
    assert_true(hutch_watched_take(&watched, pid));
    assert_false(hutch_watched_take(&watched, pid));
    assert_false(hutch_watched_add(&watched, pid));
    await(pid);
    assert_false(hutch_watched_is_living_child(pid));
}

static void test_signals_go_to_what_is_watched(void **state)
{
    struct watched watched = { 0 };
    pid_t one = make_child(), other = make_child();
    int status;

    (void)state;
    assert_true(hutch_watched_add(&watched, one));
    hutch_watched_signal(&watched, other, SIGKILL);
    hutch_watched_signal(&watched, one, 0);
    hutch_watched_signal(&watched, one, NSIG);
    assert_true(hutch_watched_is_living_child(one));
    hutch_watched_signal(&watched, one, SIGTERM);
    status = await(one);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    assert_true(hutch_watched_is_living_child(other));
    kill(other, SIGKILL);
    await(other);
}

static void test_there_is_a_bound(void **state)
{
    struct watched watched = { 0 };
    pid_t pids[WATCHED_MAX + 1];

    (void)state;
    for (int i = 0; i <= WATCHED_MAX; i++) {
        pids[i] = make_child();
        assert_int_equal(hutch_watched_add(&watched, pids[i]), i < WATCHED_MAX);
    }
    assert_true(hutch_watched_take(&watched, pids[3]));
    assert_true(hutch_watched_add(&watched, pids[WATCHED_MAX]));
    for (int i = 0; i <= WATCHED_MAX; i++) {
        kill(pids[i], SIGKILL);
        await(pids[i]);
        assert_int_equal(hutch_watched_take(&watched, pids[i]), i != 3);
    }
    assert_int_equal(watched.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_living_children_only),
        cmocka_unit_test(test_signals_go_to_what_is_watched),
        cmocka_unit_test(test_there_is_a_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
