#include "runtime/tools/call.h"

#include "runtime/text/json_scan.h"
#include "runtime/text/json_view.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <string.h>

#define MAX_DEPTH 64

static int scan(const char *what, const char *text, size_t len, struct json_view *ret, struct hutch_err *err)
{
    struct json_scan s = { .what = what, .text = text ? text : "", .len = len, .line = 1, .column = 1,
                           .max_depth = MAX_DEPTH, .err = err };

    return hutch_json_view_scan(&s, ret);
}

static int take_text(struct json_view value, struct tool_text *ret, struct hutch_err *err)
{
    return hutch_json_view_is_string(value) ? hutch_json_view_text(value, &ret->data, &ret->len, err) : 0;
}

/* ---- the arguments ---- */

/* The program, under the tool's own name for it or one of the others': models mix them up. */
static struct json_view find_code(const struct tool *tool, struct json_view arguments)
{
    static const char *const names[] = { "code", "python_code", "code_string", "input" };
    struct json_view found = hutch_json_view_get(arguments, tool->argument);

    for (size_t i = 0; !hutch_json_view_is_string(found) && i < ARRAY_SIZE(names); i++)
        found = hutch_json_view_get(arguments, names[i]);
    return found;
}

static int read_arguments(struct json_view arguments, struct tool_call *call, struct hutch_err *err)
{
    if (take_text(find_code(call->tool, arguments), &call->code, err) < 0)
        return -1;
    if (!call->code.data)
        hutch_err_set(&call->trouble, 0, "the arguments are to be an object with the text '%s'", call->tool->argument);
    else if (strlen(call->code.data) != call->code.len)
        hutch_err_set(&call->trouble, 0, "the program contains a NUL character");
    return 0;
}

static int read_arguments_text(const char *text, size_t len, struct tool_call *call, struct hutch_err *err)
{
    struct json_view arguments;

    if (scan("the arguments are no JSON", text, len, &arguments, &call->trouble) < 0)
        return 0;
    return read_arguments(arguments, call, err);
}

/* ---- the call ---- */

static int find_tool(struct json_view name, struct tool_call *call, struct hutch_err *err)
{
    struct text_buffer known = TEXT_BUFFER_INIT;

    if (!hutch_json_view_is_string(name))
        return hutch_err_set(err, 0, "request: the call has no name of a tool");
    if (take_text(name, &call->name, err) < 0)
        return -1;
    call->tool = hutch_tool_find(call->name.data, call->name.len);
    if (call->tool)
        return 0;
    hutch_tool_list(&known);
    hutch_err_set(&call->trouble, 0, "there is no tool of this name; there are %s", known.data ? known.data : "others");
    hutch_text_done(&known);
    return 0;
}

/* @arguments: a text that is JSON, or an object. */
static int read_call(struct json_view id, struct json_view name, struct json_view arguments, struct tool_call *call,
                     struct hutch_err *err)
{
    auto_free char *text = NULL;
    size_t len;

    if (take_text(id, &call->id, err) < 0 || find_tool(name, call, err) < 0)
        return -1;
    if (!call->tool)
        return 0;
    if (!hutch_json_view_is_string(arguments))
        return read_arguments(arguments, call, err);
    if (hutch_json_view_text(arguments, &text, &len, err) < 0)
        return -1;
    return read_arguments_text(text, len, call, err);
}

