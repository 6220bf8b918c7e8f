#include "runtime/gateway/access.h"

#include "runtime/gateway/function_request.h"
#include "runtime/gateway/relay.h"
#include "runtime/gateway/request_head.h"
#include "runtime/gateway/server_priv.h"
#include "runtime/gateway/ws_handshake.h"
#include "runtime/text/quantity.h"
#include "sandbox/fd.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- where from ---- */

/* @pattern "*.NAME": names of one label more. */
static bool is_below(const char *name, const char *pattern)
{
    const char *dot = strchr(name, '.');

    return pattern[0] == '*' && pattern[1] == '.' && dot && dot > name && strcasecmp(dot, pattern + 1) == 0;
}

bool hutch_access_is_host(const char *host, const char *const *allowed)
{
    size_t len = host[0] == '[' ? strcspn(host, "]") : strcspn(host, ":");
    char name[256];
    struct in6_addr address;
    const char *port;

    if (host[0] == '[') { /* [::1]:8080 */
        if (len < 2 || len > sizeof(name) || host[len] != ']')
            return false;
        memcpy(name, host + 1, len - 1);
        name[len - 1] = '\0';
        port = host + len + 1;
        return inet_pton(AF_INET6, name, &address) == 1 && (port[0] == '\0' || port[0] == ':');
    }
    if (len == 0 || len >= sizeof(name) || strchr(host + len + (host[len] != '\0'), ':'))
        return false;
    memcpy(name, host, len);
    name[len] = '\0';
    if (inet_pton(AF_INET, name, &address) == 1 || strcasecmp(name, "localhost") == 0)
        return true;
    for (; allowed && *allowed; allowed++)
        if (strcasecmp(name, *allowed) == 0 || is_below(name, *allowed))
            return true;
    return false;
}

/* The origin of a page that may ask, NULL when there is none or none was said. */
static const char *allowed_origin(const struct exchange *x)
{
    const char *origin = hutch_exchange_header(x, "Origin");

    for (const char *const *o = x->server->options->origins; origin && o && *o; o++)
        if (strcmp(*o, origin) == 0)
            return *o;
    return NULL;
}

/* "http://HOST" and "https://HOST". */
static bool is_origin_of(const char *origin, const char *host)
{
    size_t len = strncmp(origin, "https://", 8) == 0 ? 8 : strncmp(origin, "http://", 7) == 0 ? 7 : 0;

    return len && strcasecmp(origin + len, host) == 0;
}

/* Whether the request is from the page that this server has itself. A page whose name was made to lead here has the
 * origin of that name, so the name has to be one of ours, whatever the socket is. */
static bool is_own_page(const struct exchange *x)
{
    const char *host = hutch_exchange_header(x, "Host"), *origin = hutch_exchange_header(x, "Origin");
    const char *site = hutch_exchange_header(x, "Sec-Fetch-Site"); /* tells http from https, which a Host does not */

    if (site && strcmp(site, "same-origin") != 0)
        return false;
    return x->server->options->page && host && origin && is_origin_of(origin, host) &&
           hutch_access_is_host(host, x->server->options->hosts);
}

static void check_source(struct exchange *x)
{
    const char *host = hutch_exchange_header(x, "Host");

    /* A unix socket has no name that could be made to lead to it. */
    if (x->connection->is_tcp && (!host || !hutch_access_is_host(host, x->server->options->hosts)))
        hutch_exchange_refuse(x, GATEWAY_HOST_NOT_ALLOWED, "this server does not answer for the host of this request");
    else if (hutch_exchange_header(x, "Origin") && !allowed_origin(x) && !is_own_page(x))
        hutch_exchange_refuse(x, GATEWAY_ORIGIN_NOT_ALLOWED, "pages of this origin may not ask this server");
}

void hutch_access_add_headers(struct exchange *x)
{
    const char *origin = x->mhd ? allowed_origin(x) : NULL;

    if (!origin)
        return;
    MHD_add_response_header(x->response, "Access-Control-Allow-Origin", origin);
    MHD_add_response_header(x->response, "Access-Control-Expose-Headers", "Mcp-Session-Id");
    MHD_add_response_header(x->response, "Vary", "Origin");
}

