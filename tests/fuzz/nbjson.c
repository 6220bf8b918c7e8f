/* JSON exactly as nbformat has it: what was read and printed reads and prints the same again. */
#include "runtime/text/nbjson.h"

#include <cjson/cJSON.h>

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nbjson_bounds bounds = { .max_len = 1 << 20, .max_depth = 20, .max_nodes = 100000 };
    struct cJSON *value, *again;
    struct hutch_err err = { .msg = "" };
    const unsigned flags = fuzz_byte(&data, &size);
    char *text, *second;
    size_t len, second_len;
    int rc;

    bounds.is_strict = flags & 1;
    bounds.raw_depth = flags & 2 ? 2 : 0;
    rc = hutch_nbjson_parse("it", (const char *)data, size, &bounds, &value, &err);
    fuzz_check_err(rc, &err);
    if (rc < 0)
        return 0;
    text = hutch_nbjson_print(value, flags & 4 ? NBJSON_FILE : NBJSON_COMPACT, &len);
    fuzz_check(text && strlen(text) == len);
    bounds.max_len = SIZE_MAX;
    bounds.max_depth = 22;
    fuzz_check(hutch_nbjson_parse("it", text, len, &bounds, &again, &err) == 0);
    second = hutch_nbjson_print(again, flags & 4 ? NBJSON_FILE : NBJSON_COMPACT, &second_len);
    fuzz_check(second && second_len == len && memcmp(text, second, len) == 0);
    if (cJSON_IsObject(value)) {
        fuzz_check(hutch_nbjson_join_bundle(value) == 0);
        fuzz_check(hutch_nbjson_split_bundle(value) == 0);
    }
    cJSON_Delete(value);
    cJSON_Delete(again);
    free(text);
    free(second);
    return 0;
}
