#include "runtime/config/policy_limits.h"

#include "runtime/config/limits.h"
#include "runtime/config/policy_value.h"
#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <string.h>

#define GRACE_MAX_MS 600000

static int refuse_value(const struct json_node *node, const struct limit *row, struct hutch_err *err)
{
    bool is_text = row->unit == UNIT_BYTES || row->unit == UNIT_TIME; /* as a rule: "512M", "30s" */
    char accepted[LIMIT_TEXT_SIZE];

    hutch_limit_describe(row, accepted);
    return is_text ? hutch_json_expected(node, err, "a %s such as \"%s\", or null", accepted, row->example)
                   : hutch_json_expected(node, err, "a %s, or null", accepted);
}

static int read_limit(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct sandbox_spec *spec = context;

    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        const struct limit *row = &hutch_limit_rows[i];
        uint64_t value = 0;

        if (strcmp(hutch_limit_name((enum sandbox_limit)i), node->key) != 0)
            continue;
        if (!hutch_json_is_null(node) &&
            (!hutch_policy_read_quantity(node, row->unit, &value) || hutch_limit_refuses(row, value)))
            return refuse_value(node, row, err);
        spec->limits[i] = value;
        return 0;
    }
    return hutch_json_refuse(node, err, "unknown limit");
}

static int read_grace(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct sandbox_spec *spec = context;
    uint64_t value;

    if (!hutch_policy_read_quantity(node, UNIT_TIME, &value) || value > GRACE_MAX_MS)
        return hutch_json_expected(node, err, "a duration 0..10m such as \"2s\"");
    spec->grace_ms = value;
    return 0;
}

int hutch_policy_read_limits(const struct json_node *node, struct sandbox_spec *spec, struct hutch_err *err)
{
    struct json_field fields[LIMIT_COUNT + 1];

    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        fields[i] = (struct json_field){ hutch_limit_name((enum sandbox_limit)i), read_limit, false };
    fields[LIMIT_COUNT] = (struct json_field){ "grace", read_grace, false };
    return hutch_json_object(node, fields, ARRAY_SIZE(fields), spec, err);
}
