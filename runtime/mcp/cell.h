/* cell.h - a call that executes a cell: its begin, its output as it comes, and what its result has for every tool that
 * does so. */
#ifndef HUTCH_MCP_CELL_H
#define HUTCH_MCP_CELL_H

#include "runtime/hutch.h"
#include "runtime/mcp/call.h"
#include "runtime/text/json_view.h"

#include <stddef.h>

/* Hands the cell to the session of the call, whose turn it is. @timeout: the call's argument, in seconds. The call
 * fails when the cell is refused. */
void hutch_mcp_cell_execute(struct mcp_call *call, struct hutch_cell *cell, const struct mcp_value *timeout);

/* The row of that argument. */
#define MCP_TIMEOUT_ARGUMENT                                                                                        \
    {                                                                                                               \
        .name = "timeout", .type = MCP_NUMBER, .min = 0.001, .max = 86400,                                          \
        .description = "Seconds, if less than the limit of this server is wanted."                                  \
    }

/* What a cell has shown, taken apart. */
struct mcp_shown {
    char *text;                    /* owned; the result as docs/sessions.md has it */
    struct json_view json;         /* the same */
    struct text_buffer streams[2]; /* stdout and stderr */
    struct text_buffer both;       /* in the order in which they were made */
};
#define MCP_SHOWN_INIT { .text = NULL }

/* hutch_mcp_shown_done() in any case. -1: memory was short. */
int hutch_mcp_shown_read(const struct hutch_cell_result *result, struct mcp_shown *ret);
void hutch_mcp_shown_done(struct mcp_shown *shown);

/* The bytes that one text of a result may have, and the tokens of all. */
size_t hutch_mcp_max_text(const struct mcp_call *call);
size_t hutch_mcp_budget(const struct mcp_call *call);

/* Fills @ret from what was shown, which is empty at first. -1: memory was short. */
typedef int mcp_make_result(const struct mcp_call *call, const struct hutch_cell_result *result,
                            struct mcp_shown *shown, struct mcp_result *ret);
/* Ends the call with what @make makes of the result. */
void hutch_mcp_cell_answer(struct mcp_call *call, const struct hutch_cell_result *result, mcp_make_result *make);

/* Members that all have: status, stdout, stderr, message, files, truncated, fresh, interpreter_died,
 * execution_time_ms, session_id. */
void hutch_mcp_add_shown(struct mcp_result *r, const struct mcp_call *call, const struct hutch_cell_result *result,
                         const struct mcp_shown *shown);
#define MCP_SHOWN_SCHEMA                                                                                            \
    "\"status\":{\"type\":\"string\",\"enum\":[\"ok\",\"error\",\"timeout\",\"cpu_time\",\"out_of_memory\","        \
    "\"output_limit\",\"killed\",\"denied\",\"setup_failed\"]},"                                                    \
    "\"stdout\":{\"type\":\"string\"},\"stderr\":{\"type\":\"string\"},"                                            \
    "\"message\":{\"type\":[\"string\",\"null\"]},"                                                                 \
    "\"files\":{\"type\":\"object\",\"properties\":{\"added\":{\"type\":\"array\"},\"modified\":{\"type\":"         \
    "\"array\"},\"deleted\":{\"type\":\"array\"}}},"                                                                \
    "\"truncated\":{\"type\":\"boolean\"},\"fresh\":{\"type\":\"boolean\"},"                                        \
    "\"interpreter_died\":{\"type\":\"boolean\"},\"execution_time_ms\":{\"type\":\"integer\"},"                     \
    "\"session_id\":{\"type\":\"string\"}"
#define MCP_SHOWN_REQUIRED "\"status\",\"stdout\",\"stderr\",\"session_id\""

#endif
