#include "runtime/mcp/call.h"

#include "runtime/hutch.h"
#include "runtime/mcp/rpc.h"
#include "runtime/mcp/server_priv.h"
#include "runtime/mcp/session.h"
#include "runtime/mcp/tool.h"
#include "sandbox/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAME 128 /* of a tool */

/* --- the end ---------------------------------------------------------------------------------------------------- */

void hutch_mcp_call_free(struct mcp_call *call)
{
    LIST_REMOVE(call, in_server);
    call->server->n_calls--;
    hutch_mcp_progress_done(&call->progress);
    hutch_mcp_arguments_done(&call->arguments);
    free(call->id);
    free(call);
}

static struct json_view id_of(const struct mcp_call *call)
{
    return (struct json_view){ call->id, strlen(call->id) };
}

static void send_progress(struct mcp_call *call, double now_ms)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_mcp_progress_write(&call->progress, &t, now_ms);
    hutch_mcp_server_send(call->server, call->exchange, MCP_NOTIFICATION, &t);
}

/* Its session goes on with the next one. */
static void end_call(struct mcp_call *call)
{
    struct mcp_server *server = call->server;
    struct mcp_session *session = call->session;
    void *exchange = call->exchange;
    bool was_told = call->is_cancelled;

    if (session)
        hutch_mcp_session_leave(session, call);
    hutch_mcp_call_free(call);
    if (!was_told)
        server->transport->end(server->owner, exchange);
    if (session)
        hutch_mcp_session_turn(session);
}

static void send_result(struct mcp_server *server, void *exchange, struct json_view id, bool is_modern,
                        const struct mcp_result *result)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_rpc_begin_result(&t, id);
    hutch_text_add_string(&t, is_modern ? "{\"resultType\":\"complete\"," : "{");
    hutch_mcp_result_write(result, &t);
    hutch_text_add_string(&t, "}}");
    hutch_mcp_server_send(server, exchange, MCP_RESULT, &t);
}

void hutch_mcp_call_answer(struct mcp_call *call, struct mcp_result *result)
{
    struct mcp_session *session = call->session;
    char text[400];

    if (!call->is_cancelled) {
        if (session && session->id && hutch_mcp_session_tell_loss(session, text, sizeof(text)))
            hutch_mcp_add_string(result, text);
        if (session && session->id && hutch_mcp_session_tell_handle(session, text, sizeof(text)))
            hutch_mcp_add_string(result, text);
        send_result(call->server, call->exchange, id_of(call), call->is_modern, result);
    }
    hutch_mcp_result_done(result);
    end_call(call);
}

static HUTCH_PRINTF(3, 0) void set_failure(struct mcp_result *result, const char *name, const char *fmt, va_list ap)
{
    char text[1024];
    int n = snprintf(text, sizeof(text), "%s: ", name);

    vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
    hutch_mcp_add_string(result, text);
    result->is_error = true;
}

void hutch_mcp_call_fail(struct mcp_call *call, const char *fmt, ...)
{
    struct mcp_result result = MCP_RESULT_INIT;
    va_list ap;

    va_start(ap, fmt);
    set_failure(&result, call->tool->name, fmt, ap);
    va_end(ap);
    hutch_mcp_call_answer(call, &result);
}

/* --- the begin -------------------------------------------------------------------------------------------------- */

/* A call that cannot begin: what it wants is wrong, so the model is told. */
static HUTCH_PRINTF(5, 6) void refuse(struct mcp_server *server, void *exchange, const struct rpc_message *message,
                                      bool is_modern, const char *fmt, ...)
{
    struct mcp_result result = MCP_RESULT_INIT;
    char name[MAX_NAME + 1] = "call";
    va_list ap;

    hutch_rpc_text(hutch_rpc_get(message->params, "name"), name, sizeof(name));
    va_start(ap, fmt);
    set_failure(&result, name, fmt, ap);
    va_end(ap);
    send_result(server, exchange, message->id, is_modern, &result);
    hutch_mcp_result_done(&result);
    server->transport->end(server->owner, exchange);
}

/* A request that is not one of the protocol. */
static void refuse_params(struct mcp_server *server, void *exchange, const struct rpc_message *message,
                          const char *why)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_rpc_write_error(&t, message->id, RPC_INVALID_PARAMS, why, NULL);
    hutch_mcp_server_send(server, exchange, RPC_INVALID_PARAMS, &t);
    server->transport->end(server->owner, exchange);
}

static struct mcp_call *make_call(struct mcp_server *server, void *exchange, const struct rpc_message *message,
                                  struct json_view token)
{
    struct mcp_call *call = calloc(1, sizeof(*call));

    if (!call)
        return NULL;
    call->server = server;
    call->exchange = exchange;
    call->id = strndup(message->id.text, message->id.len);
    call->progress = (struct mcp_progress)MCP_PROGRESS_INIT;
    call->progress.sent_ms = hutch_clock_ms();
    call->progress.token = token.text ? strndup(token.text, token.len) : NULL;
    LIST_INSERT_HEAD(&server->calls, call, in_server);
    server->n_calls++;
    if (call->id && (call->progress.token || !token.text))
        return call;
    hutch_mcp_call_free(call);
    return NULL;
}

