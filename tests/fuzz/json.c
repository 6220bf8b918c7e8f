/* Files that people write, read strictly: runtime/text/json.h. */
#include "runtime/text/json.h"

#include "tests/fuzz/fuzz.h"

static int read_any(const struct json_node *node, void *context, struct hutch_err *err)
{
    const char *text;
    uint64_t number;
    bool flag;

    (void)context;
    if (hutch_json_is_string(node))
        return hutch_json_string(node, 100, &text, err);
    if (hutch_json_is_number(node))
        return hutch_json_u64(node, 1, 1000, &number, err);
    if (hutch_json_is_null(node))
        return hutch_json_refuse(node, err, "no null here");
    if (hutch_json_bool(node, &flag, err) == 0)
        return 0;
    if (hutch_json_map(node, 10, read_any, NULL, err) == 0)
        return 0;
    return hutch_json_array(node, 10, read_any, NULL, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct json_field fields[] = { { "name", read_any, true }, { "list", read_any, false },
                                                { "other", NULL, false } };
    struct json_doc doc = JSON_DOC_INIT;
    struct hutch_err err = { .msg = "" };
    struct json_node root;
    int rc = hutch_json_parse("it", (const char *)data, size, 16, &doc, &err);

    fuzz_check_err(rc, &err);
    if (rc == 0) {
        root = hutch_json_root(&doc);
        fuzz_check_err(hutch_json_object(&root, fields, ARRAY_SIZE(fields), NULL, &err), &err);
        fuzz_check_err(read_any(&root, NULL, &err), &err);
    }
    hutch_json_done(&doc);
    return 0;
}
