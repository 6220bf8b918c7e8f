#include "runtime/session/cell_run.h"

#include "runtime/cell/result_json.h"
#include "runtime/engine/run.h"
#include "runtime/run/limit_hint.h"
#include "runtime/session/execution.h"
#include "runtime/session/interpreter.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct cell_run {
    struct engine_run *run;
    struct interpreter *interpreter; /* owned; from its begin on */
    char *code;           /* owned */
    char token[INTERPRETER_TOKEN_SIZE];
    struct execution execution;
    bool has_said_end;
    struct hutch_cell_result result;
    struct hutch_cell_details details;
};

static const struct run_kind kind;

int hutch_cell_run_create(struct engine_run *run, const char *code, size_t len, struct hutch_err *err)
{
    struct cell_run *cell_run = calloc(1, sizeof(*cell_run));

    if (!cell_run)
        return hutch_err_set(err, ENOMEM, "keep the code");
    run->kind = &kind;
    run->kind_data = cell_run;
    cell_run->run = run;
    cell_run->code = strndup(code, len);
    if (!cell_run->code)
        return hutch_err_set(err, ENOMEM, "keep the code");
    return hutch_interpreter_make_token(cell_run->token, err);
}

const char *hutch_cell_run_token(const struct engine_run *run)
{
    return ((struct cell_run *)run->kind_data)->token;
}

static void free_data(struct engine_run *run)
{
    struct cell_run *cell_run = run->kind_data;

    if (!cell_run)
        return;
    hutch_interpreter_free(cell_run->interpreter);
    hutch_execution_done(&cell_run->execution);
    free(cell_run->code);
    free(cell_run);
}

static void reset(struct engine_run *run)
{
    struct cell_run *cell_run = run->kind_data;

    hutch_interpreter_free(cell_run->interpreter);
    cell_run->interpreter = NULL;
}

/* Nothing can be told any more: its end will show. */
static void give_up(struct cell_run *cell_run)
{
    hutch_slot_stop(cell_run->run->slot, END_CANCELLED);
}

static void on_event(void *user, const struct cell_event *event)
{
    struct cell_run *cell_run = user;
    struct engine_run *run = cell_run->run;
    const struct hutch_output *output = event->output;

    if (event->kind == CELL_OUTPUT && output->kind == HUTCH_STREAM && run->on_output)
        run->on_output(run->user, run->id, output->stream, output->text, output->text_len);
    else if (event->kind == CELL_BEGIN || event->kind == CELL_DONE)
        hutch_execution_hear(&cell_run->execution, event);
}

static void begin(struct cell_run *cell_run)
{
    const struct hutch_cell cell = { .size = sizeof(cell) };
    struct hutch_err err;

    if (hutch_execution_begin(&cell_run->execution, cell_run->interpreter, &cell, cell_run->code, NULL, NULL,
                              cell_run->run->limits[LIMIT_OUTPUT], &err) < 0)
        give_up(cell_run);
}

static void say_end(struct cell_run *cell_run)
{
    struct cJSON *order = cJSON_CreateObject();
    struct hutch_err err;

    cell_run->has_said_end = true;
    if (!order || !cJSON_AddStringToObject(order, "do", "end") ||
        hutch_interpreter_send(cell_run->interpreter, order, -1, &err) < 0)
        give_up(cell_run);
    cJSON_Delete(order);
}

static void on_turn(void *user)
{
    struct cell_run *cell_run = user;
    struct interpreter *interpreter = cell_run->interpreter;

    if (!interpreter || interpreter->is_over || interpreter->is_refused || !interpreter->is_ready)
        return;
    if (cell_run->execution.t_begun == 0)
        begin(cell_run);
    else if (hutch_execution_is_flooded(interpreter, cell_run->run->limits[LIMIT_OUTPUT]))
        hutch_slot_stop(interpreter->slot, END_OUTPUT);
    else if (cell_run->execution.is_done && !cell_run->has_said_end)
        say_end(cell_run);
}

