/* call.h - a model's call of a tool, as the model's API has it, and the answer that this API wants.
 *
 * Models write arguments that are no JSON, or have other names, now and then. That is no bad request: the model is told
 * so, in the words of the tool, and mends it. */
#ifndef HUTCH_TOOLS_CALL_H
#define HUTCH_TOOLS_CALL_H

#include "runtime/text/buffer.h"
#include "runtime/tools/tool.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

enum tool_call_kind {
    TOOL_CALL_BARE,      /* the arguments alone; the answer is the result alone */
    TOOL_CALL_OPENAI,    /* {"id", "type": "function", "function": {"name", "arguments": "{…}"}} */
    TOOL_CALL_RESPONSES, /* {"type": "function_call", "call_id", "name", "arguments": "{…}"} */
    TOOL_CALL_ANTHROPIC, /* {"type": "tool_use", "id", "name", "input": {…}} */
    TOOL_CALL_GEMINI     /* {"functionCall": {"id", "name", "args": {…}}} */
};

struct tool_text {
    char *data; /* owned; NUL-terminated */
    size_t len;
};

struct tool_call {
    enum tool_call_kind kind;
    struct tool_text id, name, code; /* data is NULL where there is none */
    const struct tool *tool;         /* NULL: there is none of this name */
    struct hutch_err trouble;        /* why there is nothing to be run, for the model; else "" */
};

/* -1: it is no call at all. hutch_tool_call_done() in any case. */
int hutch_tool_call_parse(const char *text, size_t len, struct tool_call *ret, struct hutch_err *err);
/* The arguments for @tool alone. -1: memory was short. */
int hutch_tool_call_parse_bare(const struct tool *tool, const char *text, size_t len, struct tool_call *ret,
                               struct hutch_err *err);
void hutch_tool_call_done(struct tool_call *call);

/* What the model's API wants to hear: @content, the result of the tool. Any bytes. */
void hutch_tool_call_answer(struct text_buffer *t, const struct tool_call *call, const char *content, size_t len,
                            bool is_error);

#endif
