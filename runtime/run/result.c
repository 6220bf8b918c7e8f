#include "runtime/run/result.h"

#include "sandbox/fd.h"
#include "runtime/data/files.h"
#include "runtime/text/json_write.h"

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char *const need_names[] = { [NEED_OFF] = "off", [NEED_TRY] = "try", [NEED_REQUIRE] = "require" };

void hutch_result_init(struct run_result *r)
{
    memset(r, 0, sizeof(*r));
    r->exit_code = -1;
    r->cpu_user_ms = r->cpu_system_ms = r->memory_peak_bytes = r->pids_peak = HUTCH_UNKNOWN;
}

void hutch_result_done(struct run_result *r)
{
    free(r->out.data);
    free(r->err_out.data);
    hutch_error_report_done(&r->error);
    free(r->value);
    free(r->directory);
    hutch_file_changes_done(&r->files);
    hutch_result_init(r);
}

/* ---- parts; false on ENOMEM ---- */

static bool add_u64_or_null(cJSON *object, const char *key, uint64_t value, uint64_t unknown)
{
    return value == unknown ? hutch_json_add(object, key, cJSON_CreateNull()) : hutch_json_add_u64(object, key, value);
}

static bool add_error(cJSON *root, const struct error_report *error)
{
    cJSON *object;

    if (error->name == NULL)
        return hutch_json_add(root, "error", cJSON_CreateNull());
    object = hutch_json_add_new(root, "error", cJSON_CreateObject());
    return object != NULL && hutch_json_add_string(object, "name", error->name) &&
           hutch_json_add_string(object, "value", error->value) &&
           hutch_json_add_string(object, "traceback", error->traceback);
}

/* Of a call only. */
static bool add_value(cJSON *root, const struct run_result *r)
{
    if (!r->is_call)
        return true;
    return hutch_json_add(root, "value", r->value ? cJSON_CreateRaw(r->value) : cJSON_CreateNull());
}

static bool add_files(cJSON *root, const struct run_result *r)
{
    cJSON *files = hutch_json_add_new(root, "files", cJSON_CreateObject());

    return files != NULL && hutch_json_add_string(files, "directory", r->directory) &&
           hutch_files_add_changes(files, &r->files);
}

static bool add_timings(cJSON *root, const struct run_result *r)
{
    cJSON *timings = hutch_json_add_new(root, "timings_ms", cJSON_CreateObject());

    return timings != NULL && hutch_json_add_ms(timings, "queued", r->queued_ms) &&
           hutch_json_add_ms(timings, "prepared", r->prepared_ms) && hutch_json_add_ms(timings, "run", r->run_ms) &&
           hutch_json_add_ms(timings, "total", r->total_ms);
}

static bool add_usage(cJSON *root, const struct run_result *r)
{
    cJSON *usage = hutch_json_add_new(root, "usage", cJSON_CreateObject());

    return usage != NULL && add_u64_or_null(usage, "cpu_user_ms", r->cpu_user_ms, HUTCH_UNKNOWN) &&
           add_u64_or_null(usage, "cpu_system_ms", r->cpu_system_ms, HUTCH_UNKNOWN) &&
           hutch_json_add_bool(usage, "cpu_at_least", r->is_cpu_lower_bound) &&
           add_u64_or_null(usage, "memory_peak_bytes", r->memory_peak_bytes, HUTCH_UNKNOWN) &&
           add_u64_or_null(usage, "pids_peak", r->pids_peak, HUTCH_UNKNOWN);
}

static bool add_limits(cJSON *root, const struct run_result *r)
{
    cJSON *limits = hutch_json_add_new(root, "limits", cJSON_CreateObject());

    if (limits == NULL)
        return false;
    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        const struct run_limit_report *report = &r->limits[i];
        cJSON *limit = hutch_json_add_new(limits, hutch_limit_name((enum sandbox_limit)i), cJSON_CreateObject());
        unsigned enforcers = report->enforcers;
        cJSON *names;

        if (limit == NULL || !add_u64_or_null(limit, "asked", report->asked, 0))
            return false;
        names = hutch_json_add_new(limit, "enforced_by", cJSON_CreateArray());
        if (names == NULL)
            return false;
        if (report->asked == 0)
            continue;
        if (enforcers != 1u << ENFORCER_NONE)
            enforcers &= ~(1u << ENFORCER_NONE);
        if (enforcers == 0)
            enforcers = 1u << ENFORCER_NONE;
        for (unsigned e = 0; e < ENFORCER_COUNT; e++) {
            cJSON *name;

            if (!(enforcers & 1u << e))
                continue;
            name = cJSON_CreateString(hutch_enforcer_name((enum sandbox_enforcer)e));
            if (name == NULL)
                return false;
            cJSON_AddItemToArray(names, name);
        }
    }
    return true;
}

