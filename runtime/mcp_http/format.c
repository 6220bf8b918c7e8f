#include "runtime/mcp_http/format.h"

#include "runtime/gateway/events.h"
#include "runtime/gateway/exchange.h"
#include "runtime/gateway/host.h"
#include "runtime/gateway/place.h"
#include "runtime/mcp/face.h"
#include "runtime/mcp/rpc.h"
#include "runtime/mcp/server.h"
#include "runtime/mcp_http/client.h"
#include "runtime/mcp_http/post.h"
#include "runtime/mcp_http/reply.h"
#include "sandbox/fd.h"

#include <stdio.h>
#include <string.h>

#define SESSION_HEADER "Mcp-Session-Id"
#define VERSION_HEADER "MCP-Protocol-Version"

/* ---- what is common ---- */

/* The whole message, or none: false when it was refused. */
static bool read_post(struct exchange *x, struct mcp_post *ret)
{
    struct mcp_headers headers = { .version = hutch_exchange_header(x, VERSION_HEADER),
                                   .method = hutch_exchange_header(x, "Mcp-Method"),
                                   .name = hutch_exchange_header(x, "Mcp-Name") };
    struct hutch_err err = { 0 };
    int code;

    if (!hutch_server_engine(x->server)) {
        hutch_exchange_refuse(x, GATEWAY_ENGINE_FAILED, "the engine can run nothing any more");
        return false;
    }
    if (x->body.len > RPC_MAX_BYTES) {
        hutch_exchange_refuse(x, GATEWAY_BODY_TOO_LARGE, "a message has at most %u bytes", RPC_MAX_BYTES);
        return false;
    }
    code = hutch_mcp_post_read(x->body.data ? x->body.data : "", x->body.len, &headers, ret, &err);
    if (code == 0)
        return true;
    hutch_reply_refuse(x, 400, &ret->message.id, code, err.msg);
    return false;
}

/* ---- streamable HTTP ---- */

struct accepted {
    bool json, stream;
};

static bool read_accept(struct exchange *x, struct accepted *ret)
{
    const char *accept = hutch_exchange_header(x, "Accept");

    ret->stream = accept && hutch_events_accepts(accept, "text/event-stream");
    ret->json = !accept || hutch_events_accepts(accept, "application/json") ||
                hutch_events_accepts(accept, "application/*") || hutch_events_accepts(accept, "*/*");
    if (ret->json || ret->stream)
        return true;
    hutch_reply_refuse(x, 406, NULL, RPC_INVALID_REQUEST,
                       "the header Accept has to have application/json and text/event-stream");
    return false;
}

/* The client that the message is of, which "initialize" makes. NULL: it was refused. */
static struct http_client *find_client(struct exchange *x, const struct mcp_post *post)
{
    struct http_clients *all = hutch_server_state(x);
    const char *id = hutch_exchange_header(x, SESSION_HEADER);
    struct http_client *client;

    if (!id && !post->is_opening) {
        hutch_reply_refuse(x, 400, &post->message.id, RPC_INVALID_REQUEST,
                           "there is no header " SESSION_HEADER ", which the answer to 'initialize' has, and '_meta' "
                           "does not say which version of the protocol this is");
        return NULL;
    }
    if (!id)
        return hutch_client_create(all, x, CLIENT_NAMED, &hutch_mcp_usual_face);
    client = hutch_client_find(all, x, CLIENT_NAMED, id);
    if (!client)
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "there is no such session");
    return client;
}

static void receive(struct exchange *x, struct http_client *client, const struct mcp_post *post,
                    const struct accepted *accepted)
{
    size_t n = hutch_mcp_server_count(client->server, post->value);
    struct reply *r = hutch_reply_begin(x, client, n > 0 ? n : 1);

    hutch_client_use(client);
    if (!r)
        return;
    r->takes_json = accepted->json;
    r->takes_stream = accepted->stream;
    r->is_modern = post->is_modern;
    r->is_array = n > 0;
    hutch_client_receive(client, x, r);
    hutch_reply_begun(r);
}

static void handle_post(struct exchange *x)
{
    struct accepted accepted;
    struct http_client *client;
    struct mcp_post post;
    bool is_new;

    if (!read_accept(x, &accepted) || !read_post(x, &post))
        return;
    if (post.is_modern && post.message.kind != RPC_REQUEST) {
        hutch_reply_empty(x, 202); /* whoever wants to cancel leaves */
        return;
    }
    client = post.is_modern ? hutch_client_create(hutch_server_state(x), x, CLIENT_SINGLE, &hutch_mcp_usual_face)
                            : find_client(x, &post);
    if (!client)
        return;
    is_new = client->kind == CLIENT_NAMED && !hutch_mcp_server_version(client->server);
    receive(x, client, &post, &accepted);
    if (is_new && hutch_mcp_server_version(client->server))
        hutch_exchange_add_header(x, SESSION_HEADER, client->id);
    else if (is_new)
        hutch_client_close(client);
}

static void handle_delete(struct exchange *x)
{
    const char *id = hutch_exchange_header(x, SESSION_HEADER), *version = hutch_exchange_header(x, VERSION_HEADER);
    struct http_client *client = id ? hutch_client_find(hutch_server_state(x), x, CLIENT_NAMED, id) : NULL;

    if (version && strcmp(version, MCP_MODERN_VERSION) == 0) {
        hutch_exchange_refuse(x, GATEWAY_METHOD_NOT_ALLOWED, "this version of the protocol has no sessions");
        hutch_exchange_add_header(x, "Allow", "POST");
    } else if (!id) {
        hutch_reply_refuse(x, 400, NULL, RPC_INVALID_REQUEST, "there is no header " SESSION_HEADER);
    } else if (!client) {
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "there is no such session");
    } else {
        hutch_client_close(client);
        hutch_reply_empty(x, 204);
    }
}

