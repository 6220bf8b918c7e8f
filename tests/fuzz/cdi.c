/* A specification of devices, as JSON or as YAML. */
#include "runtime/gpu/cdi.h"
#include "runtime/text/json.h"
#include "runtime/text/yaml.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hutch_err err = { .msg = "" };
    struct cdi_spec spec = CDI_SPEC_INIT;
    auto_free char *json = NULL;
    size_t len = 0;
    int rc = hutch_yaml_to_json("text", (const char *)data, size, &json, &len, &err);

    fuzz_check_err(rc, &err);
    fuzz_check(rc < 0 || strlen(json) == len);
    err.msg[0] = '\0';
    rc = hutch_cdi_parse("text", (const char *)data, size, &spec, &err);
    fuzz_check_err(rc, &err);
    if (rc < 0)
        return 0;
    fuzz_check(spec.kind && spec.n <= CDI_MAX_EDITS);
    for (size_t i = 0; i < spec.n; i++)
        fuzz_check(spec.edits[i].path[0] == '/' && strlen(spec.edits[i].path) <= CDI_MAX_PATH);
    hutch_cdi_done(&spec);
    return 0;
}
