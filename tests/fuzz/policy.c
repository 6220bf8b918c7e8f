/* Policies, with what they extend and the filters that they name. */
#include "runtime/config/policy.h"

#include "sandbox/spec.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[32];
    auto_fd fd = fuzz_file(data, size, path);
    struct sandbox_spec spec;
    struct hutch_err err = { .msg = "" };

    if (fd >= 0 && hutch_spec_init(&spec, &err) == 0) {
        fuzz_check_err(hutch_policy_load(path, "policies", &spec, &err), &err);
        hutch_spec_done(&spec);
    }
    return 0;
}