/* A browser asks so before a page may send what a form could not. */
static bool answer_preflight(struct exchange *x, const char *path)
{
    char methods[128];

    if (strcmp(x->method, "OPTIONS") != 0 || !allowed_origin(x) ||
        !hutch_exchange_header(x, "Access-Control-Request-Method"))
        return false;
    hutch_formats_methods(&x->server->formats, path, methods, sizeof(methods));
    hutch_exchange_answer(x, MHD_HTTP_NO_CONTENT, NULL, strdup(""), 0);
    if (!x->response)
        return true;
    MHD_add_response_header(x->response, "Access-Control-Allow-Methods", methods);
    MHD_add_response_header(x->response, "Access-Control-Allow-Headers",
                            "Authorization, Content-Type, Accept, Idempotency-Key, "
                            "Mcp-Session-Id, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Last-Event-ID");
    MHD_add_response_header(x->response, "Access-Control-Max-Age", "600");
    return true;
}

/* ---- who, and what for ---- */

/* Of a page's WebSocket it is among the protocols. */
static struct token *find_token(const struct exchange *x)
{
    const struct ws_handshake handshake = { .protocols = hutch_exchange_header(x, "Sec-WebSocket-Protocol") };
    const char *authorization = hutch_exchange_header(x, "Authorization");
    char text[TOKEN_MAX_LEN];

    if (!authorization && hutch_ws_handshake_token(&handshake, text, sizeof(text)))
        authorization = text;
    return hutch_tokens_find(&x->server->tokens, authorization);
}

/* What is at the path of a request. */
struct finding {
    int rc; /* -1: it cannot be decoded */
    bool has_other; /* methods, and not the request's */
    struct hutch_err err;
};

/* Before all else: whatever is refused is said in the words of the request's format. */
static void find_route(struct exchange *x, const char *path, const char *method, struct finding *ret)
{
    ret->rc = hutch_formats_find(&x->server->formats, method, path, &x->format, &x->route, &ret->has_other, x->params,
                                 &ret->err);
}

static void check_route(struct exchange *x, const char *path, const struct finding *finding)
{
    char methods[128];
    const char *given = NULL;

    if (x->server->tokens.n && !(x->route && x->route->is_open)) {
        x->token = find_token(x);
        if (!x->token && x->format->token_header)
            given = hutch_exchange_header(x, x->format->token_header);
        if (given)
            x->token = hutch_tokens_find_plain(&x->server->tokens, given);
        if (!x->token) {
            hutch_exchange_refuse(x, GATEWAY_UNAUTHORIZED, "this request has no token that the server knows");
            return;
        }
    }
    if (finding->rc < 0) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", finding->err.msg);
    } else if (!x->route && !finding->has_other) {
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "there is nothing at this path");
    } else if (!x->route) {
        hutch_formats_methods(&x->server->formats, path, methods, sizeof(methods));
        hutch_exchange_refuse(x, GATEWAY_METHOD_NOT_ALLOWED, "this path does not take this method, but %s", methods);
        if (x->response)
            MHD_add_response_header(x->response, "Allow", methods);
    }
}

/* ---- how large ---- */

struct header_counts {
    unsigned length, host, malformed;
};

/* RFC 9110, 5.6.2. A name with a blank at its end may be another name to a proxy in front. */
static bool is_token(const char *name)
{
    return name[0] && strspn(name, "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") ==
                          strlen(name);
}

/* RFC 9110, 5.5: no control character but a tab. */
static bool is_field_value(const char *value)
{
    for (; value && *value; value++)
        if (((unsigned char)*value < ' ' && *value != '\t') || *value == 0x7f)
            return false;
    return true;
}

static enum MHD_Result count_header(void *cls, enum MHD_ValueKind kind, const char *key, const char *value)
{
    struct header_counts *counts = cls;

    (void)kind;
    counts->length += strcasecmp(key, "Content-Length") == 0 || strcasecmp(key, "Transfer-Encoding") == 0;
    counts->host += strcasecmp(key, "Host") == 0;
    counts->malformed += !is_token(key) || !is_field_value(value);
    return MHD_YES;
}

