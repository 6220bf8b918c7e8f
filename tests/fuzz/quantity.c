/* Sizes, durations and counts as people type them. */
#include "runtime/text/quantity.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    typedef int parse_fn(const char *text, uint64_t *ret, struct hutch_err *err);
    static parse_fn *const parsers[] = { hutch_parse_bytes, hutch_parse_duration_ms, hutch_parse_cpus,
                                         hutch_parse_u64 };
    auto_free char *text = fuzz_string(data, size);

    for (size_t i = 0; i < ARRAY_SIZE(parsers); i++) {
        struct hutch_err err = { .msg = "" };
        uint64_t value = 77;
        int rc = parsers[i](text, &value, &err);

        fuzz_check_err(rc, &err);
        fuzz_check(rc == 0 || value == 77);
    }
    return 0;
}
