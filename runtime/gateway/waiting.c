#include "runtime/gateway/waiting.h"

#include "runtime/gateway/exchange.h"
#include "runtime/gateway/sessions.h"

#include <stdlib.h>

struct waiting *hutch_waiting_create(struct exchange *x, struct gateway_session *session)
{
    struct waiting *waiting = calloc(1, sizeof(*waiting));

    x->work = waiting;
    if (waiting)
        waiting->session = session;
    else
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the request");
    return waiting;
}

void hutch_waiting_begin(struct exchange *x, void (*on_gone)(struct exchange *x))
{
    struct waiting *waiting = x->work;

    hutch_gateway_sessions_begin(waiting->session);
    hutch_exchange_wait(x, on_gone);
}

void hutch_waiting_end(struct exchange *x)
{
    hutch_gateway_sessions_end(((struct waiting *)x->work)->session);
}

void hutch_waiting_refuse(struct exchange *x, const struct hutch_error *error)
{
    hutch_waiting_end(x);
    hutch_exchange_refuse_error(x, error, GATEWAY_QUEUE_FULL, GATEWAY_NOT_FOUND);
}
