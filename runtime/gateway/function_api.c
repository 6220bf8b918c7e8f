#include "runtime/gateway/function_api.h"

#include "runtime/gateway/answered_run.h"
#include "runtime/gateway/function_request.h"
#include "runtime/gateway/functions.h"
#include "runtime/gateway/keyed_run.h"
#include "runtime/gateway/server_priv.h"
#include "runtime/gateway/submit.h"
#include "runtime/text/json_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_EVENT (4u << 20) /* hutch.h */

/* ---- the list ---- */

/* Of those without a version that can be called it is what became of the only one. */
static const char *state_of(const struct gateway_function *f, const struct hutch_function_info *info)
{
    return info->is_ready ? "ready" : f->is_pending ? "starting" : "failed";
}

static void add_function(struct text_buffer *t, const struct gateway_function *f)
{
    struct hutch_function_info info = { .size = sizeof(info) };
    const char *why;

    if (hutch_engine_get_function(f->functions->engine, f->name, &info, NULL) < 0)
        info = (struct hutch_function_info){ .size = sizeof(info) };
    why = info.why[0] ? info.why : f->why.msg;
    hutch_text_add_string(t, "{\"name\":");
    hutch_json_quote(t, f->name, strlen(f->name));
    hutch_text_addf(t, ",\"state\":\"%s\",\"error\":", state_of(f, &info));
    if (why[0])
        hutch_json_quote(t, why, strlen(why));
    else
        hutch_text_add_string(t, "null");
    hutch_text_addf(t, ",\"prepared\":%u,\"building\":%u,\"calls\":%u", info.prepared, info.building, info.calls);
    hutch_text_addf(t, ",\"from_pool\":%" PRIu64 ",\"on_demand\":%" PRIu64 "}", info.from_pool, info.on_demand);
}

static int compare(const void *a, const void *b)
{
    const struct gateway_function *const *one = a, *const *other = b;

    return strcmp((*one)->name, (*other)->name);
}

void hutch_function_api_list(struct exchange *x)
{
    const struct gateway_function *sorted[2 * FUNCTIONS_MAX];
    const struct gateway_functions *fs = &x->server->functions;
    struct text_buffer t = TEXT_BUFFER_INIT;
    size_t n = 0, len = 0;
    char *text;

    for (size_t i = 0; i < fs->n; i++)
        if (!fs->rows[i]->is_dropped)
            sorted[n++] = fs->rows[i];
    qsort(sorted, n, sizeof(sorted[0]), compare);
    hutch_text_add_string(&t, "{\"functions\":[");
    for (size_t i = 0; i < n; i++) {
        hutch_text_add_string(&t, i ? "," : "");
        add_function(&t, sorted[i]);
    }
    hutch_text_add_string(&t, "]}\n");
    text = hutch_text_take(&t, &len);
    hutch_exchange_answer(x, 200, "application/json", text, len);
}

/* ---- a call ---- */

/* Refuses @x where it cannot be called now. */
static bool is_callable(struct exchange *x, const char *name)
{
    const struct gateway_function *f = hutch_gateway_functions_find(&x->server->functions, name);
    struct hutch_function_info info = { .size = sizeof(info) };

    if (!f) {
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "there is no function of this name");
        return false;
    }
    if (hutch_engine_get_function(x->server->engine, name, &info, NULL) == 0 && info.is_ready)
        return true;
    if (f->is_pending)
        hutch_exchange_refuse(x, GATEWAY_FUNCTION_STARTING, "the function '%s' is being imported", name);
    else
        hutch_exchange_refuse(x, GATEWAY_FUNCTION_FAILED, "%s", info.why[0] ? info.why : f->why.msg);
    return false;
}

static void set_limits(const struct hutch_limits *limits, struct hutch_request *request)
{
    request->wall_ms = limits->wall_ms;
    request->cpu_ms = limits->cpu_ms;
    request->memory_bytes = limits->memory_bytes;
    request->pids = limits->pids;
    request->cpus = limits->cpus;
    request->output_bytes = limits->output_bytes;
    request->data_bytes = limits->data_bytes;
    request->data_files = limits->data_files;
    request->file_bytes = limits->file_bytes;
}

/* What is asked for with a key: of which function, and whether the body is an event or a call. */
struct keyed {
    const char *key; /* NULL: it has none */
    char what[256];  /* a name that is cut in it is nobody's */
};

static void submit(struct exchange *x, const char *name, const struct function_request *call, const struct keyed *keyed)
{
    struct hutch_request request;

    hutch_request_init(&request);
    request.function = name;
    request.event = call->event.text;
    request.event_len = call->event.len;
    request.env = (const char *const *)call->env;
    set_limits(&call->limits, &request);
    if (keyed->key)
        hutch_keyed_run_submit(x, &request, keyed->key, keyed->what);
    else
        hutch_answered_run_submit(x, &request);
}

static bool is_call(const struct exchange *x)
{
    const char *type = hutch_exchange_header(x, "Content-Type");
    size_t len = strlen(FUNCTION_CALL_TYPE);

    return type && strncasecmp(type, FUNCTION_CALL_TYPE, len) == 0 && (!type[len] || strchr("; \t", type[len]));
}

void hutch_function_api_call(struct exchange *x)
{
    struct keyed keyed = { .key = hutch_keyed_run_key(x) };
    const char *name = x->params[0];
    struct function_request call;
    struct hutch_err err;

    snprintf(keyed.what, sizeof(keyed.what), "%s/%s", is_call(x) ? "call" : "function", name);
    if (x->status || (keyed.key && hutch_keyed_run_join(x, keyed.key, keyed.what)) || !is_callable(x, name))
        return;
    if (hutch_function_request_parse(x->body.data, x->body.len, is_call(x), &call, &err) < 0)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else if (call.event.len > MAX_EVENT)
        hutch_exchange_refuse(x, GATEWAY_BODY_TOO_LARGE, "the event has %zu bytes, and can have %u", call.event.len,
                              MAX_EVENT);
    else if (hutch_submit_is_allowed(x))
        submit(x, name, &call, &keyed);
    hutch_function_request_done(&call);
}
