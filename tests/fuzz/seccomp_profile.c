/* Profiles of system calls, as OCI and docker have them. */
#include "runtime/config/seccomp_profile.h"

#include "runtime/text/json.h"
#include "sandbox/seccomp.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seccomp_rules rules = { .rules = NULL };
    struct json_doc doc = JSON_DOC_INIT;
    struct hutch_err err = { .msg = "" };
    struct json_node root;
    int rc;

    if (hutch_json_parse("it", (const char *)data, size, 16, &doc, &err) == 0) {
        root = hutch_json_root(&doc);
        rc = hutch_seccomp_profile_read(&root, &rules, &err);
        fuzz_check_err(rc, &err);
        if (rc == 0)
            hutch_seccomp_rules_done(&rules);
    }
    hutch_json_done(&doc);
    return 0;
}
