#include "runtime/mcp/server.h"

#include "runtime/mcp/rpc.h"
#include "runtime/mcp/server_priv.h"
#include "runtime/mcp/tool.h"
#include "runtime/text/json_write.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODERN_VERSION MCP_MODERN_VERSION
#define BATCH_VERSION "2025-03-26" /* the one revision with arrays of messages */
#define META "io.modelcontextprotocol/"
#define LIST_TTL_MS 3600000 /* the tools are the same as long as the server runs */

/* The older revisions, the newest first: what a client is answered whose own is not known. */
static const char *const legacy_versions[] = { "2025-11-25", "2025-06-18", BATCH_VERSION, "2024-11-05" };

/* A request or notification, and where it came from. */
struct incoming {
    struct mcp_server *server;
    void *exchange;
    struct rpc_message message;
    bool is_modern;
};

/* --- answers ---------------------------------------------------------------------------------------------------- */

void hutch_mcp_server_send(struct mcp_server *server, void *exchange, int kind, struct text_buffer *t)
{
    if (t->is_broken)
        server->transport->fail(server->owner);
    else
        server->transport->send(server->owner, exchange, kind, t->data, t->len);
    hutch_text_done(t);
}

static void end(const struct incoming *in)
{
    in->server->transport->end(in->server->owner, in->exchange);
}

static void answer_error(const struct incoming *in, int code, const char *message, const char *data)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_rpc_write_error(&t, in->message.id, code, message, data);
    hutch_mcp_server_send(in->server, in->exchange, code, &t);
    end(in);
}

static struct text_buffer begin_result(const struct incoming *in)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_rpc_begin_result(&t, in->message.id);
    hutch_text_add_string(&t, in->is_modern ? "{\"resultType\":\"complete\"" : "{");
    return t;
}

/* The next member of a result that begin_result() has begun; @key with its quotes and colon. */
static void add_member(struct text_buffer *t, const char *key)
{
    hutch_text_addf(t, "%s%s", t->len == 0 || t->data[t->len - 1] == '{' ? "" : ",", key);
}

static void answer(const struct incoming *in, struct text_buffer *t)
{
    hutch_text_add_string(t, "}}");
    hutch_mcp_server_send(in->server, in->exchange, MCP_RESULT, t);
    end(in);
}

static void add_text(struct text_buffer *t, const char *text)
{
    hutch_json_quote(t, text, strlen(text));
}

static void add_server_info(struct text_buffer *t, const struct mcp_server *server)
{
    hutch_text_addf(t, "{\"name\":\"%s\",\"title\":\"%s\",\"version\":", server->face->name, server->face->title);
    add_text(t, server->version);
    hutch_text_add_string(t, "}");
}

/* That the answer may be kept. */
static void add_cache(const struct incoming *in, struct text_buffer *t)
{
    if (in->is_modern)
        hutch_text_addf(t, ",\"ttlMs\":%d,\"cacheScope\":\"public\"", LIST_TTL_MS);
}

/* --- methods ---------------------------------------------------------------------------------------------------- */

static void on_initialize(const struct incoming *in)
{
    struct mcp_server *server = in->server;
    char asked[32] = "";
    struct text_buffer t;

    if (!hutch_json_view_is_string(hutch_rpc_get(in->message.params, "protocolVersion"))) {
        answer_error(in, RPC_INVALID_PARAMS, "'protocolVersion' has to be a string", NULL);
        return;
    }
    if (server->legacy) {
        answer_error(in, RPC_INVALID_REQUEST, "'initialize' was answered before", NULL);
        return;
    }
    hutch_rpc_text(hutch_rpc_get(in->message.params, "protocolVersion"), asked, sizeof(asked));
    server->legacy = legacy_versions[0];
    for (size_t i = 0; i < ARRAY_SIZE(legacy_versions); i++)
        if (strcmp(asked, legacy_versions[i]) == 0)
            server->legacy = legacy_versions[i];
    t = begin_result(in);
    hutch_text_addf(&t, "\"protocolVersion\":\"%s\",\"capabilities\":{\"tools\":{}},\"serverInfo\":",
                    server->legacy);
    add_server_info(&t, server);
    hutch_text_add_string(&t, ",\"instructions\":");
    add_text(&t, server->face->instructions);
    answer(in, &t);
}

static void on_discover(const struct incoming *in)
{
    struct text_buffer t = begin_result(in);

    hutch_text_add_string(
        &t, ",\"supportedVersions\":[\"" MODERN_VERSION "\"],\"capabilities\":{\"tools\":{}},\"instructions\":");
    add_text(&t, in->server->face->instructions);
    add_cache(in, &t);
    hutch_text_add_string(&t, ",\"_meta\":{\"" META "serverInfo\":");
    add_server_info(&t, in->server);
    hutch_text_add_string(&t, "}");
    answer(in, &t);
}

static void on_ping(const struct incoming *in)
{
    struct text_buffer t = begin_result(in);

    answer(in, &t);
}

/* Who asks for tools is going to use them, other than a client that only tries out which era this is: so the engine is
 * opened then. What is wrong with it the first call tells, and the transport may. */
