/* test_cpu_ledger.c - CPU time of processes that are reaped by their parent, by init, by the kernel. */
#include "sandbox/cpu_ledger.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MS 1000000ull

static struct cpu_ledger ledger;

static void reset(void)
{
    memset(&ledger, 0, sizeof(ledger));
}

/* One look; each process is its number, parent, own and reaped milliseconds. Returns the total in milliseconds. */
static uint64_t look(const struct cpu_seen *seen, size_t n, uint64_t init_ms)
{
    hutch_cpu_ledger_begin(&ledger);
    for (size_t i = 0; i < n; i++) {
        struct cpu_seen one = seen[i];

        one.own_ns *= MS;
        one.reaped_ns *= MS;
        hutch_cpu_ledger_see(&ledger, &one);
    }
    return hutch_cpu_ledger_end(&ledger, init_ms * MS) / MS;
}

#define LOOK(init_ms, ...) look((const struct cpu_seen[]){ __VA_ARGS__ }, \
                                ARRAY_SIZE(((const struct cpu_seen[]){ __VA_ARGS__ })), init_ms)

static void test_a_reaped_child_counts_once(void **state)
{
    (void)state;
    reset();
    assert_int_equal(LOOK(0, { 2, 1, 5, 10, 0 }, { 3, 2, 6, 500, 0 }), 510);
    assert_int_equal(LOOK(0, { 2, 1, 5, 20, 510 }), 530);
    assert_int_equal(LOOK(0, { 2, 1, 5, 20, 510 }), 530);
    assert_false(ledger.is_lower_bound);
}

/* The parent was looked at before it reaped, and the child was gone when its turn came. */
static void test_a_child_reaped_during_a_look(void **state)
{
    (void)state;
    reset();
    LOOK(0, { 2, 1, 5, 10, 0 }, { 3, 2, 6, 500, 0 });
    assert_int_equal(LOOK(0, { 2, 1, 5, 10, 0 }), 510);
    assert_int_equal(LOOK(0, { 2, 1, 5, 10, 500 }), 510);
    assert_int_equal(LOOK(0, { 2, 1, 5, 10, 500 }), 510);
    assert_false(ledger.is_lower_bound);
}

static void test_a_child_that_the_kernel_reaped(void **state)
{
    (void)state;
    reset();
    LOOK(0, { 2, 1, 5, 10, 0 }, { 3, 2, 6, 500, 0 });
    LOOK(0, { 2, 1, 5, 10, 0 });
    assert_int_equal(LOOK(0, { 2, 1, 5, 10, 0 }), 510);
    assert_int_equal(LOOK(0, { 2, 1, 5, 110, 0 }), 590); /* 20: what the ticks of its parent might hide */
    assert_true(ledger.is_lower_bound);
}

static void test_many_short_children_that_the_kernel_reaped(void **state)
{
    uint64_t total = 0;

    (void)state;
    reset();
    for (int i = 0; i < 1000; i++)
        total = LOOK(0, { 2, 1, 5, 10, 0 }, { 3 + i, 2, 6 + (uint64_t)i, 3, 0 });
    assert_in_range(total, 3 * 1000 - 30, 3 * 1000 + 10);
}

/* Each of them costs 7.5 ms, which the ticks of its parent show late. */
static void test_ticks_are_no_loss(void **state)
{
    (void)state;
    reset();
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t reaped_ms = (i * 75 / 10) / 20 * 20;
        struct cpu_seen seen[] = { { 2, 1, 5, 10 * MS, reaped_ms * MS }, { 3 + (pid_t)i, 2, 6 + i, 75 * MS / 10, 0 } };

        hutch_cpu_ledger_begin(&ledger);
        hutch_cpu_ledger_see(&ledger, &seen[0]);
        hutch_cpu_ledger_see(&ledger, &seen[1]);
        hutch_cpu_ledger_end(&ledger, 0);
    }
    assert_in_range(ledger.total_ns / MS, 7500 - 20, 7500 + 20);
    assert_int_equal(ledger.lost_ns, 0);
}

