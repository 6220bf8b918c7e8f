/* tool.h - the tools that a client is offered, as rows, and what all of them share.
 *
 * A tool is begun in a session that is open, and ends by answering its call. What it does it does by hutch.h. */
#ifndef HUTCH_MCP_TOOL_H
#define HUTCH_MCP_TOOL_H

#include "runtime/mcp/argument.h"
#include "runtime/mcp/call.h"

#include <stdbool.h>
#include <stddef.h>

struct text_buffer;

struct mcp_tool {
    const char *name, *title, *description;
    const struct mcp_argument *arguments;
    size_t n_arguments;
    size_t session_at;         /* which of them is the session; MCP_NO_ARGUMENT: it has none */
    const char *output_schema; /* JSON; NULL: it has no structured result */
    const char *annotations;   /* JSON */
    bool is_cell;              /* it executes code: one at a time in a session. Others begin at once, also meanwhile */
    void (*begin)(struct mcp_call *call);
};

extern const struct mcp_tool hutch_mcp_run_python, hutch_mcp_run_command, hutch_mcp_list_files, hutch_mcp_read_file,
    hutch_mcp_write_file, hutch_mcp_python;

/* As whom a client sees the server. */
struct mcp_face {
    const char *name, *title, *instructions; /* of the server; the last is for the model */
    const struct mcp_tool *const *tools;     /* in the order in which they are listed; ends with NULL */
};

/* NULL: the face has none of this name. */
const struct mcp_tool *hutch_mcp_tool_find(const struct mcp_face *face, const char *name);
/* {"name":…,"inputSchema":…} */
void hutch_mcp_tool_write(const struct mcp_tool *tool, struct text_buffer *t);

/* The row that every tool has. */
#define MCP_SESSION_ARGUMENT                                                                                        \
    {                                                                                                               \
        .name = "session_id", .type = MCP_STRING,                                                                   \
        .description = "Leave it out for the session that this conversation has. \"new\" makes another one, with "  \
                       "variables and files of its own; its id is in the result."                                  \
    }

#endif
