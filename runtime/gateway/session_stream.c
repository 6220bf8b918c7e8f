#include "runtime/gateway/session_stream.h"

#include "runtime/gateway/server_priv.h"
#include "runtime/gateway/session_api.h"
#include "runtime/gateway/sessions.h"
#include "runtime/text/json_write.h"

#include <stdlib.h>
#include <string.h>

struct held_session {
    struct gateway_session *session; /* NULL: it has ended */
    struct events stream;
};

static void on_gone(struct exchange *x)
{
    struct gateway_session *session = ((struct held_session *)x->work)->session;

    if (session && !session->is_closing)
        hutch_session_api_end(x, session); /* its on_end ends the exchange */
}

static void on_free(struct exchange *x)
{
    struct held_session *held = x->work;

    if (held && held->session)
        held->session->holder = NULL;
}

void hutch_session_stream_begin(struct exchange *x, struct gateway_session *session, enum events_format format,
                                struct text_buffer *json)
{
    struct held_session *held = calloc(1, sizeof(*held));

    if (!held || json->is_broken) {
        free(held);
        hutch_text_done(json);
        hutch_session_api_end(x, session);
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the session");
        return;
    }
    held->session = session;
    session->holder = x;
    x->work = held;
    x->on_free = on_free;
    hutch_exchange_wait(x, on_gone);
    hutch_events_begin(&held->stream, x, format);
    if (!hutch_events_send(&held->stream, x, "session", json->data, json->len))
        hutch_session_api_end(x, session);
    hutch_text_done(json);
}

void hutch_session_stream_end(struct gateway_session *session, const char *why, const char *directory)
{
    struct exchange *x = session->holder;
    struct text_buffer t = TEXT_BUFFER_INIT;
    struct held_session *held;
    bool is_whole;

    if (!x)
        return;
    held = x->work;
    session->holder = NULL;
    held->session = NULL;
    hutch_text_add_string(&t, "{\"why\":");
    hutch_json_quote(&t, why, strlen(why));
    hutch_text_add_string(&t, ",\"directory\":");
    if (directory)
        hutch_json_quote(&t, directory, strlen(directory));
    else
        hutch_text_add_string(&t, "null");
    hutch_text_add_string(&t, "}");
    is_whole = !t.is_broken && hutch_events_send(&held->stream, x, "end", t.data, t.len);
    hutch_text_done(&t);
    hutch_exchange_end(x, is_whole);
}

void hutch_session_streams_release(struct server *s)
{
    struct gateway_session *session, *next;

    for (session = LIST_FIRST(&s->sessions.list); session; session = next) {
        next = LIST_NEXT(session, in_list);
        if (session->holder && !session->is_closing && session->n_waiting == 0)
            hutch_session_api_end(session->holder, session);
    }
}
