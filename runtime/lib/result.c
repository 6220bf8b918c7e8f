/* result.c - what hutch.h's functions say of the result of a run. */
#include "runtime/hutch.h"

#include "runtime/run/result.h"
#include "sandbox/fd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *hutch_result_to_json(const struct hutch_result *result)
{
    struct hutch_err err;
    char *json = NULL, *both;
    auto_free char *cell = NULL;
    size_t len;

    if (hutch_result_json(result->internal->result, &json, &len, &err) < 0 || !result->cell)
        return json;
    cell = hutch_cell_result_to_json(result->cell);
    if (!cell || asprintf(&both, "%.*s,\"cell\":%s}", (int)len - 1, json, cell) < 0) /* before its last brace */
        both = NULL;
    free(json);
    return both;
}

/* The caller may know fewer fields of *@ret, whose size it has set. */
static void give_report(void *ret, void *report, size_t full_size)
{
    size_t size;

    memcpy(&size, ret, sizeof(size));
    if (size == 0 || size > full_size)
        size = full_size;
    memcpy(report, &size, sizeof(size));
    memcpy(ret, report, size);
}

int hutch_result_get_limit(const struct hutch_result *result, unsigned index, struct hutch_limit_report *ret)
{
    struct hutch_limit_report report = { 0 };
    const struct run_limit_report *limit;
    size_t len = 0;

    if (index >= LIMIT_COUNT)
        return 0;
    limit = &result->internal->result->limits[index];
    report.name = hutch_limit_name(index);
    report.value = limit->asked;
    for (size_t i = 0; i < ENFORCER_COUNT; i++)
        if (limit->enforcers & 1u << i && len < sizeof(report.enforcers))
            len += (size_t)snprintf(report.enforcers + len, sizeof(report.enforcers) - len, "%s%s", len ? " " : "",
                                    hutch_enforcer_name(i));
    give_report(ret, &report, sizeof(report));
    return 1;
}

int hutch_result_get_layer(const struct hutch_result *result, unsigned index, struct hutch_layer_report *ret)
{
    struct hutch_layer_report report = { 0 };
    const struct run_layer_report *layer;

    if (index >= LAYER_COUNT)
        return 0;
    layer = &result->internal->result->layers[index];
    report.name = hutch_layer_name(index);
    report.is_active = layer->is_active;
    report.detail = layer->detail;
    give_report(ret, &report, sizeof(report));
    return 1;
}
