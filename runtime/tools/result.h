/* result.h - what the model is told of a run, in the shape that its tool has. */
#ifndef HUTCH_TOOLS_RESULT_H
#define HUTCH_TOOLS_RESULT_H

#include "runtime/hutch.h"
#include "runtime/text/buffer.h"
#include "runtime/tools/call.h"

/* @id: of the item in TOOL_CALL_ITEM. Returns whether something went wrong. */
bool hutch_tool_add_result(struct text_buffer *t, const struct tool_call *call, const char *id,
                           const struct hutch_result *result);
/* The same of a call that nothing was run for. */
void hutch_tool_add_trouble(struct text_buffer *t, const struct tool_call *call, const char *id, const char *message);

#endif
