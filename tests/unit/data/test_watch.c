/* test_watch.c - a tree that grows is counted again in time, and one that does not costs little. The clock is the
 * test's own. */
#include "runtime/data/watch.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_ENTRIES = 100000 };

/* How many there are at a time. */
typedef double tree_fn(double ms);

static double empty(double ms) { (void)ms; return 0; }
static double large(double ms) { (void)ms; return 90000; }
static double slow(double ms) { return ms / 10; }
static double bomb(double ms) { return 100 * ms; }
static double quick_bomb(double ms) { return 500 * ms; }
static double bomb_in_large_tree(double ms) { return 40000 + 200 * ms; }
static double late_bomb(double ms) { return ms < 3000 ? 10 : 10 + 200 * (ms - 3000); }
static double bursts(double ms)
{
    double n = (double)(uint64_t)(ms / 100), part = ms - 100 * n;

    return 8000 * n + (part < 20 ? part : 20) * 400;
}

/* Counts @tree for @ms, where an entry takes a microsecond. Returns how many there were when they were too many;
 * 0: they never were. */
static double watch(tree_fn *tree, double ms, unsigned *ret_counts, double *ret_spent)
{
    struct data_watch w = { 0 };
    double now = hutch_data_watch_begin(&w, 0);

    *ret_counts = 0;
    *ret_spent = 0;
    while (now < ms) {
        struct data_count count = { .begun_ms = now };
        double seen = tree(now);

        if (hutch_data_watch_is_first(&w) && seen > DATA_WATCH_FIRST_SIZE) {
            count.is_cut = true;
            seen = DATA_WATCH_FIRST_SIZE;
        }
        count.entries = (uint64_t)seen;
        count.ended_ms = now + seen / 1000;
        *ret_spent += seen / 1000;
        ++*ret_counts;
        if (seen > MAX_ENTRIES)
            return tree(count.ended_ms);
        now = hutch_data_watch_next(&w, &count, 0, MAX_ENTRIES);
        assert_true(now > count.ended_ms);
    }
    return 0;
}

static void test_growth_is_met_in_time(void **state)
{
    static const struct {
        const char *label;
        tree_fn *tree;
        double most; /* entries when it is ended */
    } rows[] = {
        { "a bomb", bomb, 1.5 * MAX_ENTRIES },
        { "a quick bomb", quick_bomb, 2.5 * MAX_ENTRIES },
        { "a bomb in a large tree", bomb_in_large_tree, 2 * MAX_ENTRIES },
        { "a bomb after a pause", late_bomb, 1.7 * MAX_ENTRIES },
        { "bursts", bursts, 1.7 * MAX_ENTRIES },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        unsigned counts;
        double spent, made = watch(rows[i].tree, 60000, &counts, &spent);

        print_message("  %s: ended at %.0f entries, after %u counts\n", rows[i].label, made, counts);
        assert_true(made > MAX_ENTRIES);
        assert_true(made <= rows[i].most);
    }
}

static void test_rest_costs_little(void **state)
{
    static const struct {
        const char *label;
        tree_fn *tree;
        unsigned most;  /* counts in ten seconds */
        double most_ms; /* spent by them */
    } rows[] = {
        { "nothing", empty, 45, 0 },
        { "a large tree that stays", large, 14, 1200 },
        { "slow growth", slow, 45, 45 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        unsigned counts;
        double spent;

        assert_true(watch(rows[i].tree, 10000, &counts, &spent) == 0);
        print_message("  %s: %u counts, %.0f ms\n", rows[i].label, counts, spent);
        assert_true(counts <= rows[i].most);
        assert_true(spent <= rows[i].most_ms);
    }
}

static void test_a_short_run_is_not_counted(void **state)
{
    struct data_watch w = { 0 };

    (void)state;
    assert_true(hutch_data_watch_begin(&w, 1000) == 1000 + DATA_WATCH_FIRST_MS);
    assert_true(hutch_data_watch_is_first(&w));
}

/* The next run in the same sandbox: what it adds is measured from its own start, not from the last one's end. */
static void test_another_run_in_the_same_sandbox(void **state)
{
    struct data_watch w = { 0 };
    struct data_count count = { .entries = 10, .begun_ms = 50, .ended_ms = 50 };
    double next;

    (void)state;
    hutch_data_watch_begin(&w, 0);
    hutch_data_watch_next(&w, &count, 0, MAX_ENTRIES);
    assert_false(hutch_data_watch_is_first(&w));
    hutch_data_watch_begin(&w, 1e6);
    assert_true(hutch_data_watch_is_first(&w));
    count = (struct data_count){ .entries = 2010, .begun_ms = 1e6 + 50, .ended_ms = 1e6 + 52 };
    next = hutch_data_watch_next(&w, &count, 0, 4010); /* 40 in a ms, and room for 2000 */
    assert_true(next > count.ended_ms && next <= count.ended_ms + 25);
}

static void test_bytes_count_too(void **state)
{
    struct data_watch w = { 0 };
    struct data_count count = { .bytes = 0, .begun_ms = 50, .ended_ms = 50 };

    (void)state;
    hutch_data_watch_begin(&w, 0);
    hutch_data_watch_next(&w, &count, 1 << 30, 0);
    count = (struct data_count){ .bytes = 100 << 20, .begun_ms = 100, .ended_ms = 100 };
    assert_true(hutch_data_watch_next(&w, &count, 200 << 20, 0) <= 100 + 25 + 1);
    count.begun_ms = count.ended_ms = 125;
    assert_true(hutch_data_watch_next(&w, &count, 0, 0) <= 125 + DATA_WATCH_MAX_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growth_is_met_in_time),
        cmocka_unit_test(test_rest_costs_little),
        cmocka_unit_test(test_a_short_run_is_not_counted),
        cmocka_unit_test(test_another_run_in_the_same_sandbox),
        cmocka_unit_test(test_bytes_count_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
