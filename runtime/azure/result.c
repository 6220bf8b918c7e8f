#include "runtime/azure/result.h"

#include "runtime/gateway/outputs.h"
#include "runtime/text/json_scan.h"
#include "runtime/text/json_write.h"

#include <string.h>

/* ---- texts ---- */

static void add_quoted_inner(struct text_buffer *t, const char *text)
{
    struct text_buffer quoted = TEXT_BUFFER_INIT;

    hutch_json_quote(&quoted, text, strlen(text));
    t->is_broken |= quoted.is_broken;
    if (!quoted.is_broken)
        hutch_outputs_add_inner(t, (struct json_view){ quoted.data, quoted.len });
    hutch_text_done(&quoted);
}

/* What was printed, and behind it what went wrong: clients look for errors nowhere else. */
static void add_stderr(struct text_buffer *t, const struct hutch_cell_result *result, struct json_view outputs)
{
    struct text_buffer printed = TEXT_BUFFER_INIT;

    hutch_outputs_add_stream(&printed, outputs, "stderr");
    hutch_text_add_string(t, "\"");
    t->is_broken |= printed.is_broken;
    if (!printed.is_broken)
        hutch_outputs_add_inner(t, (struct json_view){ printed.data, printed.len });
    hutch_text_done(&printed);
    if (result->error_name) {
        add_quoted_inner(t, result->error_value ? result->error_value : "");
        add_quoted_inner(t, result->error_traceback ? result->error_traceback : "");
        add_quoted_inner(t, "\n");
    }
    if (result->verdict != HUTCH_OK && result->message && result->message[0]) {
        add_quoted_inner(t, result->message);
        add_quoted_inner(t, "\n");
    }
    hutch_text_add_string(t, "\"");
}

/* ---- the value ---- */

static struct json_view last_image(struct json_view outputs)
{
    struct json_walk walk = hutch_json_view_walk(outputs);
    struct json_view output, found = JSON_VIEW_NONE;

    while (hutch_json_view_next(&walk, NULL, &output)) {
        struct json_view data = hutch_json_view_get(hutch_json_view_get(output, "data"), "image/png");

        if (hutch_json_view_is_string(data))
            found = data;
    }
    return found;
}

static bool is_number(struct json_view value)
{
    return value.text && (*value.text == '-' || (*value.text >= '0' && *value.text <= '9'));
}

/* Whether the text of a JSON string, such as "42", is a number of JSON's; then *ret is that. */
static bool is_number_text(struct json_view text, struct json_view *ret)
{
    struct hutch_err ignored;
    struct json_scan s = { .what = "value", .text = text.text + 1, .len = text.len - 2, .line = 1, .column = 1,
                           .max_depth = 1, .err = &ignored };

    return is_number((struct json_view){ s.text, s.len }) && hutch_json_view_scan(&s, ret) == 0;
}

/* Python's 'text' without its quotes, where nothing in it is escaped; else false. */
static bool is_plain_repr(struct json_view text, struct json_view *ret)
{
    const char *p = text.text;

    if (text.len < 4 || p[1] != '\'' || p[text.len - 2] != '\'' || memchr(p, '\\', text.len))
        return false;
    *ret = (struct json_view){ p + 2, text.len - 4 };
    return true;
}

/* What a value that says nothing but its text is: rich runs have no other. */
static void add_text_value(struct text_buffer *t, struct json_view text, enum azure_shape shape)
{
    struct json_view inner;

    if (shape != AZURE_STRING && is_number_text(text, &inner)) {
        hutch_text_add(t, inner.text, inner.len);
    } else if (is_plain_repr(text, &inner)) {
        hutch_text_add_string(t, "\"");
        hutch_text_add(t, inner.text, inner.len);
        hutch_text_add_string(t, "\"");
    } else {
        hutch_text_add(t, text.text, text.len);
    }
}

static void add_value(struct text_buffer *t, const struct hutch_cell_result *result, struct json_view outputs,
                      enum azure_shape shape)
{
    struct json_view image = last_image(outputs);
    struct json_view output = hutch_outputs_last(outputs, "execute_result");
    struct json_view text = hutch_json_view_get(hutch_json_view_get(output, "data"), "text/plain");
    struct json_view value = { result->value_json, result->value_json ? strlen(result->value_json) : 0 };

    if (result->verdict != HUTCH_OK) {
        hutch_text_add_string(t, "null");
    } else if (image.text) {
        hutch_text_add_string(t, "{\"type\":\"image\",\"format\":\"png\",\"base64_data\":");
        hutch_text_add(t, image.text, image.len);
        hutch_text_add_string(t, "}");
    } else if (!hutch_json_view_is_string(text)) {
        hutch_text_add_string(t, "\"\"");
    } else if (value.text && (shape == AZURE_NATIVE || hutch_json_view_is_string(value) ||
                              (shape == AZURE_PROPERTIES && is_number(value)))) {
        hutch_text_add(t, value.text, value.len);
    } else if (value.text) {
        hutch_text_add(t, text.text, text.len);
    } else {
        add_text_value(t, text, shape);
    }
}

/* ---- the whole ---- */

static const char *value_key(enum azure_shape shape)
{
    return shape == AZURE_PROPERTIES ? "result" : "executionResult";
}

void hutch_azure_add_result(struct text_buffer *t, const struct hutch_cell_result *result, enum azure_shape shape)
{
    struct json_view outputs = JSON_VIEW_NONE;
    struct hutch_err ignored;

    hutch_json_view_check("outputs", 1, 1, result->outputs, strlen(result->outputs), &outputs, &ignored);
    hutch_text_add_string(t, "\"stdout\":");
    hutch_outputs_add_stream(t, outputs, "stdout");
    hutch_text_add_string(t, ",\"stderr\":");
    add_stderr(t, result, outputs);
    hutch_text_addf(t, ",\"%s\":", value_key(shape));
    add_value(t, result, outputs, shape);
    hutch_text_addf(t, ",\"executionTimeInMilliseconds\":%.0f", result->run_ms);
}

void hutch_azure_add_trouble(struct text_buffer *t, const char *message, enum azure_shape shape)
{
    hutch_text_add_string(t, "\"stdout\":\"\",\"stderr\":");
    hutch_json_quote(t, message, strlen(message));
    hutch_text_addf(t, ",\"%s\":null,\"executionTimeInMilliseconds\":0", value_key(shape));
}

void hutch_azure_add_properties(struct text_buffer *t, const struct hutch_cell_result *result, const char *message)
{
    hutch_text_addf(t, "{\"$id\":\"1\",\"properties\":{\"$id\":\"2\",\"status\":\"%s\",",
                    !message && result->verdict == HUTCH_OK ? "Success" : "Failure");
    if (message)
        hutch_azure_add_trouble(t, message, AZURE_PROPERTIES);
    else
        hutch_azure_add_result(t, result, AZURE_PROPERTIES);
    hutch_text_add_string(t, "}}");
}
