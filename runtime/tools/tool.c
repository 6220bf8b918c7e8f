#include "runtime/tools/tool.h"

#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <string.h>

#define FRESH "Nothing of an earlier call is there any more. There is no network. "

static const struct tool tools[] = {
    { "run_python", "Runs Python code in a sandbox and returns what it prints, the value of its last expression, and "
                    "the traceback of an error. " FRESH, "code", TOOL_TEXT },
    { "run_python_code", "Runs Python code in a sandbox and returns what it prints. " FRESH "Use print() for results.",
      "code_string", TOOL_FUNCTION_RESPONSE },
    { "execute_python_code", "Executes Python code in a sandbox and returns what it prints, or the error. " FRESH
                             "Use print() for results.", "python_code", TOOL_STDOUT },
    { "code_interpreter", "Executes Python code in a sandbox and returns its status, stdout, stderr and the value of "
                          "its last expression. " FRESH, "python_code", TOOL_RESPONSE_OBJECT },
    { "code_interpreter_call", "Executes Python code in a sandbox and returns its logs and images. " FRESH, "code",
      TOOL_CALL_ITEM },
};

const char *const hutch_tool_formats[TOOLS_FORMAT_COUNT] = {
    [TOOLS_OPENAI] = "openai",
    [TOOLS_OPENAI_RESPONSES] = "openai-responses",
    [TOOLS_ANTHROPIC] = "anthropic",
    [TOOLS_GEMINI] = "gemini",
    [TOOLS_MCP] = "mcp",
};

const struct tool *hutch_tool_find(const char *name, size_t len)
{
    for (size_t i = 0; i < ARRAY_SIZE(tools); i++)
        if (strlen(tools[i].name) == len && memcmp(tools[i].name, name, len) == 0)
            return &tools[i];
    return NULL;
}

bool hutch_tool_is_cell(const struct tool *tool)
{
    return tool->shape == TOOL_TEXT || tool->shape == TOOL_RESPONSE_OBJECT || tool->shape == TOOL_CALL_ITEM;
}

void hutch_tool_list(struct text_buffer *t)
{
    for (size_t i = 0; i < ARRAY_SIZE(tools); i++)
        hutch_text_addf(t, "%s%s", i ? ", " : "", tools[i].name);
}

/* ---- definitions ---- */

/* "strict": all arguments are there, and no others. */
static void write_schema(struct text_buffer *t, const struct tool *tool, bool is_gemini)
{
    hutch_text_addf(t, "{\"type\":\"%s\",\"properties\":{\"%s\":{\"type\":\"%s\",\"description\":",
                    is_gemini ? "OBJECT" : "object", tool->argument, is_gemini ? "STRING" : "string");
    hutch_text_addf(t, "\"Python source text.\"}},\"required\":[\"%s\"]", tool->argument);
    hutch_text_add_string(t, is_gemini ? "}" : ",\"additionalProperties\":false}");
}

/* Without the brace at its begin. */
static void write_tool(struct text_buffer *t, const struct tool *tool, const char *schema_key, bool is_strict,
                       bool is_gemini)
{
    hutch_text_addf(t, "\"name\":\"%s\",\"description\":", tool->name);
    hutch_json_quote(t, tool->description, strlen(tool->description));
    hutch_text_addf(t, ",\"%s\":", schema_key);
    write_schema(t, tool, is_gemini);
    hutch_text_add_string(t, is_strict ? ",\"strict\":true}" : "}");
}

static void write_one(struct text_buffer *t, enum tool_format format, const struct tool *tool)
{
    switch (format) {
    case TOOLS_OPENAI:
        hutch_text_add_string(t, "{\"type\":\"function\",\"function\":{");
        write_tool(t, tool, "parameters", true, false);
        hutch_text_add_string(t, "}");
        break;
    case TOOLS_OPENAI_RESPONSES:
        hutch_text_add_string(t, "{\"type\":\"function\",");
        write_tool(t, tool, "parameters", true, false);
        break;
    case TOOLS_ANTHROPIC:
        hutch_text_add_string(t, "{");
        write_tool(t, tool, "input_schema", false, false);
        break;
    case TOOLS_GEMINI:
        hutch_text_add_string(t, "{");
        write_tool(t, tool, "parameters", false, true);
        break;
    default:
        hutch_text_add_string(t, "{");
        write_tool(t, tool, "inputSchema", false, false);
    }
}

void hutch_tools_write(struct text_buffer *t, enum tool_format format, const struct tool *const *chosen, size_t n)
{
    hutch_text_add_string(t, format == TOOLS_GEMINI ? "[{\"functionDeclarations\":[" : "[");
    for (size_t i = 0; i < n; i++) {
        hutch_text_add_string(t, i ? "," : "");
        write_one(t, format, chosen[i]);
    }
    hutch_text_add_string(t, format == TOOLS_GEMINI ? "]}]\n" : "]\n");
}
