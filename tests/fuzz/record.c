/* The store's record of a tree, against an empty one. */
#include "rootfs/record.h"

#include "tests/fuzz/fuzz.h"

static void on_difference(void *ctx, const char *what, const char *path)
{
    (void)ctx;
    fuzz_check(what[0] && path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int dir = -1; /* empty, and without a name */
    struct hutch_err err = { .msg = "" };
    uint64_t n;
    FILE *in = fmemopen((void *)(uintptr_t)data, size, "r");

    if (!in)
        return 0; /* nothing at all */
    if (dir < 0) {
        char path[] = "/tmp/hutch-fuzz.XXXXXX";

        fuzz_check(mkdtemp(path) && (dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) >= 0 && rmdir(path) == 0);
    }
    fuzz_check_err(hutch_record_verify(dir, in, &n, on_difference, NULL, NULL, &err), &err);
    fclose(in);
    return 0;
}
