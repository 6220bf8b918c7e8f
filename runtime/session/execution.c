#include "runtime/engine/engine_priv.h"

#include "runtime/cell/result_json.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FLOOD_FACTOR 8

static double real_time(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static struct cJSON *describe(int64_t id, const struct hutch_cell *cell, const char *code, const char *context)
{
    struct cJSON *o = cJSON_CreateObject();

    if (o && cJSON_AddStringToObject(o, "do", "execute") && cJSON_AddNumberToObject(o, "id", (double)id) &&
        cJSON_AddStringToObject(o, "code", code) && cJSON_AddStringToObject(o, "context", context ? context : "main") &&
        cJSON_AddBoolToObject(o, "silent", cell->silent) && cJSON_AddBoolToObject(o, "history", !cell->no_history) &&
        cJSON_AddBoolToObject(o, "stdin", cell->allow_input) && cJSON_AddBoolToObject(o, "figures", true))
        return o;
    cJSON_Delete(o);
    return NULL;
}

int hutch_course_begin(struct course *c, struct interpreter *interpreter, const struct hutch_cell *cell, const char *code, const char *context,
                       uint64_t output_bytes, struct hutch_err *err)
{
    int64_t id = c->id + 1;
    struct cJSON *order;
    int rc;

    hutch_course_done(c);
    *c = (struct course){ .id = id, .is_silent = cell->silent, .t_begun = hutch_supervisor_now(), .t_busy = real_time() };
    hutch_cell_feed_begin(interpreter->feed, output_bytes);
    hutch_interpreter_set_in_cell(interpreter, true);
    order = describe(id, cell, code, context);
    rc = order ? hutch_interpreter_send(interpreter, order, -1, err) : hutch_err_set(err, ENOMEM, "order a cell");
    cJSON_Delete(order);
    return rc;
}

bool hutch_course_is_flooded(const struct interpreter *interpreter, uint64_t output_bytes)
{
    return output_bytes && interpreter->heard_bytes > FLOOD_FACTOR * output_bytes + CELL_MAX_FRAME;
}

void hutch_course_hear(struct course *c, const struct cell_event *event)
{
    if (event->id != c->id || c->is_done)
        return;
    if (event->kind == CELL_BEGIN && !c->has_begun) {
        c->has_begun = true;
        c->count = event->count;
        c->t_input = real_time();
    } else if (event->kind == CELL_DONE) {
        c->is_done = true;
        c->is_error = event->is_error;
        c->line = event->line;
        c->cause = event->cause ? strdup(event->cause) : NULL;
        c->t_reply = real_time();
    }
}

void hutch_course_fill(struct course *c, const struct interpreter *interpreter, struct hutch_cell_result *result, struct cell_details *details)
{
    const struct cell_outputs *outputs = hutch_cell_feed_outputs(interpreter->feed);

    c->outputs = hutch_cell_outputs_json(outputs, NULL);
    result->outputs = c->outputs ? c->outputs : "[]";
    result->truncated = !c->outputs || hutch_cell_outputs_is_truncated(outputs);
    if ((c->is_error || !c->is_done) && hutch_cell_outputs_error(outputs, &c->error) < 0)
        result->truncated = true;
    result->error_name = c->error.name;
    result->error_value = c->error.value;
    result->error_traceback = c->error.traceback;
    result->error_traceback_ansi = c->error.traceback_ansi;
    result->execution_count = !c->is_silent && c->count > 0 && c->count <= INT32_MAX ? (int)c->count : 0;
    result->error_line = c->line > 0 && c->line <= INT32_MAX ? (int)c->line : 0;
    result->run_ms = hutch_supervisor_now() - c->t_begun;
    result->t_busy = c->t_busy;
    result->t_input = c->t_input;
    result->t_reply = c->t_reply;
    result->t_idle = real_time();
    details->cause = c->cause;
    result->internal = details;
    result->language_info = interpreter->language_info;
}

void hutch_course_done(struct course *c)
{
    hutch_cell_error_done(&c->error);
    free(c->outputs);
    free(c->cause);
    *c = (struct course){ .id = c->id };
}
