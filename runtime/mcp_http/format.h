/* format.h - the Model Context Protocol over HTTP, as a format of the gateway: streamable HTTP at /mcp, and the
 * transport of before, HTTP+SSE, at /mcp/sse, and at /python/sse with the face that vLLM and SGLang need. */
#ifndef HUTCH_MCP_HTTP_FORMAT_H
#define HUTCH_MCP_HTTP_FORMAT_H

#include "runtime/gateway/format.h"

extern const struct format hutch_mcp_format;

#endif