int hutch_tool_call_parse(const char *text, size_t len, struct tool_call *ret, struct hutch_err *err)
{
    struct json_view root, type, inner;

    *ret = (struct tool_call){ .kind = TOOL_CALL_OPENAI };
    if (len == 0)
        return hutch_err_set(err, 0, "request: the body is empty, and is to be a call of a tool");
    if (scan("request", text, len, &root, err) < 0)
        return -1;
    type = hutch_json_view_get(root, "type");
    inner = hutch_json_view_get(root, "function");
    if (hutch_json_view_is_object(inner))
        return read_call(hutch_json_view_get(root, "id"), hutch_json_view_get(inner, "name"),
                         hutch_json_view_get(inner, "arguments"), ret, err);
    inner = hutch_json_view_get(root, "functionCall");
    ret->kind = hutch_json_view_is_object(inner) ? TOOL_CALL_GEMINI
              : hutch_json_view_is(type, "tool_use") ? TOOL_CALL_ANTHROPIC : TOOL_CALL_RESPONSES;
    if (ret->kind == TOOL_CALL_GEMINI)
        return read_call(hutch_json_view_get(inner, "id"), hutch_json_view_get(inner, "name"),
                         hutch_json_view_get(inner, "args"), ret, err);
    if (ret->kind == TOOL_CALL_ANTHROPIC)
        return read_call(hutch_json_view_get(root, "id"), hutch_json_view_get(root, "name"),
                         hutch_json_view_get(root, "input"), ret, err);
    if (hutch_json_view_is(type, "function_call"))
        return read_call(hutch_json_view_get(root, "call_id"), hutch_json_view_get(root, "name"),
                         hutch_json_view_get(root, "arguments"), ret, err);
    return hutch_err_set(err, 0, "request: this is no call of a tool as OpenAI's, Anthropic's or Gemini's API has it");
}

int hutch_tool_call_parse_bare(const struct tool *tool, const char *text, size_t len, struct tool_call *ret,
                               struct hutch_err *err)
{
    *ret = (struct tool_call){ .kind = TOOL_CALL_BARE, .tool = tool };
    return read_arguments_text(text, len, ret, err);
}

void hutch_tool_call_done(struct tool_call *call)
{
    free(call->id.data);
    free(call->name.data);
    free(call->code.data);
    *call = (struct tool_call){ .kind = TOOL_CALL_BARE };
}

/* ---- the answer ---- */

static void quote_or_null(struct text_buffer *t, const struct tool_text *text)
{
    if (text->data)
        hutch_json_quote(t, text->data, text->len);
    else
        hutch_text_add_string(t, "null");
}

/* {@head ID @middle CONTENT @tail} */
static void write_answer(struct text_buffer *t, const char *head, const struct tool_text *id, const char *middle,
                         const char *content, size_t len, const char *tail)
{
    hutch_text_add_string(t, head);
    quote_or_null(t, id);
    hutch_text_add_string(t, middle);
    hutch_json_quote(t, content, len);
    hutch_text_add_string(t, tail);
}

void hutch_tool_call_answer(struct text_buffer *t, const struct tool_call *call, const char *content, size_t len,
                            bool is_error)
{
    switch (call->kind) {
    case TOOL_CALL_BARE:
        hutch_text_add(t, content, len);
        break;
    case TOOL_CALL_OPENAI:
        write_answer(t, "{\"role\":\"tool\",\"tool_call_id\":", &call->id, ",\"content\":", content, len, "}\n");
        break;
    case TOOL_CALL_RESPONSES:
        write_answer(t, "{\"type\":\"function_call_output\",\"call_id\":", &call->id, ",\"output\":", content, len,
                     "}\n");
        break;
    case TOOL_CALL_ANTHROPIC:
        write_answer(t, "{\"type\":\"tool_result\",\"tool_use_id\":", &call->id, ",\"content\":", content, len,
                     is_error ? ",\"is_error\":true}\n" : ",\"is_error\":false}\n");
        break;
    case TOOL_CALL_GEMINI:
        hutch_text_add_string(t, "{\"functionResponse\":{");
        if (call->id.data) {
            hutch_text_add_string(t, "\"id\":");
            quote_or_null(t, &call->id);
            hutch_text_add_string(t, ",");
        }
        write_answer(t, "\"name\":", &call->name, is_error ? ",\"response\":{\"error\":" : ",\"response\":{\"output\":",
                     content, len, "}}}\n");
        break;
    }
}
