#include "runtime/engine/engine_priv.h"

#include "runtime/cell/result_json.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct rich {
    struct engine_run *run;
    char *code;           /* owned */
    char token[SESSION_TOKEN_SIZE];
    struct execution execution;
    bool has_said_end;
    struct hutch_cell_result result;
    struct cell_details details;
};

int hutch_rich_create(struct engine_run *run, const char *code, size_t len, struct hutch_err *err)
{
    struct rich *rich = calloc(1, sizeof(*rich));

    if (!rich)
        return hutch_err_set(err, ENOMEM, "keep the code");
    run->rich = rich;
    rich->run = run;
    rich->code = strndup(code, len);
    if (!rich->code)
        return hutch_err_set(err, ENOMEM, "keep the code");
    return hutch_session_make_token(rich->token, err);
}

const char *hutch_rich_token(const struct rich *rich)
{
    return rich->token;
}

void hutch_rich_free(struct rich *rich)
{
    if (!rich)
        return;
    hutch_execution_done(&rich->execution);
    free(rich->code);
    free(rich);
}

/* Nothing can be told any more: its end will show. */
static void give_up(struct rich *rich)
{
    hutch_supervisor_end(rich->run->slot->supervisor, END_CANCELLED);
}

static void on_event(void *user, const struct cell_event *event)
{
    struct rich *rich = user;
    struct engine_run *run = rich->run;
    const struct hutch_output *output = event->output;

    if (event->kind == CELL_OUTPUT && output->kind == HUTCH_STREAM && run->on_output)
        run->on_output(run->user, run->id, output->stream, output->text, output->text_len);
    else if (event->kind == CELL_BEGIN || event->kind == CELL_DONE)
        hutch_execution_hear(&rich->execution, event);
}

static void begin(struct rich *rich)
{
    const struct hutch_cell cell = { .size = sizeof(cell) };
    struct hutch_err err;

    if (hutch_execution_begin(&rich->execution, rich->run->interpreter, &cell, rich->code, NULL, rich->run->limits[LIMIT_OUTPUT], &err) < 0)
        give_up(rich);
}

static void say_end(struct rich *rich)
{
    struct cJSON *order = cJSON_CreateObject();
    struct hutch_err err;

    rich->has_said_end = true;
    if (!order || !cJSON_AddStringToObject(order, "do", "end") || hutch_interpreter_send(rich->run->interpreter, order, -1, &err) < 0)
        give_up(rich);
    cJSON_Delete(order);
}

static void on_turn(void *user)
{
    struct rich *rich = user;
    struct interpreter *interpreter = rich->run->interpreter;

    if (!interpreter || interpreter->is_over || interpreter->is_refused || !interpreter->is_ready)
        return;
    if (rich->execution.t_begun == 0)
        begin(rich);
    else if (hutch_execution_is_flooded(interpreter, rich->run->limits[LIMIT_OUTPUT]))
        hutch_supervisor_end(interpreter->slot->supervisor, END_OUTPUT);
    else if (rich->execution.is_done && !rich->has_said_end)
        say_end(rich);
}

int hutch_rich_begin(struct rich *rich, struct slot *slot, struct hutch_err *err)
{
    struct engine_run *run = rich->run;

    hutch_execution_done(&rich->execution);
    rich->has_said_end = false;
    slot->supervisor->timeout_signal = SIGINT; /* an exception in the cell, so that what it has shown and where it was come out */
    run->interpreter = hutch_interpreter_create_for_worker(slot, rich->token, on_event, on_turn, rich, err);
    if (!run->interpreter)
        return -1;
    return hutch_interpreter_send_raw(run->interpreter, run->job, run->job_len) < 0 ? hutch_err_set(err, ENOMEM, "describe a run to its worker") : 0;
}

/* What it printed is an output like any other, and the run's stdout and stderr. */
static void take_text(struct rich *rich, int stream, struct run_output *to)
{
    const struct cell_outputs *outputs = hutch_cell_feed_outputs(rich->run->interpreter->feed);

    if (rich->run->on_output)
        return;
    free(to->data);
    to->data = hutch_cell_outputs_text(outputs, stream, &to->len);
    if (!to->data)
        to->len = 0;
    to->truncated = to->truncated || !to->data || hutch_cell_outputs_is_truncated(outputs);
}

void hutch_rich_finish(struct rich *rich)
{
    struct engine_run *run = rich->run;
    struct run_result *r = &run->result;
    struct cell_error *error = &rich->execution.error;

    rich->details = (struct cell_details){ .code = rich->code, .files = &r->files, .directory = r->directory };
    rich->result = (struct hutch_cell_result){
        .size = sizeof(rich->result),
        .verdict = (enum hutch_verdict)r->verdict,
        .interpreter_died = !rich->execution.is_done,
        .message = r->message,
        .outputs = "[]",
        .queued_ms = r->queued_ms,
        .cpu_user_ms = r->cpu_user_ms,
        .cpu_system_ms = r->cpu_system_ms,
        .memory_peak_bytes = r->memory_peak_bytes,
        .internal = &rich->details,
    };
    if (!run->interpreter)
        return;
    hutch_execution_fill(&rich->execution, run->interpreter, &rich->result, &rich->details);
    take_text(rich, 1, &r->out);
    take_text(rich, 2, &r->err_out);
    if (r->verdict == VERDICT_OK || !error->name)
        return;
    hutch_error_report_done(&r->error);
    r->error.name = strdup(error->name);
    r->error.value = strdup(error->value ? error->value : "");
    r->error.traceback = strdup(error->traceback ? error->traceback : "");
    if (!r->error.name || !r->error.value || !r->error.traceback)
        hutch_error_report_done(&r->error);
}

const struct hutch_cell_result *hutch_rich_result(const struct rich *rich)
{
    return &rich->result;
}