static bool has_call(const struct mcp_server *server, struct json_view id)
{
    const struct mcp_call *call;

    LIST_FOREACH(call, &server->calls, in_server)
        if (hutch_rpc_is_same_id(id_of(call), id))
            return true;
    return false;
}

/* Where there is no room for another session, the one is given up that was not used for longest. */
static struct mcp_session *find_session(const struct mcp_call *call, const char *handle, struct hutch_err *err)
{
    struct mcp_sessions *all = call->server->sessions;
    struct hutch_engine *engine;

    if (hutch_mcp_sessions_needs_room(all, handle)) {
        engine = hutch_mcp_call_engine(call, err);
        if (!engine)
            return NULL;
        hutch_mcp_sessions_make_room(all, engine);
    }
    return hutch_mcp_sessions_find(all, handle, err);
}

void hutch_mcp_call_begin(struct mcp_server *server, void *exchange, const struct rpc_message *message,
                          bool is_modern)
{
    struct json_view arguments = hutch_rpc_get(message->params, "arguments"),
                     token = hutch_rpc_get(hutch_rpc_get(message->params, "_meta"), "progressToken");
    char name[MAX_NAME + 1], text[MAX_NAME + 80];
    const struct mcp_tool *tool;
    struct mcp_session *session = NULL;
    struct hutch_err err = { 0 };
    struct mcp_call *call;

    if (!hutch_rpc_text(hutch_rpc_get(message->params, "name"), name, sizeof(name))) {
        refuse_params(server, exchange, message, "'name' has to be the name of a tool");
        return;
    }
    tool = hutch_mcp_tool_find(server->face, name);
    if (!tool) {
        snprintf(text, sizeof(text), "there is no tool '%s' (tools/list has those that are)", name);
        refuse_params(server, exchange, message, text);
        return;
    }
    if (arguments.text && !hutch_json_view_is_object(arguments)) {
        refuse_params(server, exchange, message, "'arguments' has to be an object");
        return;
    }
    if (token.text && !hutch_rpc_is_id(token)) {
        refuse_params(server, exchange, message, "'progressToken' has to be a string or a whole number");
        return;
    }
    if (has_call(server, message->id)) {
        refuse_params(server, exchange, message, "a request with this id is under way");
        return;
    }
    if (server->n_calls >= MCP_MAX_CALLS) {
        refuse(server, exchange, message, is_modern, "%u calls are under way, which is the most that may",
               server->n_calls);
        return;
    }
    call = make_call(server, exchange, message, token);
    if (!call) {
        server->transport->fail(server->owner);
        return;
    }
    call->tool = tool;
    call->is_modern = is_modern;
    if (hutch_mcp_arguments_read(arguments, tool->arguments, tool->n_arguments, &call->arguments, &err) == 0)
        session = find_session(call, call->arguments.values[tool->session_at].text, &err);
    call->session = session;
    if (!session)
        hutch_mcp_call_fail(call, "%s", err.msg);
    else
        hutch_mcp_session_enter(session, call);
}

struct hutch_engine *hutch_mcp_call_engine(const struct mcp_call *call, struct hutch_err *err)
{
    return call->server->transport->engine(call->server->owner, err);
}

/* --- while it goes on ------------------------------------------------------------------------------------------- */

void hutch_mcp_call_output(struct mcp_call *call, int stream, const char *data, size_t len)
{
    if (call->is_cancelled)
        return;
    hutch_mcp_progress_add(&call->progress, stream, data, len, hutch_clock_ms());
}

/* Code that has begun is interrupted, and what goes on then loses its interpreter. */
static void stop(struct mcp_call *call, double now_ms)
{
    struct hutch_err err;
    struct hutch_engine *engine = hutch_mcp_call_engine(call, &err);

    call->stop_ms = 0;
    if (!engine || !call->session->id)
        return; /* its end is on its way */
    if (call->end_ms > 0 && now_ms >= call->end_ms) {
        hutch_mcp_session_restart(call->session, engine);
        return;
    }
    if (hutch_session_interrupt(engine, call->session->id) != 1) {
        call->stop_ms = now_ms + MCP_RETRY_MS;
        return;
    }
    if (call->end_ms == 0)
        call->end_ms = now_ms + MCP_INTERRUPT_MS;
    call->stop_ms = now_ms + MCP_AGAIN_MS < call->end_ms ? now_ms + MCP_AGAIN_MS : call->end_ms;
}

void hutch_mcp_call_cancel(struct mcp_call *call)
{
    if (call->is_cancelled)
        return;
    call->is_cancelled = true;
    call->server->transport->end(call->server->owner, call->exchange);
    if (call->is_waiting)
        end_call(call);
    else
        stop(call, hutch_clock_ms());
}

double hutch_mcp_call_deadline(const struct mcp_call *call)
{
    if (call->is_cancelled)
        return call->stop_ms > 0 ? call->stop_ms : -1;
    return hutch_mcp_progress_deadline(&call->progress);
}

void hutch_mcp_call_tick(struct mcp_call *call, double now_ms)
{
    double due = hutch_mcp_call_deadline(call);

    if (due < 0 || now_ms < due)
        return;
    if (call->is_cancelled)
        stop(call, now_ms);
    else if (call->server->transport->is_behind(call->server->owner))
        hutch_mcp_progress_drop(&call->progress, now_ms);
    else
        send_progress(call, now_ms);
}