static void on_tools_list(const struct incoming *in)
{
    struct json_view cursor = hutch_rpc_get(in->message.params, "cursor");
    struct text_buffer t;
    struct hutch_err err;

    if (!hutch_json_view_is_null(cursor)) {
        answer_error(in, RPC_INVALID_PARAMS, "there is no such 'cursor': all tools are in one list", NULL);
        return;
    }
    t = begin_result(in);
    add_member(&t, "\"tools\":[");
    for (const struct mcp_tool *const *tool = in->server->face->tools; *tool; tool++) {
        hutch_text_add_string(&t, tool != in->server->face->tools ? "," : "");
        hutch_mcp_tool_write(*tool, &t);
    }
    hutch_text_add_string(&t, "]");
    add_cache(in, &t);
    answer(in, &t);
    in->server->transport->engine(in->server->owner, &err); /* it gets ready while the model thinks */
}

static void on_tools_call(const struct incoming *in)
{
    hutch_mcp_call_begin(in->server, in->exchange, &in->message, in->is_modern);
}

static void on_cancelled(const struct incoming *in)
{
    struct json_view id = hutch_rpc_get(in->message.params, "requestId");
    struct mcp_call *call, *next;

    for (call = LIST_FIRST(&in->server->calls); call; call = next) {
        next = LIST_NEXT(call, in_server);
        if (hutch_rpc_is_same_id((struct json_view){ call->id, strlen(call->id) }, id)) {
            hutch_mcp_call_cancel(call);
            return;
        }
    }
}

enum { LEGACY = 1u << 0, MODERN = 1u << 1, UNOPENED = 1u << 2 /* a legacy one that may come before "initialize" */ };

static const struct {
    const char *name;
    enum rpc_kind kind;
    unsigned eras;
    void (*handle)(const struct incoming *in);
} methods[] = {
    { "initialize", RPC_REQUEST, LEGACY | UNOPENED, on_initialize },
    { "server/discover", RPC_REQUEST, MODERN, on_discover },
    { "ping", RPC_REQUEST, LEGACY | UNOPENED, on_ping },
    { "tools/list", RPC_REQUEST, LEGACY | MODERN, on_tools_list },
    { "tools/call", RPC_REQUEST, LEGACY | MODERN, on_tools_call },
    { "notifications/cancelled", RPC_NOTIFICATION, LEGACY | MODERN, on_cancelled },
};

/* --- messages --------------------------------------------------------------------------------------------------- */

/* The version that a request of the newer era names. False: it was refused. */
static bool check_version(struct incoming *in)
{
    struct json_view meta = hutch_rpc_get(in->message.params, "_meta"),
                     version = hutch_rpc_get(meta, META "protocolVersion");
    struct text_buffer data = TEXT_BUFFER_INIT;
    char asked[64] = "";

    in->is_modern = version.text != NULL;
    if (!version.text)
        return true;
    if (!hutch_json_view_is_string(version)) {
        answer_error(in, RPC_INVALID_PARAMS, "'" META "protocolVersion' has to be a string", NULL);
        return false;
    }
    hutch_rpc_text(version, asked, sizeof(asked));
    if (strcmp(asked, MODERN_VERSION) == 0 &&
        !hutch_json_view_is_object(hutch_rpc_get(meta, META "clientCapabilities"))) {
        answer_error(in, RPC_INVALID_PARAMS, "'_meta' has to have '" META "clientCapabilities', an object", NULL);
        return false;
    }
    if (strcmp(asked, MODERN_VERSION) == 0)
        return true;
    hutch_text_add_string(&data, "{\"supported\":[\"" MODERN_VERSION "\"],\"requested\":");
    add_text(&data, asked);
    hutch_text_add_string(&data, "}");
    answer_error(in, RPC_UNSUPPORTED_VERSION, "this version of the protocol is not supported", data.data);
    hutch_text_done(&data);
    return false;
}

static void handle_request(struct incoming *in)
{
    size_t i = 0;
    unsigned era;

    if (!check_version(in))
        return;
    era = in->is_modern ? MODERN : LEGACY;
    while (i < ARRAY_SIZE(methods) &&
           (methods[i].kind != RPC_REQUEST || strcmp(methods[i].name, in->message.method) != 0))
        i++;
    if (i < ARRAY_SIZE(methods) && !in->is_modern && !in->server->legacy && !(methods[i].eras & UNOPENED))
        answer_error(in, RPC_INVALID_PARAMS,
                     "there was no 'initialize', and '_meta' does not say which version of the protocol this is", NULL);
    else if (i == ARRAY_SIZE(methods) || !(methods[i].eras & era))
        answer_error(in, RPC_METHOD_NOT_FOUND, "there is no such method", NULL);
    else
        methods[i].handle(in);
}

static void handle_notification(struct incoming *in)
{
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
        if (methods[i].kind == RPC_NOTIFICATION && strcmp(methods[i].name, in->message.method) == 0)
            methods[i].handle(in);
    end(in);
}