static bool is_type(const char *header, const char *type)
{
    size_t len = header ? strcspn(header, "; \t") : 0;

    return len == strlen(type) && strncasecmp(header, type, len) == 0;
}

static void refuse_length(struct exchange *x, const char *why)
{
    x->body_len = EXCHANGE_UNREADABLE;
    hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", why);
}

static void find_length(struct exchange *x)
{
    const char *length = hutch_exchange_header(x, "Content-Length");
    const char *encoding = hutch_exchange_header(x, "Transfer-Encoding");
    struct header_counts counts = { 0 };
    struct hutch_err ignored;

    MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, count_header, &counts);
    if (counts.malformed)
        refuse_length(x, "a header of the request is not as RFC 9110 has it");
    else if (counts.host > 1)
        refuse_length(x, "the request says its Host more than once");
    else if (counts.length > 1) /* a proxy in front could have chosen the other one: request smuggling */
        refuse_length(x, "the request says its length more than once");
    else if (length && hutch_parse_u64(length, &x->body_len, &ignored) < 0)
        refuse_length(x, "the request's Content-Length is no number");
    else if (encoding && strcasecmp(encoding, "chunked") != 0)
        refuse_length(x, "the request's Transfer-Encoding is not 'chunked'");
    else if (encoding)
        x->body_len = EXCHANGE_UNKNOWN_LENGTH;
}

static void check_body(struct exchange *x)
{
    static const char *const types[] = { [ROUTE_JSON] = "application/json", [ROUTE_LINES] = "application/x-ndjson",
                                         [ROUTE_CALL] = "application/json", [ROUTE_FORM] = "application/json",
                                         [ROUTE_STREAM] = NULL };
    const char *given = hutch_exchange_header(x, "Content-Type");
    bool is_form = x->route->body == ROUTE_FORM && is_type(given, "multipart/form-data");
    bool is_call = x->route->body == ROUTE_CALL && is_type(given, FUNCTION_CALL_TYPE);
    const char *type = is_form ? "multipart/form-data" : is_call ? FUNCTION_CALL_TYPE : types[x->route->body];
    uint64_t max = x->server->options->max_body;

    x->is_streamed = is_form || x->route->body == ROUTE_STREAM;
    if (x->body_len == 0)
        return;
    if (x->route->body == ROUTE_NO_BODY)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "this request takes no body");
    else if (type && x->body_len != EXCHANGE_UNKNOWN_LENGTH && x->body_len > max)
        hutch_exchange_refuse(x, GATEWAY_BODY_TOO_LARGE, "the body has %" PRIu64 " bytes, and can have %" PRIu64,
                              x->body_len, max);
    else if (type && !x->format->takes_any_type && !is_type(given, type))
        hutch_exchange_refuse(x, GATEWAY_MEDIA_TYPE, "the body is to be %s", type);
    else if (hutch_exchange_header(x, "Content-Encoding"))
        hutch_exchange_refuse(x, GATEWAY_MEDIA_TYPE, "the body is to be sent without a Content-Encoding");
}

void hutch_access_check(struct exchange *x, const char *path, const char *method, const char *version)
{
    struct finding finding;
    bool is_elsewhere;

    find_route(x, path, method, &finding);
    find_length(x);
    if (!x->status && !hutch_request_head_is_whole(x->mhd, method, x->connection->uri, path, version))
        refuse_length(x, "the head of the request has a NUL byte, or a line that does not end in CR LF");
    if (!x->status)
        check_source(x);
    if (!x->status && !answer_preflight(x, path))
        check_route(x, path, &finding);
    if (!x->status && x->server->is_draining && !x->route->is_open)
        hutch_exchange_refuse(x, GATEWAY_SHUTTING_DOWN, "the server is shutting down");
    is_elsewhere = !x->status && hutch_relay_is_wanted(x);
    if (!x->status && !is_elsewhere)
        x->handler = x->route;
    if (!x->status && !is_elsewhere && x->route->is_open && x->format->admit)
        x->format->admit(x);
    if (!x->status)
        check_body(x);
    if (!x->status && is_elsewhere)
        hutch_relay_enter(x);
}