static int start(struct engine_run *run, struct hutch_err *err)
{
    struct cell_run *cell_run = run->kind_data;
    struct slot *slot = run->slot;

    hutch_execution_done(&cell_run->execution);
    cell_run->has_said_end = false;
    /* an exception in the cell, so that what it has shown and where it was come out */
    slot->supervisor->timeout_signal = SIGINT;
    cell_run->interpreter = hutch_interpreter_create_for_worker(slot, cell_run->token, on_event, on_turn, cell_run,
                                                                err);
    if (!cell_run->interpreter)
        return -1;
    if (hutch_interpreter_send_raw(cell_run->interpreter, run->job, run->job_len) < 0)
        return hutch_err_set(err, ENOMEM, "describe a run to its worker");
    return 0;
}

static bool wants_output(const struct engine_run *run)
{
    (void)run;
    return true;
}

static void hear(struct engine_run *run, int stream, const char *data, size_t len)
{
    struct cell_run *cell_run = run->kind_data;

    hutch_interpreter_hear(cell_run->interpreter, stream, data, len);
}

static enum run_outcome conclude(struct engine_run *run, struct hutch_err *why)
{
    struct cell_run *cell_run = run->kind_data;

    return cell_run->interpreter ? hutch_interpreter_conclude(cell_run->interpreter, run->slot->supervisor, why)
                                 : OUTCOME_JUDGE;
}

/* What it printed is an output like any other, and the run's stdout and stderr. */
static void take_text(struct cell_run *cell_run, int stream, struct run_output *to)
{
    const struct cell_outputs *outputs = hutch_cell_feed_outputs(cell_run->interpreter->feed);

    if (cell_run->run->on_output)
        return;
    free(to->data);
    to->data = hutch_cell_outputs_text(outputs, stream, &to->len);
    if (!to->data)
        to->len = 0;
    to->truncated = to->truncated || !to->data || hutch_cell_outputs_is_truncated(outputs);
}

static const struct hutch_cell_result *finish(struct engine_run *run)
{
    struct cell_run *cell_run = run->kind_data;
    struct run_result *r = &run->result;
    struct cell_error *error = &cell_run->execution.error;

    cell_run->details =
        (struct hutch_cell_details){ .code = cell_run->code, .files = &r->files, .directory = r->directory };
    cell_run->result = (struct hutch_cell_result){
        .size = sizeof(cell_run->result),
        .verdict = r->verdict,
        .interpreter_died = !cell_run->execution.is_done,
        .message = r->message,
        .outputs = "[]",
        .queued_ms = r->queued_ms,
        .cpu_user_ms = r->cpu_user_ms,
        .cpu_system_ms = r->cpu_system_ms,
        .memory_peak_bytes = r->memory_peak_bytes,
        .internal = &cell_run->details,
    };
    if (!cell_run->interpreter)
        return &cell_run->result;
    hutch_execution_fill(&cell_run->execution, cell_run->interpreter, &cell_run->result, &cell_run->details);
    take_text(cell_run, 1, &r->out);
    take_text(cell_run, 2, &r->err_out);
    if (r->verdict == HUTCH_OK || !error->name)
        return &cell_run->result;
    hutch_error_report_done(&r->error);
    r->error.name = strdup(error->name);
    r->error.value = strdup(error->value ? error->value : "");
    r->error.traceback = strdup(error->traceback ? error->traceback : "");
    if (!r->error.name || !r->error.value || !r->error.traceback)
        hutch_error_report_done(&r->error);
    if (r->verdict == HUTCH_ERROR && !r->message[0]) {
        struct limit_hint hint = { .limits = run->limits };

        hutch_limit_hint_set_exception(&hint, error->value, error->traceback);
        hutch_limit_hint_write(&hint, r->message, sizeof(r->message));
    }
    return &cell_run->result;
}

static const struct run_kind kind = {
    .start = start,
    .wants_output = wants_output,
    .hear = hear,
    .conclude = conclude,
    .reset = reset,
    .refuse = hutch_run_fail,
    .die = hutch_run_deliver,
    .finish = finish,
    .free = free_data,
};
