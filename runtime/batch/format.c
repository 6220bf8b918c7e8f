#include "runtime/batch/format.h"

#include "runtime/batch/fields_priv.h"
#include "sandbox/fd.h"

#include <string.h>

static const char *const format_names[] = {
    [BATCH_AUTO] = "auto", [BATCH_GENERIC] = "generic", [BATCH_HUMANEVAL] = "humaneval", [BATCH_MBPP] = "mbpp",
    [BATCH_STDIO] = "stdio",
};
_Static_assert(ARRAY_SIZE(format_names) == BATCH_FORMAT_COUNT, "every format has a name");

const char *hutch_batch_format_name(enum batch_format format)
{
    return format_names[format];
}

int hutch_batch_format_parse(const char *name, enum batch_format *ret, struct hutch_err *err)
{
    for (size_t i = 0; i < BATCH_FORMAT_COUNT; i++)
        if (strcmp(name, format_names[i]) == 0) {
            *ret = (enum batch_format)i;
            return 0;
        }
    return hutch_err_set(err, 0, "'%.40s' is not a format: generic, humaneval, mbpp, stdio or auto", name);
}

enum batch_format hutch_batch_format_guess(struct json_view record)
{
    static const char *const stdio_keys[] = { "input_output", "verification_info", "outputs", "test_cases",
                                              "public_test_cases" };

    if (hutch_batch_has(record, "entry_point") && hutch_batch_has(record, "test") && hutch_batch_has(record, "prompt"))
        return BATCH_HUMANEVAL;
    if (hutch_batch_has(record, "test_list"))
        return BATCH_MBPP;
    for (size_t i = 0; i < ARRAY_SIZE(stdio_keys); i++)
        if (hutch_batch_has(record, stdio_keys[i]))
            return BATCH_STDIO;
    return hutch_batch_has(record, "test") && hutch_batch_has(record, "content") ? BATCH_STDIO : BATCH_GENERIC;
}
