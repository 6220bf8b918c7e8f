#include "runtime/gateway/call_api.h"

#include "runtime/gateway/call_request.h"
#include "runtime/gateway/server_priv.h"
#include "runtime/gateway/session_api.h"
#include "runtime/gateway/session_request.h"
#include "runtime/text/quantity.h"
#include "sandbox/fd.h"

#include <string.h>

void hutch_call_api_answer(struct exchange *x)
{
    const struct gateway_session *session = hutch_session_api_find(x);
    struct call_request request;
    struct hutch_error error;
    struct hutch_err err;
    auto_free char *json = NULL;
    uint64_t call;

    if (!session)
        return;
    if (hutch_parse_u64(x->params[1], &call, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "there is no such call");
        return;
    }
    if (hutch_call_request_parse(x->body.data, x->body.len, &request, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
        return;
    }
    json = strndup(request.value.text, request.value.len);
    if (!json)
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the answer to the call");
    else if (hutch_session_answer(x->server->engine, session->number, call, json, request.is_error, &error) < 0)
        hutch_exchange_refuse_error(x, &error, GATEWAY_QUEUE_FULL, GATEWAY_NOT_FOUND);
    else
        hutch_exchange_answer(x, 204, NULL, strdup(""), 0);
}

void hutch_call_api_input(struct exchange *x)
{
    const struct gateway_session *session = hutch_session_api_find(x);
    struct input_reply reply;
    struct hutch_err err;

    if (!session)
        return;
    if (hutch_input_reply_parse(x->body.data, x->body.len, &reply, &err) < 0)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else if (!hutch_session_reply(x->server->engine, session->number, reply.text))
        hutch_exchange_refuse(x, GATEWAY_CONFLICT, "no cell of the session waits for input");
    else
        hutch_exchange_answer(x, 204, NULL, strdup(""), 0);
    hutch_input_reply_done(&reply);
}
