#include "runtime/tools/result.h"

#include "runtime/azure/result.h"
#include "runtime/gateway/outputs.h"
#include "runtime/text/json_view.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <string.h>

/* ---- a text ---- */

static void add_cell_text(struct text_buffer *t, const struct hutch_result *result)
{
    auto_free char *text = hutch_cell_result_to_text(result->cell, 0);

    if (text)
        hutch_text_add_string(t, text);
    else
        t->is_broken = true;
}

/* ---- {"function_response", "details"} ---- */

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Without the blanks at both ends; nothing at all where it is empty. */
static void add_function_response(struct text_buffer *t, const char *text, size_t len)
{
    while (len > 0 && is_blank(text[len - 1]))
        len--;
    for (; len > 0 && is_blank(*text); len--)
        text++;
    if (len > 0) {
        hutch_text_add_string(t, "{\"function_response\":");
        hutch_json_quote(t, text, len);
        hutch_text_add_string(t, "}");
    } else {
        hutch_text_add_string(t, "{}");
    }
}

static void add_details(struct text_buffer *t, const char *details)
{
    hutch_text_add_string(t, "{\"function_response\":\"Error executing code.\",\"details\":");
    hutch_json_quote(t, details, strlen(details));
    hutch_text_add_string(t, "}");
}

static void add_failure_details(struct text_buffer *t, const struct hutch_result *result)
{
    struct text_buffer exit_code = TEXT_BUFFER_INIT;

    if (result->error_name) {
        add_details(t, result->error_value ? result->error_value : "");
    } else if (result->message[0]) {
        add_details(t, result->message);
    } else {
        hutch_text_addf(&exit_code, "the program ended with %s %d", result->signal ? "signal" : "exit code",
                        result->signal ? result->signal : result->exit_code);
        add_details(t, exit_code.data ? exit_code.data : "");
        hutch_text_done(&exit_code);
    }
}

/* ---- stdout, or [Error] ---- */

static bool add_stdout(struct text_buffer *t, const struct hutch_result *result)
{
    bool is_error = result->err_len > 0 || result->message[0];

    if (!is_error) {
        hutch_text_add(t, result->out, result->out_len);
        return false;
    }
    hutch_text_add_string(t, "[Error]\n");
    hutch_text_add(t, result->err, result->err_len);
    hutch_text_add_string(t, result->message);
    return true;
}

/* ---- an item with logs and images ---- */

static void begin_item(struct text_buffer *t, const struct tool_call *call, const char *id, bool is_error)
{
    hutch_text_addf(t, "{\"type\":\"code_interpreter_call\",\"id\":\"ci_%s\",\"status\":\"%s\",", id,
                    is_error ? "failed" : "completed");
    hutch_text_addf(t, "\"container_id\":\"cntr_%s\",\"code\":", id);
    hutch_json_quote(t, call->code.data ? call->code.data : "", call->code.len);
    hutch_text_add_string(t, ",\"outputs\":[");
}

/* What an output has for the logs, a JSON string; none, where it is something else. */
static struct json_view log_of(struct json_view output)
{
    struct json_view text = hutch_json_view_get(output, "text");

    return text.text ? text : hutch_json_view_get(hutch_json_view_get(output, "data"), "text/plain");
}

static void add_outputs(struct text_buffer *t, struct json_view outputs)
{
    struct json_walk walk = hutch_json_view_walk(outputs);
    struct json_view output;
    bool in_logs = false, has_one = false;

    while (hutch_json_view_next(&walk, NULL, &output)) {
        struct json_view image = hutch_json_view_get(hutch_json_view_get(output, "data"), "image/png");
        struct json_view text = log_of(output);

        if (!hutch_json_view_is_string(image) && !hutch_json_view_is_string(text))
            continue;
        if (in_logs && hutch_json_view_is_string(image))
            hutch_text_add_string(t, "\"}");
        if (!in_logs || hutch_json_view_is_string(image))
            hutch_text_add_string(t, has_one ? "," : "");
        if (hutch_json_view_is_string(image)) {
            hutch_text_add_string(t, "{\"type\":\"image\",\"url\":\"data:image/png;base64,");
            hutch_outputs_add_inner(t, image);
            hutch_text_add_string(t, "\"}");
        } else {
            hutch_text_add_string(t, in_logs ? "" : "{\"type\":\"logs\",\"logs\":\"");
            hutch_outputs_add_inner(t, text);
        }
        in_logs = !hutch_json_view_is_string(image);
        has_one = true;
    }
    hutch_text_add_string(t, in_logs ? "\"}" : "");
}

static void add_log(struct text_buffer *t, const char *text)
{
    hutch_text_add_string(t, t->data && t->data[t->len - 1] != '[' ? "," : "");
    hutch_text_add_string(t, "{\"type\":\"logs\",\"logs\":");
    hutch_json_quote(t, text, strlen(text));
    hutch_text_add_string(t, "}");
}

static void add_item(struct text_buffer *t, const struct tool_call *call, const char *id,
                     const struct hutch_cell_result *cell)
{
    struct json_view outputs = JSON_VIEW_NONE;
    struct hutch_err ignored;

    hutch_json_view_check("outputs", 1, 1, cell->outputs, strlen(cell->outputs), &outputs, &ignored);
    begin_item(t, call, id, cell->verdict != HUTCH_OK);
    add_outputs(t, outputs);
    if (cell->error_traceback)
        add_log(t, cell->error_traceback);
    else if (cell->verdict != HUTCH_OK && cell->message[0])
        add_log(t, cell->message);
    hutch_text_add_string(t, "]}");
}

/* ---- the whole ---- */

bool hutch_tool_add_result(struct text_buffer *t, const struct tool_call *call, const char *id,
                           const struct hutch_result *result)
{
    bool is_error = result->verdict != HUTCH_OK;

    if (result->verdict == HUTCH_SETUP_FAILED || (hutch_tool_is_cell(call->tool) && !result->cell)) {
        hutch_tool_add_trouble(t, call, id, result->message);
        return true;
    }
    switch (call->tool->shape) {
    case TOOL_TEXT:
        add_cell_text(t, result);
        break;
    case TOOL_FUNCTION_RESPONSE:
        if (is_error)
            add_failure_details(t, result);
        else
            add_function_response(t, result->out, result->out_len);
        break;
    case TOOL_STDOUT:
        return add_stdout(t, result);
    case TOOL_RESPONSE_OBJECT:
        hutch_azure_add_properties(t, result->cell, NULL);
        break;
    case TOOL_CALL_ITEM:
        add_item(t, call, id, result->cell);
        break;
    }
    return is_error;
}

void hutch_tool_add_trouble(struct text_buffer *t, const struct tool_call *call, const char *id, const char *message)
{
    switch (call->tool ? call->tool->shape : TOOL_TEXT) {
    case TOOL_FUNCTION_RESPONSE:
        add_details(t, message);
        break;
    case TOOL_STDOUT:
        hutch_text_add_string(t, "[Error]\n");
        hutch_text_add_string(t, message);
        break;
    case TOOL_RESPONSE_OBJECT:
        hutch_azure_add_properties(t, NULL, message);
        break;
    case TOOL_CALL_ITEM:
        begin_item(t, call, id, true);
        add_log(t, message);
        hutch_text_add_string(t, "]}");
        break;
    default:
        hutch_text_add_string(t, "Error: ");
        hutch_text_add_string(t, message);
    }
}
