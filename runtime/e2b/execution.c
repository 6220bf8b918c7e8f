#include "runtime/e2b/execution.h"

#include "runtime/e2b/event.h"
#include "runtime/e2b/sandbox.h"
#include "runtime/gateway/exchange.h"
#include "runtime/gateway/sessions.h"

#include <stdlib.h>

#define SILENCE_MS 5000 /* as the clients' own server has it */

struct execution *hutch_e2b_execution_create(struct exchange *x, const struct e2b_sandbox *sandbox)
{
    struct execution *execution = calloc(1, sizeof(*execution));

    x->work = execution;
    if (execution)
        execution->session = sandbox->session;
    else
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the request");
    return execution;
}

void hutch_e2b_execution_begin(struct exchange *x, void (*on_gone)(struct exchange *x))
{
    hutch_gateway_sessions_begin(((struct execution *)x->work)->session);
    hutch_exchange_wait(x, on_gone);
}

void hutch_e2b_execution_leave(struct exchange *x)
{
    hutch_gateway_sessions_end(((struct execution *)x->work)->session);
}

void hutch_e2b_execution_refuse(struct exchange *x, const struct hutch_error *error)
{
    hutch_e2b_execution_leave(x);
    hutch_exchange_refuse_error(x, error, GATEWAY_QUEUE_FULL, GATEWAY_NOT_FOUND);
}

void hutch_e2b_execution_begin_stream(struct exchange *x)
{
    static const char sign[] = "{\"type\":\"keepalive\"}\n";

    hutch_exchange_begin_stream(x, "application/x-ndjson");
    hutch_exchange_break_silence(x, sign, sizeof(sign) - 1, SILENCE_MS);
}

void hutch_e2b_execution_send(struct exchange *x, struct text_buffer *t)
{
    struct execution *execution = x->work;

    if (!execution->is_behind && (t->is_broken || (t->len && !hutch_exchange_write(x, t->data, t->len)))) {
        execution->is_behind = true;
        execution->interrupt(x);
    }
    hutch_text_done(t);
}

void hutch_e2b_execution_send_count(struct exchange *x, int count)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_text_addf(&t, "{\"type\":\"number_of_executions\",\"execution_count\":%d}\n", count);
    hutch_e2b_execution_send(x, &t);
}

/* What @text has, as an event. */
static void send_event(struct exchange *x, int stream, struct text_buffer *text)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (text->is_broken)
        t.is_broken = true;
    else if (text->len > 0)
        hutch_e2b_event_add_text(&t, stream, text->data, text->len);
    hutch_text_done(text);
    hutch_e2b_execution_send(x, &t);
}

void hutch_e2b_execution_send_text(struct exchange *x, int stream, const char *data, size_t len)
{
    struct execution *execution = x->work;
    struct text_buffer text = TEXT_BUFFER_INIT;

    hutch_pieces_join(&execution->pieces[stream - 1], data, len, &text);
    send_event(x, stream, &text);
}

void hutch_e2b_execution_flush(struct exchange *x)
{
    struct execution *execution = x->work;

    for (int stream = 1; stream <= 2; stream++) {
        struct text_buffer text = TEXT_BUFFER_INIT;

        hutch_pieces_flush(&execution->pieces[stream - 1], &text);
        send_event(x, stream, &text);
    }
}

void hutch_e2b_execution_end(struct exchange *x)
{
    const struct execution *execution = x->work;
    struct text_buffer t = TEXT_BUFFER_INIT;
    bool is_whole;

    hutch_text_add_string(&t, "{\"type\":\"end_of_execution\"}\n");
    hutch_e2b_execution_send(x, &t);
    is_whole = !execution->is_behind;
    hutch_exchange_end(x, is_whole);
}
