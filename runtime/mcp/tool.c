#include "runtime/mcp/tool.h"

#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"

#include <string.h>

const struct mcp_tool *hutch_mcp_tool_find(const struct mcp_face *face, const char *name)
{
    for (const struct mcp_tool *const *tool = face->tools; *tool; tool++)
        if (strcmp((*tool)->name, name) == 0)
            return *tool;
    return NULL;
}

static void write_text(struct text_buffer *t, const char *key, const char *text)
{
    hutch_text_addf(t, ",\"%s\":", key);
    hutch_json_quote(t, text, strlen(text));
}

void hutch_mcp_tool_write(const struct mcp_tool *tool, struct text_buffer *t)
{
    hutch_text_addf(t, "{\"name\":\"%s\"", tool->name);
    write_text(t, "title", tool->title);
    write_text(t, "description", tool->description);
    hutch_text_add_string(t, ",\"inputSchema\":");
    hutch_mcp_write_schema(t, tool->arguments, tool->n_arguments);
    if (tool->output_schema) {
        hutch_text_add_string(t, ",\"outputSchema\":");
        hutch_text_add_string(t, tool->output_schema);
    }
    hutch_text_add_string(t, ",\"annotations\":");
    hutch_text_add_string(t, tool->annotations);
    hutch_text_add_string(t, "}");
}
