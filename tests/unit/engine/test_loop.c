/* test_loop.c - deadlines in their order, whatever is set, moved and unset meanwhile; descriptors; and what is freed at
 * the end of a turn. */
#include "runtime/engine/loop.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cmocka.h>

#define ITEMS 500
#define ROUNDS 40
#define CHANGES 3000

struct item {
    struct deadline deadline;
    struct loop *loop;
    double at;  /* as it was set; LOOP_NEVER: not */
    int calls;
};

static struct loop loop;
static struct item items[ITEMS];
static double last;
static int n_called;

static void on_due(void *owner, double now)
{
    struct item *item = owner;

    (void)now;
    assert_true(item->at >= last);
    last = item->at;
    item->at = LOOP_NEVER;
    item->calls++;
    n_called++;
}

static int open_loop(void **state)
{
    struct hutch_err err;

    (void)state;
    loop = (struct loop)LOOP_INIT;
    n_called = 0;
    last = 0;
    return hutch_loop_open(&loop, &err);
}

static int close_loop(void **state)
{
    (void)state;
    hutch_loop_done(&loop);
    return 0;
}

static bool is_readable(void)
{
    struct pollfd p = { .fd = loop.epoll_fd, .events = POLLIN };

    return poll(&p, 1, 0) == 1;
}

static void turn(void)
{
    hutch_loop_begin_turn(&loop);
    hutch_loop_run_due(&loop);
    hutch_loop_end_turn(&loop, false);
}

static void test_order(void **state)
{
    (void)state;
    srand(1);
    for (int i = 0; i < ITEMS; i++)
        items[i] = (struct item){ .deadline = DEADLINE_INIT(on_due, &items[i]), .at = LOOP_NEVER };
    for (int round = 0; round < ROUNDS; round++) {
        int set = 0;

        for (int k = 0; k < CHANGES; k++) {
            struct item *item = &items[rand() % ITEMS];
            double at = rand() % 3 ? 1 + rand() % 1000 : LOOP_NEVER; /* all of it is long ago */

            if (rand() % 4 == 0 && at < LOOP_NEVER) {
                hutch_loop_advance_deadline(&loop, &item->deadline, at);
                item->at = at < item->at ? at : item->at;
            } else {
                hutch_loop_set_deadline(&loop, &item->deadline, at);
                item->at = at;
            }
        }
        for (int i = 0; i < ITEMS; i++)
            set += items[i].at < LOOP_NEVER;
        n_called = 0;
        last = 0;
        turn();
        assert_int_equal(n_called, set);
        assert_null(loop.first);
    }
}

static void test_wakes(void **state)
{
    struct item *item = &items[0];

    (void)state;
    *item = (struct item){ .deadline = DEADLINE_INIT(on_due, item), .at = 1e12 };
    assert_false(is_readable());
    hutch_loop_set_deadline(&loop, &item->deadline, 1e12);
    assert_false(is_readable());
    hutch_loop_set_deadline(&loop, &item->deadline, item->at = 1);
    assert_true(is_readable());
    turn();
    assert_int_equal(item->calls, 1);
    assert_false(is_readable());
    hutch_loop_wake(&loop);
    assert_true(is_readable());
    hutch_loop_begin_turn(&loop);
    hutch_loop_end_turn(&loop, true);
    assert_true(is_readable());
    turn();
    assert_false(is_readable());
}

static void set_again(void *owner, double now)
{
    struct item *item = owner;

    (void)now;
    item->calls++;
    hutch_loop_set_deadline(item->loop, &item->deadline, 0);
}

/* One that sets itself for the past over and over does not hold up the others. */
static void test_again(void **state)
{
    struct item *busy = &items[0], *other = &items[1];

    (void)state;
    *busy = (struct item){ .deadline = DEADLINE_INIT(set_again, busy), .loop = &loop };
    *other = (struct item){ .deadline = DEADLINE_INIT(on_due, other), .at = 5 };
    hutch_loop_set_deadline(&loop, &busy->deadline, 1);
    hutch_loop_set_deadline(&loop, &other->deadline, other->at);
    turn();
    assert_int_equal(busy->calls, 1);
    assert_int_equal(other->calls, 1);
    assert_true(is_readable());
    turn();
    assert_int_equal(busy->calls, 2);
    hutch_loop_set_deadline(&loop, &busy->deadline, LOOP_NEVER);
}

static void count_free(void *object)
{
    ++*(int *)object;
}

static void on_ready(struct watch *w, uint32_t events)
{
    static struct doomed doomed;
    int *freed = w->owner;

    assert_true(events & EPOLLIN);
    hutch_loop_free_later(w->loop, &doomed, freed, count_free);
    assert_int_equal(*freed, 0);
    hutch_watch_remove(w);
}

static double stood_still;

static void note_stillness(void *owner, double now)
{
    (void)owner;
    (void)now;
    stood_still = hutch_loop_stood_still(&loop);
    n_called++;
}

/* What is to be done at once was not late, and what was due a minute ago was. */
static void test_stillness(void **state)
{
    struct deadline d = DEADLINE_INIT(note_stillness, NULL);

    (void)state;
    hutch_loop_advance_deadline(&loop, &d, 0);
    hutch_loop_run_due(&loop);
    assert_int_equal(n_called, 1);
    assert_true(stood_still == 0);
    hutch_loop_set_deadline(&loop, &d, hutch_clock_ms() - 60000);
    hutch_loop_run_due(&loop);
    assert_int_equal(n_called, 2);
    assert_true(stood_still >= 60000);
}

static void test_watch_and_free_later(void **state)
{
    struct watch w = WATCH_INIT;
    struct hutch_err err;
    int fds[2], freed = 0;

    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(hutch_watch_add(&w, &loop, fds[0], EPOLLIN, on_ready, &freed, &err), 0);
    assert_false(is_readable());
    assert_int_equal(write(fds[1], "x", 1), 1);
    assert_true(is_readable());
    hutch_loop_begin_turn(&loop);
    assert_int_equal(freed, 0);
    hutch_loop_end_turn(&loop, false);
    assert_int_equal(freed, 1);
    assert_false(is_readable());
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(test_wakes, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(test_again, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(test_stillness, open_loop, close_loop),
        cmocka_unit_test_setup_teardown(test_watch_and_free_later, open_loop, close_loop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
