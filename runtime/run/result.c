#include "runtime/run/result.h"

#include "sandbox/fd.h"
#include "runtime/data/files.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
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
    free(r->gpu);
    hutch_file_changes_done(&r->files);
    hutch_file_changes_done(&r->project);
    hutch_result_init(r);
}

/* ---- parts ----
 *
 * As text and not as cJSON's objects: each run of a server is told in this way, and some four hundred allocations for
 * each took a quarter of the processor time that HTTP adds. */

static void add_bool(struct text_buffer *t, bool value)
{
    hutch_text_add_string(t, value ? "true" : "false");
}

static void add_string(struct text_buffer *t, const char *text)
{
    if (text)
        hutch_json_quote(t, text, strlen(text));
    else
        hutch_text_add_string(t, "null");
}

static void add_u64(struct text_buffer *t, uint64_t value)
{
    hutch_text_addf(t, "%" PRIu64, value);
}

static void add_u64_or_null(struct text_buffer *t, uint64_t value, uint64_t unknown)
{
    if (value == unknown)
        hutch_text_add_string(t, "null");
    else
        add_u64(t, value);
}

static void add_signal(struct text_buffer *t, int number)
{
    const char *abbrev = sigabbrev_np(number);

    if (number == 0)
        hutch_text_add_string(t, "null");
    else if (abbrev)
        hutch_text_addf(t, "\"SIG%s\"", abbrev);
    else if (number >= SIGRTMIN && number <= SIGRTMAX)
        hutch_text_addf(t, "\"SIGRTMIN+%d\"", number - SIGRTMIN);
    else
        hutch_text_addf(t, "\"SIG%d\"", number);
}

static void add_outcome(struct text_buffer *t, const struct run_result *r)
{
    hutch_text_add_string(t, "\"version\":1,\"verdict\":");
    add_string(t, hutch_verdict_text(r->verdict));
    hutch_text_add_string(t, ",\"exit_code\":");
    if (r->exit_code < 0)
        hutch_text_add_string(t, "null");
    else
        add_u64(t, (uint64_t)r->exit_code);
    hutch_text_add_string(t, ",\"signal\":");
    add_signal(t, r->signal);
    hutch_text_add_string(t, ",\"message\":");
    add_string(t, r->message[0] ? r->message : NULL);
}

static void add_output(struct text_buffer *t, const struct run_result *r)
{
    hutch_text_add_string(t, ",\"stdout\":");
    hutch_json_quote(t, r->out.data, r->out.len);
    hutch_text_add_string(t, ",\"stdout_truncated\":");
    add_bool(t, r->out.truncated);
    hutch_text_add_string(t, ",\"stderr\":");
    hutch_json_quote(t, r->err_out.data, r->err_out.len);
    hutch_text_add_string(t, ",\"stderr_truncated\":");
    add_bool(t, r->err_out.truncated);
}

static void add_error(struct text_buffer *t, const struct error_report *error)
{
    hutch_text_add_string(t, ",\"error\":");
    if (!error->name) {
        hutch_text_add_string(t, "null");
        return;
    }
    hutch_text_add_string(t, "{\"name\":");
    add_string(t, error->name);
    hutch_text_add_string(t, ",\"value\":");
    add_string(t, error->value);
    hutch_text_add_string(t, ",\"traceback\":");
    add_string(t, error->traceback);
    hutch_text_add_string(t, "}");
}

/* Of a call only. */
static void add_value(struct text_buffer *t, const struct run_result *r)
{
    if (!r->is_call)
        return;
    hutch_text_add_string(t, ",\"value\":");
    hutch_text_add_string(t, r->value ? r->value : "null");
}

static bool have_changed(const struct file_changes *files)
{
    return files->added.n || files->modified.n || files->deleted.n || files->truncated;
}

/* What has files is no hot path. */
static void add_changes(struct text_buffer *t, const struct run_result *r)
{
    cJSON *files = cJSON_CreateObject();
    char *json = files && hutch_json_add_string(files, "directory", r->directory) &&
                         hutch_files_add_changes(files, &r->files)
                     ? cJSON_PrintUnformatted(files)
                     : NULL;

    cJSON_Delete(files);
    t->is_broken |= !json;
    hutch_text_add_string(t, json ? json : "");
    free(json);
}

static void add_files(struct text_buffer *t, const struct run_result *r)
{
    hutch_text_add_string(t, ",\"files\":");
    if (r->directory || have_changed(&r->files))
        add_changes(t, r);
    else
        hutch_text_add_string(t, "{\"directory\":null,\"added\":[],\"modified\":[],\"deleted\":[],"
                                 "\"truncated\":false}");
}

/* Of a copy that could be written only. */
static void add_project(struct text_buffer *t, const struct run_result *r)
{
    cJSON *project = r->has_project ? cJSON_CreateObject() : NULL;
    char *json = project && hutch_files_add_changes(project, &r->project) ? cJSON_PrintUnformatted(project) : NULL;

    cJSON_Delete(project);
    if (!r->has_project)
        return;
    t->is_broken |= !json;
    hutch_text_add_string(t, ",\"project\":");
    hutch_text_add_string(t, json ? json : "");
    free(json);
}

/* Where one was handed in only. */
static void add_gpu(struct text_buffer *t, const struct run_result *r)
{
    if (!r->gpu)
        return;
    hutch_text_add_string(t, ",\"gpu\":");
    hutch_text_add_string(t, r->gpu);
}

