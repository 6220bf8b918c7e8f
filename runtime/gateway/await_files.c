#include "runtime/gateway/await_files.h"

#include "runtime/gateway/exchange.h"
#include "runtime/gateway/sessions.h"
#include "runtime/hutch.h"

#include <stdlib.h>

struct files_wait {
    struct gateway_session *session; /* it ends after the reply */
    void (*go)(struct exchange *x, struct gateway_session *session);
    struct text_buffer body; /* the exchange's, which would be gone by then */
    bool is_left;            /* nobody wants it any more */
};

static void on_free(struct exchange *x)
{
    struct files_wait *wait = x->work;

    hutch_text_done(&wait->body);
}

/* The body is not kept until the reply. */
static void on_gone(struct exchange *x)
{
    struct files_wait *wait = x->work;

    wait->is_left = true;
    hutch_exchange_let_go(x, wait->body.len);
    hutch_text_done(&wait->body);
}

static void on_reply(void *user, uint64_t number, const struct hutch_reply *reply)
{
    struct exchange *x = user;
    struct files_wait *wait = x->work;
    struct gateway_session *session = wait->session;

    (void)number;
    hutch_gateway_sessions_end(session);
    if (wait->is_left) { /* and the query is gone with the client */
        hutch_exchange_refuse(x, GATEWAY_SHUTTING_DOWN, "the server is shutting down");
        return;
    }
    if (!reply->ok) {
        hutch_exchange_refuse(x, GATEWAY_CONFLICT, "the session has no files: %s", reply->message);
        return;
    }
    session->has_files = true;
    x->body = wait->body;
    wait->body = (struct text_buffer)TEXT_BUFFER_INIT;
    wait->go(x, session);
}

void hutch_await_files(struct exchange *x, struct gateway_session *session,
                       void (*go)(struct exchange *x, struct gateway_session *session))
{
    struct files_wait *wait;
    struct hutch_error error;

    if (session->has_files) {
        go(x, session);
        return;
    }
    wait = calloc(1, sizeof(*wait));
    if (!wait) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the request");
        return;
    }
    *wait = (struct files_wait){ .session = session, .go = go, .body = x->body };
    x->body = (struct text_buffer)TEXT_BUFFER_INIT;
    x->work = wait;
    x->on_free = on_free;
    if (hutch_session_await_files(hutch_exchange_engine(x), session->number, on_reply, x, &error) < 0) {
        hutch_exchange_refuse_error(x, &error, GATEWAY_QUEUE_FULL, GATEWAY_NOT_FOUND);
        return;
    }
    hutch_gateway_sessions_begin(session);
    hutch_exchange_wait(x, on_gone);
}
