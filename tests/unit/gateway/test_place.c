/* runtime/gateway/place.c: whose a name is. */
#include "runtime/gateway/place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#define NAMES 2000

static unsigned owner_of(unsigned n, const char *name)
{
    struct placement placement = { .kind = PLACE_ANY };
    struct place place = { 0, n };

    hutch_placement_name(&placement, name);
    assert_int_equal(placement.kind, PLACE_NAMED);
    return hutch_place_of(&place, placement.hash);
}

/* What a worker names is its own, and no other one's. */
static void test_own_names(void **state)
{
    static const unsigned counts[] = { 1, 2, 3, 7, WORKERS_MAX };
    char id[ID_LEN + 1];
    struct hutch_err err;

    (void)state;
    for (unsigned i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        for (unsigned index = 0; index < counts[i]; index++) {
            struct place place = { index, counts[i] };

            assert_int_equal(hutch_place_make_id(&place, id, &err), 0);
            assert_true(hutch_id_is(id));
            assert_int_equal(owner_of(counts[i], id), index);
        }
}

/* Without workers all names are this process's. */
static void test_alone(void **state)
{
    struct place place = { 0, 0 };
    char id[ID_LEN + 1];
    struct hutch_err err;

    (void)state;
    assert_int_equal(hutch_place_make_id(&place, id, &err), 0);
    assert_int_equal(owner_of(0, id), 0);
}

/* Each has about as many: a fair one of four has 500 of 2,000, and 400 is five deviations off. */
static void test_even(void **state)
{
    unsigned counts[4] = { 0 };
    char id[ID_LEN + 1];
    struct hutch_err err;

    (void)state;
    for (int i = 0; i < NAMES; i++) {
        assert_int_equal(hutch_id_make(id, &err), 0);
        counts[owner_of(4, id)]++;
    }
    for (int i = 0; i < 4; i++)
        assert_in_range(counts[i], 400, 600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_names),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_even),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
