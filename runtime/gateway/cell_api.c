#include "runtime/gateway/cell_api.h"

#include "runtime/gateway/events.h"
#include "runtime/gateway/server_priv.h"
#include "runtime/gateway/session_api.h"
#include "runtime/gateway/session_request.h"
#include "runtime/gateway/waiting.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <string.h>

/* Its own cell only: one that waits is taken back, one that runs is interrupted. */
static void on_cell_gone(struct exchange *x)
{
    const struct waiting *waiting = x->work;

    hutch_session_cancel_cell(x->server->engine, waiting->session->number, waiting->cell);
}

static void on_cell_output(void *user, uint64_t number, const struct hutch_output *output)
{
    static const char *const names[] = {
        [HUTCH_DISPLAY] = "display", [HUTCH_VALUE] = "value", [HUTCH_ERROR_OUTPUT] = "error",
        [HUTCH_UPDATE] = "update",   [HUTCH_CLEAR] = "clear", [HUTCH_WIDGET] = "widget",
    };
    struct exchange *x = user;
    struct events *stream = &((struct waiting *)x->work)->stream;
    bool is_taken;

    if (stream->is_behind)
        return;
    if (output->kind == HUTCH_STREAM) {
        is_taken = hutch_events_output(stream, x, output->stream, output->text, output->text_len);
    } else if ((size_t)output->kind < ARRAY_SIZE(names)) {
        hutch_events_flush(stream, x);
        is_taken = hutch_events_send(stream, x, names[output->kind], output->json, strlen(output->json));
    } else {
        return; /* of a newer library */
    }
    if (!is_taken) { /* what comes is this cell's, so it is the one that runs */
        stream->is_behind = true;
        hutch_session_interrupt(x->server->engine, number);
    }
}

/* An event that has to be heard: without it the cell would wait for an answer that never comes. */
static void send_question(struct exchange *x, uint64_t number, const char *event, struct text_buffer *t)
{
    struct events *stream = &((struct waiting *)x->work)->stream;
    size_t len = 0;
    auto_free char *json = hutch_text_take(t, &len);

    hutch_events_flush(stream, x);
    if (!stream->is_behind && json && hutch_events_send(stream, x, event, json, len))
        return;
    stream->is_behind = true;
    hutch_session_interrupt(x->server->engine, number);
}

static void on_cell_call(void *user, uint64_t number, uint64_t call, const char *name, const char *json)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_text_addf(&t, "{\"id\":%" PRIu64 ",\"name\":", call);
    hutch_json_quote(&t, name, strlen(name));
    hutch_text_add_string(&t, ",\"arguments\":");
    hutch_text_add_string(&t, json);
    hutch_text_add_string(&t, "}");
    send_question(user, number, "call", &t);
}

static void on_cell_input(void *user, uint64_t number, const char *prompt, int is_password)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_text_add_string(&t, "{\"prompt\":");
    hutch_json_quote(&t, prompt, strlen(prompt));
    hutch_text_addf(&t, ",\"password\":%s}", is_password ? "true" : "false");
    send_question(user, number, "input", &t);
}

static void on_cell_result(void *user, uint64_t number, const struct hutch_cell_result *result)
{
    struct exchange *x = user;
    struct waiting *waiting = x->work;
    struct events *stream = &waiting->stream;
    char *json = hutch_cell_result_to_json(result);

    (void)number;
    hutch_session_api_count_cell(x, waiting->session, result);
    hutch_waiting_end(x);
    if (stream->format == EVENTS_NONE) {
        hutch_exchange_answer(x, 200, "application/json", json, json ? strlen(json) : 0);
        return;
    }
    hutch_events_end(stream, x, json);
    free(json);
}

static void execute(struct exchange *x, struct gateway_session *session, struct hutch_cell *cell)
{
    enum events_format format = hutch_events_asked(x);
    struct waiting *waiting = hutch_waiting_create(x, session);
    struct hutch_error error;

    if (!waiting)
        return;
    hutch_exchange_note_program(x, cell->code, cell->code_len ? cell->code_len : strlen(cell->code));
    if (format == EVENTS_NONE && (cell->calls || cell->allow_input)) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST,
                              "a cell with calls or allow_input is answered by a stream, in which it asks: give the "
                              "header Accept: text/event-stream or application/x-ndjson");
        return;
    }
    cell->on_call = cell->calls ? on_cell_call : NULL;
    cell->on_input = cell->allow_input ? on_cell_input : NULL;
    cell->on_output = format == EVENTS_NONE ? NULL : on_cell_output;
    cell->on_result = on_cell_result;
    cell->user = x;
    cell->ret_id = &waiting->cell;
    hutch_waiting_begin(x, on_cell_gone);
    if (hutch_session_execute(x->server->engine, session->number, cell, &error) < 0)
        hutch_waiting_refuse(x, &error);
    else if (x->is_pending && format != EVENTS_NONE)
        hutch_events_begin(&waiting->stream, x, format);
}

void hutch_cell_api_execute(struct exchange *x)
{
    struct gateway_session *session = hutch_session_api_find(x);
    struct cell_request request;
    struct hutch_err err;

    if (!session)
        return;
    if (hutch_cell_request_parse(x->body.data, x->body.len, &request, &err) < 0)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else
        execute(x, session, &request.cell);
    hutch_cell_request_done(&request);
}
