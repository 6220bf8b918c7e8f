/* The header Range. */
#include "runtime/gateway/range.h"

#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct {
    const char *header;
    uint64_t size;
    enum range_kind kind;
    uint64_t first, len;
} rows[] = {
    { NULL, 10, RANGE_WHOLE, 0, 10 },
    { "bytes=0-0", 10, RANGE_PART, 0, 1 },
    { "bytes=2-5", 10, RANGE_PART, 2, 4 },
    { "bytes=2-", 10, RANGE_PART, 2, 8 },
    { "bytes=0-99", 10, RANGE_PART, 0, 10 },
    { "bytes=-3", 10, RANGE_PART, 7, 3 },
    { "bytes=-99", 10, RANGE_PART, 0, 10 },
    { "bytes=10-", 10, RANGE_UNSATISFIABLE, 0, 0 },
    { "bytes=-0", 10, RANGE_UNSATISFIABLE, 0, 0 },
    { "bytes=0-", 0, RANGE_UNSATISFIABLE, 0, 0 },
    { "bytes=-1", 0, RANGE_UNSATISFIABLE, 0, 0 },
    { "bytes=0-18446744073709551600", 10, RANGE_PART, 0, 10 },
    { "bytes=0-99999999999999999999", 10, RANGE_WHOLE, 0, 10 },
    { "bytes=5-2", 10, RANGE_WHOLE, 0, 10 },
    { "bytes=0-1,3-4", 10, RANGE_WHOLE, 0, 10 },
    { "bytes=", 10, RANGE_WHOLE, 0, 10 },
    { "bytes=-", 10, RANGE_WHOLE, 0, 10 },
    { "bytes= 1-2", 10, RANGE_WHOLE, 0, 10 },
    { "bytes=+1-2", 10, RANGE_WHOLE, 0, 10 },
    { "lines=1-2", 10, RANGE_WHOLE, 0, 10 },
};

static void test_ranges(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct range range = hutch_range_parse(rows[i].header, rows[i].size);

        print_message("  %s of %llu\n", rows[i].header ? rows[i].header : "none", (unsigned long long)rows[i].size);
        assert_int_equal(range.kind, rows[i].kind);
        assert_true(range.first == rows[i].first && range.len == rows[i].len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_ranges) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
