#include "runtime/gateway/submit.h"

#include "runtime/gateway/server_priv.h"

static void on_gone(struct exchange *x)
{
    const struct submitted *run = x->work;

    hutch_engine_cancel(x->server->engine, run->id);
}

bool hutch_submit_is_allowed(struct exchange *x)
{
    if (x->server->has_failed)
        hutch_exchange_refuse(x, GATEWAY_ENGINE_FAILED, "the engine can run nothing any more");
    else if (x->token && x->token->n_runs >= hutch_server_share(x->server))
        hutch_exchange_refuse(x, GATEWAY_QUEUE_FULL, "this token has %u runs that are not over, which is its share",
                              x->token->n_runs);
    else
        return true;
    return false;
}

int hutch_submit_for(struct exchange *x, struct hutch_request *request, uint64_t *ret_id, struct hutch_error *err)
{
    request->policy = hutch_exchange_policy(x, NULL);
    if (x->server->tokens.n > 1) /* with one there is nobody to leave room for */
        request->tenant = hutch_token_tenant(x->token);
    request->weight = x->token ? x->token->weight : 1;
    return hutch_engine_submit(x->server->engine, request, ret_id, err);
}

bool hutch_submit_run(struct exchange *x, struct hutch_request *request)
{
    struct submitted *run = x->work;
    struct hutch_error err;

    request->user = x;
    if (hutch_submit_for(x, request, &run->id, &err) < 0) {
        hutch_exchange_refuse_error(x, &err, GATEWAY_QUEUE_FULL, GATEWAY_INVALID_REQUEST);
        return false;
    }
    run->token = x->token;
    if (run->token)
        run->token->n_runs++;
    hutch_exchange_wait(x, on_gone);
    return true;
}

void hutch_submit_conclude(struct exchange *x, const struct hutch_result *result)
{
    struct submitted *run = x->work;

    hutch_server_count_run(x->server, x->format->name, result);
    if (run->token)
        run->token->n_runs--;
}
