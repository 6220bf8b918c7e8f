/* tool.h - tools that run Python, as a model is told of them, by the names and arguments that existing agents use. */
#ifndef HUTCH_TOOLS_TOOL_H
#define HUTCH_TOOLS_TOOL_H

#include "runtime/text/buffer.h"

#include <stdbool.h>
#include <stddef.h>

/* What the model is given back. */
enum tool_shape {
    TOOL_TEXT,              /* what a cell has shown, as text */
    TOOL_FUNCTION_RESPONSE, /* {"function_response", "details"} */
    TOOL_STDOUT,            /* stdout; or "[Error]" and stderr */
    TOOL_RESPONSE_OBJECT,   /* {"properties": {"status", "stdout", "stderr", "result"}} */
    TOOL_CALL_ITEM          /* {"type": "code_interpreter_call", "outputs": […]} */
};

struct tool {
    const char *name, *description;
    const char *argument;   /* the name of its one argument, the program */
    enum tool_shape shape;
};

/* NULL: there is none. */
const struct tool *hutch_tool_find(const char *name, size_t len);

/* Whether the program is a cell, so that the value of its last expression and its plots are shown. */
bool hutch_tool_is_cell(const struct tool *tool);

/* "run_python, …" */
void hutch_tool_list(struct text_buffer *t);

enum tool_format {
    TOOLS_OPENAI,
    TOOLS_OPENAI_RESPONSES,
    TOOLS_ANTHROPIC,
    TOOLS_GEMINI,
    TOOLS_MCP,
    TOOLS_FORMAT_COUNT
};
extern const char *const hutch_tool_formats[TOOLS_FORMAT_COUNT];

/* The definitions of @tools, as what a request to a model has under "tools". */
void hutch_tools_write(struct text_buffer *t, enum tool_format format, const struct tool *const *tools, size_t n);

#endif