/* ---- HTTP+SSE: messages come by posts, and all answers by one stream ---- */

/* @messages: the path that the client posts to. */
static void open_stream(struct exchange *x, const struct mcp_face *face, const char *messages)
{
    struct http_clients *all = hutch_server_state(x);
    struct http_client *client;
    char path[FORMAT_PREFIX_MAX + 100];
    int len;

    if (!hutch_server_engine(x->server)) {
        hutch_exchange_refuse(x, GATEWAY_ENGINE_FAILED, "the engine can run nothing any more");
        return;
    }
    client = hutch_client_create(all, x, CLIENT_STREAM, face);
    if (!client)
        return;
    client->stream = hutch_reply_begin(x, client, 1);
    if (!client->stream) {
        hutch_client_close(client);
        return;
    }
    len = snprintf(path, sizeof(path), "%s%s/%s", all->prefix, messages, client->id);
    hutch_reply_stream(client->stream);
    client->has_failed = !hutch_events_send(&client->stream->events, x, "endpoint", path, (size_t)len);
}

static void handle_usual_stream(struct exchange *x)
{
    open_stream(x, &hutch_mcp_usual_face, "/mcp/messages");
}

static void handle_python_stream(struct exchange *x)
{
    open_stream(x, &hutch_mcp_python_face, "/python/messages");
}

static void handle_message(struct exchange *x)
{
    struct http_client *client = hutch_client_find(hutch_server_state(x), x, CLIENT_STREAM, x->params[0]);

    if (!client) {
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "there is no such session");
        return;
    }
    hutch_client_use(client);
    if (x->body.len > RPC_MAX_BYTES)
        hutch_mcp_server_refuse_long(client->server, NULL);
    else
        hutch_client_receive(client, x, NULL);
    hutch_reply_empty(x, 202);
}

/* ---- the format ---- */

/* What the gateway refuses, as clients of the protocol read it. */
static char *write_error(enum gateway_error error, const char *message, unsigned *status, size_t *ret_len)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    (void)error;
    hutch_rpc_write_error(&t, JSON_VIEW_NONE, *status < 500 ? RPC_INVALID_REQUEST : RPC_INTERNAL_ERROR, message, NULL);
    return hutch_text_take(&t, ret_len);
}

static const struct route routes[] = {
    { "POST", "/mcp", ROUTE_JSON, false, handle_post, NULL, NULL },
    { "DELETE", "/mcp", ROUTE_NO_BODY, false, handle_delete, NULL, NULL },
    { "GET", "/mcp/sse", ROUTE_NO_BODY, false, handle_usual_stream, NULL, NULL },
    { "POST", "/mcp/messages/{id}", ROUTE_JSON, false, handle_message, NULL, NULL },
    { "GET", "/python/sse", ROUTE_NO_BODY, false, handle_python_stream, NULL, NULL },
    { "POST", "/python/messages/{id}", ROUTE_JSON, false, handle_message, NULL, NULL },
};

static void place_by_given(const struct exchange *x, struct placement *ret)
{
    char given[ID_LEN + 1];
    struct hutch_err ignored;

    if (hutch_exchange_given_id(x, given, &ignored) > 0)
        hutch_placement_name(ret, given);
}

/* There may be blanks around it. */
static bool says_modern(const struct exchange *x)
{
    const char *version = hutch_exchange_header(x, VERSION_HEADER);

    return version && strstr(version, MCP_MODERN_VERSION);
}

/* In the newer era the body says it, and no header does. */
static void place(const struct exchange *x, struct placement *ret)
{
    const char *id = x->params[0] ? x->params[0] : hutch_exchange_header(x, SESSION_HEADER);

    if (!x->params[0] && says_modern(x))
        return;
    if (id)
        hutch_placement_name(ret, id);
    else
        place_by_given(x, ret);
}

/* A call of the newer era has the handle of its session among its arguments. */
static void place_body(const struct exchange *x, struct placement *ret)
{
    struct json_view body, handle;
    auto_free char *text = NULL;
    struct hutch_err ignored;
    size_t len = 0;

    if (x->body.len == 0 || x->body.len > RPC_MAX_BYTES ||
        hutch_json_view_check("request", 1, 1, x->body.data, x->body.len, &body, &ignored) < 0 ||
        !hutch_json_view_is_object(body))
        return;
    handle = hutch_json_view_get(body, "params");
    handle = hutch_json_view_is_object(handle) ? hutch_json_view_get(handle, "arguments") : JSON_VIEW_NONE;
    handle = hutch_json_view_is_object(handle) ? hutch_json_view_get(handle, "session_id") : JSON_VIEW_NONE;
    if (hutch_json_view_is_string(handle) && hutch_json_view_text(handle, &text, &len, &ignored) == 0 &&
        len == ID_LEN && hutch_id_is(text))
        hutch_placement_name(ret, text);
    else if (says_modern(x))
        place_by_given(x, ret);
}

static const struct format_state state = {
    .open = hutch_clients_open, .deadline = hutch_clients_deadline, .tick = hutch_clients_tick,
    .close = hutch_clients_close,
};

const struct format hutch_mcp_format = {
    .name = "mcp", .routes = routes, .n_routes = ARRAY_SIZE(routes), .error_body = write_error, .state = &state,
    .place = place,
    .place_body = place_body,
};
