/* What a program printed against what it should have. Equal texts are equal in every manner. */
#include "runtime/batch/compare.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t got_len, want_len;
    auto_free char *got = fuzz_piece(&data, &size, &got_len), *want = fuzz_piece(&data, &size, &want_len);

    for (int mode = 0; mode < COMPARE_COUNT; mode++) {
        bool is_same = hutch_batch_compare((enum batch_compare)mode, got, got_len, want, want_len);

        fuzz_check(hutch_batch_compare((enum batch_compare)mode, got, got_len, got, got_len));
        fuzz_check(is_same || mode == COMPARE_EXIT0 || got_len != want_len || memcmp(got, want, got_len) != 0);
    }
    return 0;
}
