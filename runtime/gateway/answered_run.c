#include "runtime/gateway/answered_run.h"

#include "runtime/gateway/events.h"
#include "runtime/gateway/run_result.h"
#include "runtime/gateway/server_priv.h"
#include "runtime/gateway/submit.h"

#include <stdlib.h>
#include <string.h>

/* What an exchange has besides while its run is the engine's. */
struct answered_run {
    struct submitted submitted; /* first */
    struct events stream;
};

static void on_output(void *user, uint64_t id, int which, const char *data, size_t len)
{
    struct exchange *x = user;
    struct answered_run *run = x->work;

    /* A client that reads nothing ends its own run, and holds nobody else's. */
    if (!run->stream.is_behind && !hutch_events_output(&run->stream, x, which, data, len)) {
        run->stream.is_behind = true;
        hutch_engine_cancel(x->server->engine, id);
    }
}

static void on_result(void *user, uint64_t id, const struct hutch_result *result)
{
    struct exchange *x = user;
    struct server *server = x->server;
    struct answered_run *run = x->work;
    char *json = hutch_run_result_json(result);

    (void)id;
    hutch_submit_conclude(x, result);
    if (run->stream.format == EVENTS_NONE) {
        hutch_exchange_answer(x, 200, "application/json", json, json ? strlen(json) : 0);
    } else {
        hutch_events_end(&run->stream, x, json);
        free(json);
    }
    hutch_server_send(server);
}

void hutch_answered_run_submit(struct exchange *x, struct hutch_request *request)
{
    enum events_format format = hutch_events_asked(x);
    struct answered_run *run = calloc(1, sizeof(*run));

    x->work = run;
    if (!run) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the run");
        return;
    }
    request->on_result = on_result;
    request->on_output = format == EVENTS_NONE ? NULL : on_output;
    if (hutch_submit_run(x, request) && format != EVENTS_NONE)
        hutch_events_begin(&run->stream, x, format);
}