/* The parent has gone as well, and what it did not reap is in no count of init either. */
static void test_a_family_that_is_gone(void **state)
{
    (void)state;
    reset();
    LOOK(0, { 2, 1, 5, 10, 0 }, { 3, 1, 6, 50, 0 }, { 4, 3, 7, 500, 0 });
    LOOK(60, { 2, 1, 5, 10, 0 });
    assert_int_equal(LOOK(60, { 2, 1, 5, 10, 0 }), 10 + 60 + 490);
    reset();
    LOOK(0, { 2, 1, 5, 10, 0 }, { 3, 1, 6, 50, 0 }, { 4, 3, 7, 500, 0 });
    LOOK(560, { 2, 1, 5, 10, 0 });
    assert_int_equal(LOOK(560, { 2, 1, 5, 10, 0 }), 10 + 560);
}

/* A subreaper reaps the children of others. */
static void test_a_subreaper(void **state)
{
    (void)state;
    reset();
    LOOK(0, { 2, 1, 5, 10, 0 }, { 3, 2, 6, 10, 0 }, { 4, 3, 7, 500, 0 });
    LOOK(0, { 2, 1, 5, 10, 510 });
    assert_int_equal(LOOK(0, { 2, 1, 5, 10, 510 }), 520);
    assert_false(ledger.is_lower_bound);
}

static void test_a_number_given_anew(void **state)
{
    (void)state;
    reset();
    LOOK(0, { 2, 1, 5, 10, 0 }, { 3, 2, 6, 500, 0 });
    LOOK(0, { 2, 1, 5, 10, 500 }, { 3, 2, 9, 1, 0 });
    assert_int_equal(LOOK(0, { 2, 1, 5, 10, 500 }, { 3, 2, 9, 2, 0 }), 512);
}

static void test_out_of_order_and_too_many(void **state)
{
    struct cpu_seen one = { .parent = 1, .started = 1, .own_ns = MS };

    (void)state;
    reset();
    assert_int_equal(LOOK(0, { 9, 1, 5, 1, 0 }, { 3, 1, 6, 2, 0 }, { 5, 1, 7, 4, 0 }, { 5, 1, 8, 8, 0 }), 7);
    reset();
    hutch_cpu_ledger_begin(&ledger);
    for (pid_t pid = 2; pid < CPU_LEDGER_MAX + 100; pid++) {
        one.pid = pid;
        hutch_cpu_ledger_see(&ledger, &one);
    }
    assert_int_equal(hutch_cpu_ledger_end(&ledger, 0) / MS, CPU_LEDGER_MAX);
    assert_true(ledger.is_lower_bound);
}

/* A look that was cut short forgets nothing. */
static void test_a_look_that_was_cut_short(void **state)
{
    (void)state;
    reset();
    LOOK(0, { 2, 1, 5, 10, 0 }, { 3, 2, 6, 500, 0 });
    hutch_cpu_ledger_begin(&ledger);
    hutch_cpu_ledger_drop(&ledger);
    assert_int_equal(LOOK(0, { 2, 1, 5, 10, 0 }, { 3, 2, 6, 510, 0 }), 520);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_reaped_child_counts_once),
        cmocka_unit_test(test_a_child_reaped_during_a_look),
        cmocka_unit_test(test_a_child_that_the_kernel_reaped),
        cmocka_unit_test(test_many_short_children_that_the_kernel_reaped),
        cmocka_unit_test(test_ticks_are_no_loss),
        cmocka_unit_test(test_a_family_that_is_gone),
        cmocka_unit_test(test_a_subreaper),
        cmocka_unit_test(test_a_number_given_anew),
        cmocka_unit_test(test_out_of_order_and_too_many),
        cmocka_unit_test(test_a_look_that_was_cut_short),
    };

    return cmocka_run_group_tests_name("cpu_ledger", tests, NULL, NULL);
}
