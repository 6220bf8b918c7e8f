#include "runtime/mcp_http/post.h"

#include "runtime/mcp/server.h"
#include "runtime/text/base64.h"
#include "sandbox/fd.h"

#include <stdlib.h>
#include <string.h>

#define META_VERSION      "io.modelcontextprotocol/protocolVersion"
#define META_CAPABILITIES "io.modelcontextprotocol/clientCapabilities"
#define MAX_NAME 250

static int refuse(int code, const char *why, struct hutch_err *err)
{
    hutch_err_set(err, 0, "%s", why);
    return code;
}

/* Of the value of a header; what stands around it is not part of it (RFC 9110, 5.5), and MHD leaves it. */
static size_t trim(const char **header)
{
    size_t len;

    *header += strspn(*header, " \t");
    len = strlen(*header);
    while (len > 0 && strchr(" \t", (*header)[len - 1]))
        len--;
    return len;
}

static bool is_value(const char *header, const char *text)
{
    size_t len = header ? trim(&header) : 0;

    return header && len == strlen(text) && memcmp(header, text, len) == 0;
}

/* A name that is not ASCII stands in a header as "=?base64?…?=". */
static bool is_name(const char *header, const char *name)
{
    static const char begin[] = "=?base64?", end[] = "?=";
    size_t len = header ? trim(&header) : 0, n_begin = sizeof(begin) - 1, n_end = sizeof(end) - 1, n = 0;
    auto_free unsigned char *decoded = NULL;

    if (len < n_begin + n_end || memcmp(header, begin, n_begin) != 0 ||
        memcmp(header + len - n_end, end, n_end) != 0)
        return is_value(header, name);
    decoded = hutch_base64_decode(header + n_begin, len - n_begin - n_end, &n);
    return decoded && n == strlen(name) && memcmp(decoded, name, n) == 0;
}

/* What a proxy reads in the headers is to be what the server does. */
static int check_headers(const struct mcp_headers *headers, const struct rpc_message *message, const char *version,
                         struct hutch_err *err)
{
    char name[MAX_NAME + 1];

    if (!is_value(headers->version, version))
        return refuse(RPC_HEADER_MISMATCH, "the header MCP-Protocol-Version is not there, or not as '_meta' has it",
                      err);
    if (!is_value(headers->method, message->method))
        return refuse(RPC_HEADER_MISMATCH, "the header Mcp-Method is not there, or not as 'method' is", err);
    if (strcmp(message->method, "tools/call") != 0 ||
        !hutch_rpc_text(hutch_rpc_get(message->params, "name"), name, sizeof(name)))
        return 0;
    if (!is_name(headers->name, name))
        return refuse(RPC_HEADER_MISMATCH, "the header Mcp-Name is not there, or not as 'name' is", err);
    return 0;
}

static int check_modern(const struct mcp_headers *headers, const struct rpc_message *message, struct json_view version,
                        struct hutch_err *err)
{
    char text[64];

    if (message->kind != RPC_REQUEST)
        return 0; /* nobody waits for a word about it */
    if (!hutch_rpc_text(version, text, sizeof(text)))
        return refuse(RPC_INVALID_PARAMS, "'_meta' has to have '" META_VERSION "', a string", err);
    if (strcmp(text, MCP_MODERN_VERSION) == 0 &&
        !hutch_json_view_is_object(hutch_rpc_get(hutch_rpc_get(message->params, "_meta"), META_CAPABILITIES)))
        return refuse(RPC_INVALID_PARAMS, "'_meta' has to have '" META_CAPABILITIES "', an object", err);
    return check_headers(headers, message, text, err);
}

int hutch_mcp_post_read(const char *text, size_t len, const struct mcp_headers *headers, struct mcp_post *ret,
                        struct hutch_err *err)
{
    bool says_modern = is_value(headers->version, MCP_MODERN_VERSION);
    struct json_view version;
    int code;

    *ret = (struct mcp_post){ .is_modern = says_modern };
    if (hutch_rpc_check(text, len, &ret->value, err) < 0)
        return RPC_PARSE_ERROR;
    ret->is_array = hutch_json_view_is_array(ret->value);
    if (!ret->is_array) {
        code = hutch_rpc_read(ret->value, &ret->message, err);
        if (code != 0)
            return code;
    } else if (says_modern) {
        return refuse(RPC_INVALID_REQUEST, "this version of the protocol has no batches", err);
    }
    version = hutch_rpc_get(hutch_rpc_get(ret->message.params, "_meta"), META_VERSION);
    ret->is_modern |= version.text != NULL;
    ret->is_opening = ret->message.kind == RPC_REQUEST && strcmp(ret->message.method, "initialize") == 0;
    if (ret->is_modern)
        return check_modern(headers, &ret->message, version, err);
    if (headers->version && !hutch_mcp_is_legacy_version(headers->version))
        return refuse(RPC_INVALID_REQUEST, "this MCP-Protocol-Version is not supported", err);
    return 0;
}
