#include "runtime/session/execution.h"

#include "runtime/cell/result_json.h"
#include "runtime/session/interpreter.h"
#include "runtime/text/json_write.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FLOOD_FACTOR 8

/* {"NAME": "VALUE"}; the last of a name wins. False on ENOMEM. */
static bool add_env(struct cJSON *order, const char *const *env)
{
    struct cJSON *o = env ? hutch_json_add_new(order, "env", cJSON_CreateObject()) : NULL;

    for (; o && env && *env; env++) {
        const size_t len = strcspn(*env, "=");
        auto_free char *name = strndup(*env, len);

        if (!name)
            return false;
        cJSON_DeleteItemFromObjectCaseSensitive(o, name);
        if (!cJSON_AddStringToObject(o, name, *env + len + 1))
            return false;
    }
    return !env || o;
}

static struct cJSON *describe(int64_t id, const struct hutch_cell *cell, const char *code, const char *context,
                              const struct cJSON *calls)
{
    struct cJSON *o = cJSON_CreateObject();

    if (o && cJSON_AddStringToObject(o, "do", "execute") && cJSON_AddNumberToObject(o, "id", (double)id) &&
        cJSON_AddStringToObject(o, "code", code) && cJSON_AddStringToObject(o, "context", context ? context : "main") &&
        cJSON_AddBoolToObject(o, "silent", cell->silent) && cJSON_AddBoolToObject(o, "history", !cell->no_history) &&
        cJSON_AddBoolToObject(o, "stdin", cell->allow_input) && cJSON_AddBoolToObject(o, "figures", true) &&
        cJSON_AddBoolToObject(o, "widgets", cell->widgets) && cJSON_AddBoolToObject(o, "value", cell->wants_value) &&
        add_env(o, cell->env) && (!cell->cwd || cJSON_AddStringToObject(o, "cwd", cell->cwd)) &&
        (!calls || hutch_json_add(o, "calls", cJSON_Duplicate(calls, true))))
        return o;
    cJSON_Delete(o);
    return NULL;
}

int hutch_execution_begin(struct execution *execution, struct interpreter *interpreter, const struct hutch_cell *cell,
                          const char *code, const char *context, const struct cJSON *calls, uint64_t output_bytes,
                          struct hutch_err *err)
{
    int64_t id = execution->id + 1;
    struct cJSON *order;
    int rc;

    hutch_execution_done(execution);
    *execution = (struct execution){ .id = id,
                                     .is_silent = cell->silent,
                                     .wants_value = cell->wants_value,
                                     .t_begun = hutch_clock_ms(),
                                     .t_busy = hutch_clock_unix() };
    hutch_cell_feed_begin(interpreter->feed, output_bytes);
    hutch_interpreter_set_in_cell(interpreter, true);
    order = describe(id, cell, code, context, calls);
    rc = order ? hutch_interpreter_send(interpreter, order, -1, err) : hutch_err_set(err, ENOMEM, "order a cell");
    cJSON_Delete(order);
    return rc;
}

bool hutch_execution_is_flooded(const struct interpreter *interpreter, uint64_t output_bytes)
{
    return output_bytes && interpreter->heard_bytes > FLOOD_FACTOR * output_bytes + CELL_MAX_FRAME;
}

int hutch_execution_count(const struct execution *execution)
{
    return !execution->is_silent && execution->count > 0 && execution->count <= INT32_MAX ? (int)execution->count : 0;
}

void hutch_execution_hear(struct execution *execution, const struct cell_event *event)
{
    if (event->id != execution->id || execution->is_done)
        return;
    if (event->kind == CELL_BEGIN && !execution->has_begun) {
        execution->has_begun = true;
        execution->count = event->count;
        execution->t_input = hutch_clock_unix();
    } else if (event->kind == CELL_DONE) {
        execution->is_done = true;
        execution->is_error = event->is_error;
        execution->line = event->line;
        execution->cause = event->cause ? strdup(event->cause) : NULL;
        execution->value = execution->wants_value && event->value ? strdup(event->value) : NULL;
        execution->t_reply = hutch_clock_unix();
    }
}

void hutch_execution_fill(struct execution *execution, const struct interpreter *interpreter,
                          struct hutch_cell_result *result, struct hutch_cell_details *details)
{
    const struct cell_outputs *outputs = hutch_cell_feed_outputs(interpreter->feed);

    execution->outputs = hutch_cell_outputs_json(outputs, NULL);
    result->outputs = execution->outputs ? execution->outputs : "[]";
    result->truncated = !execution->outputs || hutch_cell_outputs_is_truncated(outputs);
    if ((execution->is_error || !execution->is_done) && hutch_cell_outputs_error(outputs, &execution->error) < 0)
        result->truncated = true;
    result->error_name = execution->error.name;
    result->error_value = execution->error.value;
    result->error_traceback = execution->error.traceback;
    result->error_traceback_ansi = execution->error.traceback_ansi;
    result->execution_count = hutch_execution_count(execution);
    result->value_json = execution->value;
    result->error_line = execution->line > 0 && execution->line <= INT32_MAX ? (int)execution->line : 0;
    result->run_ms = hutch_clock_ms() - execution->t_begun;
    result->t_busy = execution->t_busy;
    result->t_input = execution->t_input;
    result->t_reply = execution->t_reply;
    result->t_idle = hutch_clock_unix();
    details->cause = execution->cause;
    result->internal = details;
    result->language_info = interpreter->language_info;
}

void hutch_execution_done(struct execution *execution)
{
    hutch_cell_error_done(&execution->error);
    free(execution->outputs);
    free(execution->cause);
    free(execution->value);
    *execution = (struct execution){ .id = execution->id };
}
