/* post.h - what a client has posted: of which era it is, and whether body and headers say the same. */
#ifndef HUTCH_MCP_HTTP_POST_H
#define HUTCH_MCP_HTTP_POST_H

#include "runtime/mcp/rpc.h"

#include <stdbool.h>
#include <stddef.h>

/* Headers of a request; NULL: it is not there. */
struct mcp_headers {
    const char *version, *method, *name;
};

/* Points into the text that was read. */
struct mcp_post {
    struct json_view value;
    struct rpc_message message; /* all zeros: it is an array */
    bool is_array;
    bool is_modern;
    bool is_opening;            /* "initialize" */
};

/* 0, or the code of the error, which *err has in words; the status of HTTP is 400 then. */
int hutch_mcp_post_read(const char *text, size_t len, const struct mcp_headers *headers, struct mcp_post *ret,
                        struct hutch_err *err);

#endif
