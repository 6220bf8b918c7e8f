#include "runtime/cell/result_json.h"

#include "sandbox/fd.h"
#include "runtime/data/files.h"
#include "runtime/text/json_write.h"
#include "runtime/text/nbjson.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

/* Each output is an object in an array, its data an object in that: JSON values below stay text. */
static const struct nbjson_bounds outputs_bounds = {
    .max_len = (size_t)1 << 31, .max_depth = 110, .max_nodes = 16u << 20, .raw_depth = 3,
};

/* Nor do lines become more than that. */
static const struct nbjson_bounds lines_bounds = { .max_len = (size_t)1 << 31, .max_depth = 2, .max_nodes = 1u << 20,
                                                   .raw_depth = 1 };

struct cJSON *hutch_cell_parse_outputs(const struct hutch_cell_result *result)
{
    const char *text = result->outputs != NULL ? result->outputs : "[]";
    struct hutch_err err;
    cJSON *outputs = NULL, *output;

    if (hutch_nbjson_parse("outputs", text, strlen(text), &outputs_bounds, &outputs, &err) < 0)
        return NULL;
    cJSON_ArrayForEach(output, outputs) {
        cJSON_DeleteItemFromObjectCaseSensitive(output, "transient"); /* no file keeps it */
    }
    return outputs;
}

char *hutch_cell_member_text(const struct cJSON *object, const char *key, size_t *ret_len)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    cJSON *lines = NULL, *joined;
    struct hutch_err err;
    char *text;

    if (cJSON_IsString(value))
        return hutch_nbjson_text(value, ret_len);
    if (!cJSON_IsRaw(value) ||
        hutch_nbjson_parse(key, value->valuestring, strlen(value->valuestring), &lines_bounds, &lines, &err) < 0)
        return NULL;
    joined = cJSON_IsArray(lines) ? hutch_nbjson_join_lines(lines) : NULL;
    text = joined != NULL ? hutch_nbjson_text(joined, ret_len) : NULL;
    cJSON_Delete(joined);
    cJSON_Delete(lines);
    return text;
}

static bool add_outputs(cJSON *root, const cJSON *outputs)
{
    auto_free char *text = outputs != NULL ? hutch_nbjson_print(outputs, NBJSON_COMPACT, NULL) : NULL;

    return text != NULL && hutch_json_add(root, "outputs", cJSON_CreateRaw(text));
}

/* Of the last expression, as text. */
static bool add_value(cJSON *root, const cJSON *outputs)
{
    const cJSON *output, *data = NULL;
    auto_free char *text = NULL;
    size_t len = 0;

    cJSON_ArrayForEach(output, outputs) {
        const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(output, "output_type"));

        if (type != NULL && strcmp(type, "execute_result") == 0)
            data = cJSON_GetObjectItemCaseSensitive(output, "data");
    }
    text = hutch_cell_member_text(data, "text/plain", &len);
    return text != NULL ? hutch_json_add_text(root, "value", text, len)
                        : hutch_json_add(root, "value", cJSON_CreateNull());
}

/* JSON that was parsed, as it stands. */
static bool add_json(cJSON *object, const char *key, const char *json)
{
    return hutch_json_add(object, key, json != NULL ? cJSON_CreateRaw(json) : cJSON_CreateNull());
}

static bool add_positive(cJSON *object, const char *key, int value)
{
    return value > 0 ? hutch_json_add_u64(object, key, (uint64_t)value)
                     : hutch_json_add(object, key, cJSON_CreateNull());
}

static bool add_error(cJSON *root, const struct hutch_cell_result *result, const struct hutch_cell_details *details)
{
    cJSON *object;

    if (result->error_name == NULL)
        return hutch_json_add(root, "error", cJSON_CreateNull());
    object = hutch_json_add_new(root, "error", cJSON_CreateObject());
    return hutch_json_add_string(object, "name", result->error_name) &&
           hutch_json_add_string(object, "value", result->error_value) &&
           add_positive(object, "line", result->error_line) && hutch_json_add_string(object, "cause", details->cause) &&
           hutch_json_add_string(object, "traceback", result->error_traceback) &&
           hutch_json_add_string(object, "traceback_ansi", result->error_traceback_ansi);
}

