/* A tar stream as it passes, however it is cut: the pieces change nothing of what is said. */
#include "rootfs/targuard.h"

#include "tests/fuzz/fuzz.h"

static int feed(const uint8_t *data, size_t size, size_t step)
{
    struct targuard guard;
    struct hutch_err err = { .msg = "" };
    int rc = 0;

    fuzz_check(hutch_targuard_open(&guard, &err) == 0);
    for (size_t at = 0; rc == 0 && at < size; at += step)
        rc = hutch_targuard_feed(&guard, data + at, step < size - at ? step : size - at, &err);
    fuzz_check_err(rc, &err);
    hutch_targuard_done(&guard);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_check(feed(data, size, size ? size : 1) == feed(data, size, 77));
    return 0;
}