/* Three decimals, and a point in every locale. */
static void add_ms(struct text_buffer *t, const char *before, double ms)
{
    uint64_t us = ms > 0 && ms < 1e15 ? (uint64_t)(ms * 1000 + 0.5) : 0;

    hutch_text_addf(t, "%s%" PRIu64 ".%03u", before, us / 1000, (unsigned)(us % 1000));
}

static void add_timings(struct text_buffer *t, const struct run_result *r)
{
    hutch_text_add_string(t, ",\"timings_ms\":{");
    add_ms(t, "\"queued\":", r->queued_ms);
    add_ms(t, ",\"prepared\":", r->prepared_ms);
    add_ms(t, ",\"run\":", r->run_ms);
    add_ms(t, ",\"total\":", r->total_ms);
    hutch_text_add_string(t, "}");
}

static void add_usage(struct text_buffer *t, const struct run_result *r)
{
    hutch_text_add_string(t, ",\"usage\":{\"cpu_user_ms\":");
    add_u64_or_null(t, r->cpu_user_ms, HUTCH_UNKNOWN);
    hutch_text_add_string(t, ",\"cpu_system_ms\":");
    add_u64_or_null(t, r->cpu_system_ms, HUTCH_UNKNOWN);
    hutch_text_add_string(t, ",\"cpu_at_least\":");
    add_bool(t, r->is_cpu_lower_bound);
    hutch_text_add_string(t, ",\"memory_peak_bytes\":");
    add_u64_or_null(t, r->memory_peak_bytes, HUTCH_UNKNOWN);
    hutch_text_add_string(t, ",\"pids_peak\":");
    add_u64_or_null(t, r->pids_peak, HUTCH_UNKNOWN);
    hutch_text_add_string(t, "}");
}

static void add_enforcers(struct text_buffer *t, unsigned enforcers)
{
    const char *before = "\"";

    if (enforcers != 1u << ENFORCER_NONE)
        enforcers &= ~(1u << ENFORCER_NONE);
    if (enforcers == 0)
        enforcers = 1u << ENFORCER_NONE;
    for (unsigned e = 0; e < ENFORCER_COUNT; e++) {
        if (!(enforcers & 1u << e))
            continue;
        hutch_text_add_string(t, before);
        hutch_text_add_string(t, hutch_enforcer_name((enum sandbox_enforcer)e));
        hutch_text_add_string(t, "\"");
        before = ",\"";
    }
}

static void add_limits(struct text_buffer *t, const struct run_result *r)
{
    hutch_text_add_string(t, ",\"limits\":{");
    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        const struct run_limit_report *report = &r->limits[i];

        hutch_text_add_string(t, i ? ",\"" : "\"");
        hutch_text_add_string(t, hutch_limit_name((enum sandbox_limit)i));
        hutch_text_add_string(t, "\":{\"asked\":");
        add_u64_or_null(t, report->asked, 0);
        hutch_text_add_string(t, ",\"enforced_by\":[");
        if (report->asked)
            add_enforcers(t, report->enforcers);
        hutch_text_add_string(t, "]}");
    }
    hutch_text_add_string(t, "}");
}

const char *hutch_result_level(const struct run_result *r)
{
    if (r->verdict == HUTCH_SETUP_FAILED || !r->layers[LAYER_USER_NS].is_active)
        return NULL;
    return hutch_level_name(r->layers[LAYER_OWN_PROC].is_active ? LEVEL_FULL : LEVEL_NO_PROC);
}

static void add_layers(struct text_buffer *t, const struct run_result *r)
{
    hutch_text_add_string(t, ",\"layers\":{");
    for (unsigned i = 0; i < LAYER_COUNT; i++) {
        const struct run_layer_report *report = &r->layers[i];

        hutch_text_add_string(t, i ? ",\"" : "\"");
        hutch_text_add_string(t, hutch_layer_name((enum sandbox_layer)i));
        hutch_text_add_string(t, "\":{\"asked\":");
        add_string(t, need_names[report->asked]);
        hutch_text_add_string(t, ",\"active\":");
        add_bool(t, report->is_active);
        hutch_text_add_string(t, ",\"detail\":");
        hutch_json_quote(t, report->detail, strnlen(report->detail, sizeof(report->detail)));
        hutch_text_add_string(t, "}");
    }
    hutch_text_add_string(t, "}");
}

int hutch_result_json(const struct run_result *r, char **ret_json, size_t *ret_len, struct hutch_err *err)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    char *json;

    hutch_text_add_string(&t, "{");
    add_outcome(&t, r);
    add_output(&t, r);
    add_error(&t, &r->error);
    add_value(&t, r);
    add_files(&t, r);
    add_project(&t, r);
    add_timings(&t, r);
    add_usage(&t, r);
    add_limits(&t, r);
    hutch_text_add_string(&t, ",\"level\":");
    add_string(&t, hutch_result_level(r));
    add_layers(&t, r);
    add_gpu(&t, r);
    hutch_text_add_string(&t, "}");
    json = hutch_text_take(&t, ret_len);
    if (!json)
        return hutch_err_set(err, ENOMEM, "write the result as JSON");
    *ret_json = json;
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
        .level = hutch_result_level(r),
        .hutch_failed = r->has_hutch_failed,
        .value_json = r->value,
    };
}
