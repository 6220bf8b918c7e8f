/* Which images this machine runs, by what the kernel says of its processor. */
#include "rootfs/machine.h"
#include "sandbox/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define V2 "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"
#define V3 "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"
#define V4 "avx512f avx512bw avx512cd avx512dq avx512vl"

static const struct { const char *flags; int level; } levels[] = {
    { "", 1 },
    { "fpu vme de", 1 },
    { " " V2, 2 },
    { "fpu\t" V2 " lm\n", 2 },
    { V3 " " V2, 3 },
    { V4 " " V3, 1 }, /* each level has those below it */
    { V4 "  " V2, 2 },
    { V2 " " V3 " " V4, 4 },
    { V2 " " V3 " avx512f avx512bw avx512cd avx512dq", 3 },
    { V2 " avx2 bmi1 bmi2 f16c fma abm movbe xsave", 2 },
    { V2 "x " V3, 1 }, /* "ssse3x" is another flag */
    { "cx16 lahf_lm popcnt pni sse4_1 sse4_2\n ssse3", 1 },
};

static void test_levels(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
        assert_int_equal(hutch_machine_x86_level(levels[i].flags), levels[i].level);
}

static void test_variants(void **state)
{
    const char *own = hutch_machine_architecture(), *before = "v9";
    unsigned n = 0;

    (void)state;
    assert_null(hutch_machine_variant("pdp11", 0));
    assert_null(hutch_machine_variant(strcmp(own, "amd64") == 0 ? "arm" : "amd64", 0));
    for (const char *variant; (variant = hutch_machine_variant(own, n)); n++) {
        assert_true(strcmp(variant, before) < 0);
        before = variant;
    }
    assert_null(hutch_machine_variant(own, n + 1));
    if (strcmp(own, "amd64") == 0)
        assert_string_equal(before, "v1");
    assert_string_equal(hutch_machine_usual_variant("arm64"), "v8");
    assert_string_equal(hutch_machine_usual_variant("arm"), "v7");
    assert_string_equal(hutch_machine_usual_variant("amd64"), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_levels), cmocka_unit_test(test_variants) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
