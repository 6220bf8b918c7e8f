/* Points in time, of which a program inside sets any it likes. */
#include "runtime/text/moment.h"

#include "runtime/text/buffer.h"
#include "sandbox/fd.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static void test_moments(void **state)
{
    static const struct { double seconds; unsigned digits; const char *want; } cases[] = {
        { 0, 0, "\"1970-01-01T00:00:00Z\"" },
        { 0, 3, "\"1970-01-01T00:00:00.000Z\"" },
        { 951782400.5, 0, "\"2000-02-29T00:00:00Z\"" },
        { 951782400.0625, 3, "\"2000-02-29T00:00:00.062Z\"" }, /* cut */
        { 951782400.5, 6, "\"2000-02-29T00:00:00.500000Z\"" },
        { 1e9 - 1.0 / 1024, 6, "\"2001-09-09T01:46:39.999023Z\"" },
        { -0.25, 3, "\"1969-12-31T23:59:59.750Z\"" }, /* before 1970 the second goes on as after it */
        { -62135596800.0, 3, "\"0001-01-01T00:00:00.000Z\"" },
        { -62135596801.0, 3, "\"0001-01-01T00:00:00.000Z\"" },
        { 253402300799.0, 3, "\"9999-12-31T23:59:59.000Z\"" },
        { 253402300800.0, 3, "\"9999-12-31T23:59:59.000Z\"" },
        { (double)INT64_MAX, 6, "\"9999-12-31T23:59:59.000000Z\"" }, /* which gmtime(3) refuses */
        { (double)INT64_MIN, 6, "\"0001-01-01T00:00:00.000000Z\"" },
        { DBL_MAX, 0, "\"9999-12-31T23:59:59Z\"" },
        { INFINITY, 0, "\"9999-12-31T23:59:59Z\"" },
        { -INFINITY, 0, "\"0001-01-01T00:00:00Z\"" },
        { NAN, 3, "\"0001-01-01T00:00:00.000Z\"" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct text_buffer t = TEXT_BUFFER_INIT;

        hutch_moment_add(&t, cases[i].seconds, cases[i].digits);
        assert_string_equal(t.data, cases[i].want);
        hutch_text_done(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
