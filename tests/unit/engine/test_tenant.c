/* Tenants take turns by weight, nobody saves up turns, and one with half of the places comes last. */
#include "runtime/engine/tenant.h"
#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

enum { MANY = 1000000 };

/* Gives @n places, each of which is given back at once, to tenants that all have more runs waiting. */
static void serve(struct tenants *tenants, struct tenant *const *all, size_t n_all, int n, int *counts)
{
    for (; n > 0; n--) {
        size_t next = 0;

        for (size_t i = 1; i < n_all; i++)
            if (hutch_tenant_is_before(all[i], all[next], MANY))
                next = i;
        hutch_tenant_take(tenants, all[next], true);
        all[next]->n_active--;
        counts[next]++;
    }
}

static void test_in_turn_by_weight(void **state)
{
    struct tenants tenants;
    struct tenant *all[3];
    int counts[3] = { 0 };

    (void)state;
    hutch_tenants_init(&tenants);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        all[i] = hutch_tenant_join(&tenants, i, i == 2 ? 3 : 1);
        hutch_tenant_wait(&tenants, all[i]);
    }
    serve(&tenants, all, 3, 500, counts);
    assert_in_range(counts[0], 99, 101);
    assert_in_range(counts[1], 99, 101);
    assert_in_range(counts[2], 299, 301);
    hutch_tenants_done(&tenants);
}

static void test_a_rest_saves_no_turns(void **state)
{
    struct tenants tenants;
    struct tenant *all[2];
    int counts[2] = { 0 };

    (void)state;
    hutch_tenants_init(&tenants);
    all[0] = hutch_tenant_join(&tenants, 7, 1);
    all[1] = hutch_tenant_join(&tenants, 8, 1);
    serve(&tenants, all, 1, 1000, counts);
    hutch_tenant_wait(&tenants, all[1]);
    counts[0] = 0;
    serve(&tenants, all, 2, 100, counts);
    assert_in_range(counts[0], 49, 51);
    assert_in_range(counts[1], 49, 51);
    hutch_tenants_done(&tenants);
}

static void test_nor_does_work_that_kept_nobody_waiting_count(void **state)
{
    struct tenants tenants;
    struct tenant *all[2];
    int counts[2] = { 0 };

    (void)state;
    hutch_tenants_init(&tenants);
    all[0] = hutch_tenant_join(&tenants, 7, 1);
    all[1] = hutch_tenant_join(&tenants, 8, 1);
    for (int i = 0; i < 1000; i++) {
        hutch_tenant_wait(&tenants, all[0]);
        hutch_tenant_take(&tenants, all[0], false);
        all[0]->n_active--;
    }
    hutch_tenant_wait(&tenants, all[0]);
    hutch_tenant_wait(&tenants, all[1]);
    serve(&tenants, all, 2, 100, counts);
    assert_in_range(counts[0], 49, 51);
    hutch_tenants_done(&tenants);
}

static void test_half_of_the_places(void **state)
{
    struct tenants tenants;
    struct tenant *greedy, *other;

    (void)state;
    hutch_tenants_init(&tenants);
    greedy = hutch_tenant_join(&tenants, 7, 100);
    other = hutch_tenant_join(&tenants, 8, 1);
    hutch_tenant_take(&tenants, greedy, true);
    hutch_tenant_take(&tenants, greedy, true);
    other->clock = 50;
    assert_true(hutch_tenant_is_before(greedy, other, 5 * 2));
    assert_true(hutch_tenant_is_before(other, greedy, 4));
    assert_true(hutch_tenant_is_before(other, greedy, 1));
    hutch_tenants_done(&tenants);
}

static void test_who_has_nothing_is_forgotten(void **state)
{
    struct tenants tenants;
    struct tenant *tenant;
    size_t n = 0;

    (void)state;
    hutch_tenants_init(&tenants);
    for (uint64_t id = 1; id <= 1000; id++) {
        tenant = hutch_tenant_join(&tenants, id, 1);
        hutch_tenant_wait(&tenants, tenant);
        hutch_tenant_take(&tenants, tenant, true);
        tenant->n_active--;
        hutch_tenant_leave(tenant);
    }
    TAILQ_FOREACH(tenant, &tenants.list, link)
        n++;
    assert_in_range(n, 1, 1001);
    /* One that goes on alone passes the clocks of all the others. */
    for (int i = 0; i < 3; i++) {
        tenant = hutch_tenant_join(&tenants, 5000, 1);
        hutch_tenant_wait(&tenants, tenant);
        hutch_tenant_take(&tenants, tenant, false);
        tenant->n_active--;
        hutch_tenant_leave(tenant);
    }
    hutch_tenant_leave(hutch_tenant_join(&tenants, 5001, 1));
    n = 0;
    TAILQ_FOREACH(tenant, &tenants.list, link)
        n++;
    assert_in_range(n, 1, 4);
    hutch_tenants_done(&tenants);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_turn_by_weight),
        cmocka_unit_test(test_a_rest_saves_no_turns),
        cmocka_unit_test(test_nor_does_work_that_kept_nobody_waiting_count),
        cmocka_unit_test(test_half_of_the_places),
        cmocka_unit_test(test_who_has_nothing_is_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