static bool add_layers(cJSON *root, const struct run_result *r)
{
    cJSON *layers = hutch_json_add_new(root, "layers", cJSON_CreateObject());

    if (layers == NULL)
        return false;
    for (unsigned i = 0; i < LAYER_COUNT; i++) {
        const struct run_layer_report *report = &r->layers[i];
        cJSON *layer = hutch_json_add_new(layers, hutch_layer_name((enum sandbox_layer)i), cJSON_CreateObject());

        if (layer == NULL || !hutch_json_add_string(layer, "asked", need_names[report->asked]) ||
            !hutch_json_add_bool(layer, "active", report->is_active) ||
            !hutch_json_add_text(layer, "detail", report->detail, strnlen(report->detail, sizeof(report->detail))))
            return false;
    }
    return true;
}

static bool add_signal(cJSON *root, int number)
{
    const char *abbrev = sigabbrev_np(number);
    char name[24];

    if (number == 0)
        return hutch_json_add(root, "signal", cJSON_CreateNull());
    if (abbrev != NULL)
        snprintf(name, sizeof(name), "SIG%s", abbrev);
    else if (number >= SIGRTMIN && number <= SIGRTMAX)
        snprintf(name, sizeof(name), "SIGRTMIN+%d", number - SIGRTMIN);
    else
        snprintf(name, sizeof(name), "SIG%d", number);
    return hutch_json_add_string(root, "signal", name);
}

static bool fill_result(cJSON *root, const struct run_result *r)
{
    const char *message = r->message[0] ? r->message : NULL;

    return hutch_json_add_u64(root, "version", 1) &&
           hutch_json_add_string(root, "verdict", hutch_verdict_text(r->verdict)) &&
           (r->exit_code < 0 ? hutch_json_add(root, "exit_code", cJSON_CreateNull())
                             : hutch_json_add_u64(root, "exit_code", (uint64_t)r->exit_code)) &&
           add_signal(root, r->signal) && hutch_json_add_string(root, "message", message) &&
           hutch_json_add_text(root, "stdout", r->out.data, r->out.len) &&
           hutch_json_add_bool(root, "stdout_truncated", r->out.truncated) &&
           hutch_json_add_text(root, "stderr", r->err_out.data, r->err_out.len) &&
           hutch_json_add_bool(root, "stderr_truncated", r->err_out.truncated) && add_error(root, &r->error) &&
           add_value(root, r) && add_files(root, r) && add_timings(root, r) && add_usage(root, r) &&
           add_limits(root, r) && add_layers(root, r);
}

int hutch_result_json(const struct run_result *r, char **ret_json, size_t *ret_len, struct hutch_err *err)
{
    cJSON *root = cJSON_CreateObject();
    char *json = root != NULL && fill_result(root, r) ? cJSON_PrintUnformatted(root) : NULL;

    cJSON_Delete(root);
    if (json == NULL)
        return hutch_err_set(err, ENOMEM, "write the result as JSON");
    *ret_json = json;
    *ret_len = strlen(json);
    return 0;
}

void hutch_result_publish(const struct run_result *r, struct hutch_run_details *details, struct hutch_result *ret)
{
    details->result = r;
    *ret = (struct hutch_result){
        .size = sizeof(*ret),
        .verdict = r->verdict,
        .exit_code = r->exit_code,
        .signal = r->signal,
        .message = r->message,
        .out = r->out.data ? r->out.data : "",
        .out_len = r->out.len,
        .err = r->err_out.data ? r->err_out.data : "",
        .err_len = r->err_out.len,
        .out_truncated = r->out.truncated,
        .err_truncated = r->err_out.truncated,
        .error_name = r->error.name,
        .error_value = r->error.value,
        .error_traceback = r->error.traceback,
        .directory = r->directory,
        .queued_ms = r->queued_ms,
        .prepared_ms = r->prepared_ms,
        .run_ms = r->run_ms,
        .total_ms = r->total_ms,
        .cpu_user_ms = r->cpu_user_ms,
        .cpu_system_ms = r->cpu_system_ms,
        .memory_peak_bytes = r->memory_peak_bytes,
        .pids_peak = r->pids_peak,
        .internal = details,
        .cpu_at_least = r->is_cpu_lower_bound,
        .hutch_failed = r->has_hutch_failed,
        .value_json = r->value,
    };
}
