/* Descriptions of sandboxes, from the engine to its launcher. What is read is written the same again. */
#include "runtime/launcher/spec_wire.h"

#include "sandbox/spec.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_fd fd = fuzz_file(data, size, NULL), again = -1;
    struct sandbox_spec spec;
    struct hutch_err err = { .msg = "" };
    int rc = hutch_spec_decode(fd, &spec, &err);

    fuzz_check_err(rc, &err);
    if (rc == 0) {
        auto_free char *text = NULL;
        size_t len;

        fuzz_check(hutch_spec_encode(&spec, &again, &err) == 0 && lseek(again, 0, SEEK_SET) == 0);
        fuzz_check(hutch_fd_slurp(again, SPEC_WIRE_MAX, "it", &text, &len, &err) == 0);
        fuzz_check(len == size);
        hutch_spec_done(&spec);
    }
    return 0;
}
