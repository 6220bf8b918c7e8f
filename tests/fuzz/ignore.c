/* A project's .hutchignore, and a path that it is asked about. */
#include "runtime/text/ignore.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t n = fuzz_byte(&data, &size) % 64, len = n < size ? n : size;
    auto_free char *path = fuzz_string(data, len);
    struct hutch_err err = { .msg = "" };
    struct ignore_list list;
    int rc = hutch_ignore_parse((const char *)data + len, size - len, &list, &err);

    fuzz_check_err(rc, &err);
    if (rc < 0)
        return 0;
    fuzz_check(list.n <= IGNORE_MAX_LINES);
    fuzz_check(!hutch_ignore_has(&list, path, false) || hutch_ignore_has(&list, path, true));
    fuzz_check(!hutch_ignore_has(&list, path, false) || hutch_ignore_holds_back(&list, path));
    hutch_ignore_done(&list);
    return 0;
}