static void handle(struct mcp_server *server, void *exchange, struct json_view value)
{
    struct incoming in = { .server = server, .exchange = exchange };
    struct hutch_err err = { 0 };
    int code = hutch_rpc_read(value, &in.message, &err);

    if (code == 0 && in.message.kind == RPC_REQUEST)
        handle_request(&in);
    else if (code == 0 && in.message.kind == RPC_NOTIFICATION)
        handle_notification(&in);
    else if (code == 0 || (in.message.kind == RPC_NOTIFICATION && in.message.method[0] && !in.message.id.text))
        end(&in); /* an answer, or a notification that is wrong: nobody waits for a word about it */
    else
        answer_error(&in, code, err.msg, NULL);
}

static bool is_batch(const struct mcp_server *server, struct json_view value)
{
    return hutch_json_view_is_array(value) && server->legacy && strcmp(server->legacy, BATCH_VERSION) == 0;
}

static bool is_batch_length(size_t n)
{
    return n > 0 && n <= RPC_MAX_BATCH;
}

size_t hutch_mcp_server_count(const struct mcp_server *server, struct json_view value)
{
    size_t n = is_batch(server, value) ? hutch_json_view_count(value) : 0;

    return is_batch_length(n) ? n : 0;
}

void hutch_mcp_server_receive(struct mcp_server *server, void *exchange, const char *text, size_t len)
{
    struct incoming none = { .server = server, .exchange = exchange };
    struct json_view value, element;
    struct hutch_err err = { 0 };
    struct json_walk walk;

    if (hutch_rpc_check(text, len, &value, &err) < 0) {
        answer_error(&none, RPC_PARSE_ERROR, err.msg, NULL);
        return;
    }
    if (!is_batch(server, value)) {
        handle(server, exchange, value);
        return;
    }
    if (!is_batch_length(hutch_json_view_count(value))) {
        answer_error(&none, RPC_INVALID_REQUEST, "a batch has 1 to 64 messages", NULL);
        return;
    }
    walk = hutch_json_view_walk(value);
    while (hutch_json_view_next(&walk, NULL, &element))
        handle(server, exchange, element);
}

void hutch_mcp_server_refuse_long(struct mcp_server *server, void *exchange)
{
    struct incoming none = { .server = server, .exchange = exchange };
    char text[80];

    snprintf(text, sizeof(text), "a message has at most %u bytes", RPC_MAX_BYTES);
    answer_error(&none, RPC_INVALID_REQUEST, text, NULL);
}

/* --- beginning, clock and end ----------------------------------------------------------------------------------- */

struct mcp_server *hutch_mcp_server_create(const struct mcp_transport *transport, void *owner,
                                           const struct mcp_face *face, struct mcp_sessions *sessions,
                                           const char *version)
{
    struct mcp_server *server = calloc(1, sizeof(*server));

    if (!server)
        return NULL;
    server->transport = transport;
    server->owner = owner;
    server->face = face;
    server->sessions = sessions;
    server->version = version;
    LIST_INIT(&server->calls);
    return server;
}

void hutch_mcp_server_free(struct mcp_server *server)
{
    if (!server)
        return;
    while (!LIST_EMPTY(&server->calls))
        hutch_mcp_call_free(LIST_FIRST(&server->calls));
    free(server);
}

double hutch_mcp_server_deadline(const struct mcp_server *server)
{
    const struct mcp_call *call;
    double first = -1;

    LIST_FOREACH(call, &server->calls, in_server) {
        double due = hutch_mcp_call_deadline(call);

        if (due >= 0 && (first < 0 || due < first))
            first = due;
    }
    return first;
}

void hutch_mcp_server_tick(struct mcp_server *server)
{
    double now = hutch_clock_ms();
    struct mcp_call *call, *next;

    for (call = LIST_FIRST(&server->calls); call; call = next) {
        next = LIST_NEXT(call, in_server);
        hutch_mcp_call_tick(call, now);
    }
    hutch_mcp_sessions_turn(server->sessions);
}

const char *hutch_mcp_server_version(const struct mcp_server *server)
{
    return server->legacy;
}

bool hutch_mcp_is_legacy_version(const char *version)
{
    for (size_t i = 0; i < ARRAY_SIZE(legacy_versions); i++)
        if (strcmp(version, legacy_versions[i]) == 0)
            return true;
    return false;
}

unsigned hutch_mcp_server_calls(const struct mcp_server *server)
{
    return server->n_calls;
}

/* A call that is cancelled may end, and others begin and end with it. */
static struct mcp_call *find_wanted(const struct mcp_server *server, const void *exchange)
{
    struct mcp_call *call;

    LIST_FOREACH(call, &server->calls, in_server)
        if (!call->is_cancelled && (!exchange || call->exchange == exchange))
            return call;
    return NULL;
}

void hutch_mcp_server_leave(struct mcp_server *server, const void *exchange)
{
    struct mcp_call *call;

    while ((call = find_wanted(server, exchange)))
        hutch_mcp_call_cancel(call);
}

void hutch_mcp_server_lose_engine(struct mcp_server *server, const char *why)
{
    hutch_mcp_sessions_lose(server->sessions, why);
}