static bool add_files(cJSON *root, const struct hutch_cell_details *details)
{
    cJSON *files;

    if (details->files == NULL)
        return hutch_json_add(root, "files", cJSON_CreateNull());
    files = hutch_json_add_new(root, "files", cJSON_CreateObject());
    return hutch_json_add_string(files, "directory", details->directory) &&
           hutch_files_add_changes(files, details->files);
}

/* Seconds since 1970, to the microsecond. */
static bool add_time(cJSON *object, const char *key, double time)
{
    uint64_t us = time > 0 && time < 1e12 ? (uint64_t)(time * 1e6 + 0.5) : 0;
    char digits[32];

    if (us == 0)
        return hutch_json_add(object, key, cJSON_CreateNull());
    snprintf(digits, sizeof(digits), "%llu.%06u", (unsigned long long)(us / 1000000), (unsigned)(us % 1000000));
    return hutch_json_add(object, key, cJSON_CreateRaw(digits));
}

static bool add_times(cJSON *root, const struct hutch_cell_result *result)
{
    cJSON *spans = hutch_json_add_new(root, "timings_ms", cJSON_CreateObject());
    cJSON *times = hutch_json_add_new(root, "times", cJSON_CreateObject());

    return hutch_json_add_ms(spans, "queued", result->queued_ms) && hutch_json_add_ms(spans, "run", result->run_ms) &&
           add_time(times, "busy", result->t_busy) && add_time(times, "input", result->t_input) &&
           add_time(times, "reply", result->t_reply) && add_time(times, "idle", result->t_idle);
}

static bool add_known(cJSON *object, const char *key, uint64_t value)
{
    return value != HUTCH_UNKNOWN ? hutch_json_add_u64(object, key, value)
                                  : hutch_json_add(object, key, cJSON_CreateNull());
}

static bool add_usage(cJSON *root, const struct hutch_cell_result *result)
{
    cJSON *usage = hutch_json_add_new(root, "usage", cJSON_CreateObject());

    return add_known(usage, "cpu_user_ms", result->cpu_user_ms) &&
           add_known(usage, "cpu_system_ms", result->cpu_system_ms) &&
           add_known(usage, "memory_peak_bytes", result->memory_peak_bytes);
}

static bool fill(cJSON *root, const struct hutch_cell_result *result, const cJSON *outputs)
{
    static const struct hutch_cell_details nothing = { .code = NULL };
    const struct hutch_cell_details *details = result->internal != NULL ? result->internal : &nothing;
    const char *message = result->message != NULL && result->message[0] != '\0' ? result->message : NULL;

    return hutch_json_add_u64(root, "version", 1) &&
           hutch_json_add_string(root, "verdict", hutch_verdict_text(result->verdict)) &&
           hutch_json_add_string(root, "message", message) &&
           add_positive(root, "execution_count", result->execution_count) &&
           add_value(root, outputs) && add_json(root, "value_json", result->value_json) && add_outputs(root, outputs) &&
           hutch_json_add_bool(root, "truncated", result->truncated != 0) &&
           add_error(root, result, details) && hutch_json_add_bool(root, "interrupted", result->was_interrupted != 0) &&
           hutch_json_add_bool(root, "interpreter_died", result->interpreter_died != 0) &&
           hutch_json_add_bool(root, "fresh", result->is_fresh != 0) && add_files(root, details) &&
           add_times(root, result) && add_usage(root, result);
}

char *hutch_cell_result_to_json(const struct hutch_cell_result *result)
{
    cJSON *root = cJSON_CreateObject(), *outputs = hutch_cell_parse_outputs(result);
    char *json = root != NULL && outputs != NULL && fill(root, result, outputs) ? cJSON_PrintUnformatted(root) : NULL;

    cJSON_Delete(root);
    cJSON_Delete(outputs);
    return json;
}
