#include "runtime/repl/server_cell.h"

#include "runtime/text/base64.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

void hutch_server_cell_write(const struct hutch_cell *cell, struct text_buffer *to)
{
    hutch_text_add_string(to, "{\"code\":");
    hutch_json_quote(to, cell->code, cell->code_len ? cell->code_len : strlen(cell->code));
    if (cell->context)
        hutch_text_addf(to, ",\"context\":\"%s\"", cell->context); /* letters, digits, '-' and '_' */
    hutch_text_add_string(to, cell->silent ? ",\"silent\":true" : "");
    hutch_text_add_string(to, cell->no_history ? ",\"no_history\":true" : "");
    hutch_text_add_string(to, cell->allow_input ? ",\"allow_input\":true}" : "}");
}

/* The caller frees it; NULL: it is no string, or memory was short. */
static char *text_of(struct json_view data, const char *key, size_t *ret_len)
{
    const struct json_view value = hutch_json_view_get(data, key);
    struct hutch_err ignored;
    char *text = NULL;

    return hutch_json_view_is_string(value) && hutch_json_view_text(value, &text, ret_len, &ignored) == 0 ? text : NULL;
}

static bool is_true(struct json_view data, const char *key)
{
    const struct json_view value = hutch_json_view_get(data, key);

    return value.len == 4 && memcmp(value.text, "true", 4) == 0;
}

static void take_output(const struct server_cell *c, struct json_view data)
{
    struct hutch_output output = { .size = sizeof(output), .kind = HUTCH_STREAM, .stream = 1 };
    auto_free char *encoded = NULL, *text = NULL;
    auto_free unsigned char *bytes = NULL;
    size_t len = 0;

    if (hutch_json_view_is(hutch_json_view_get(data, "stream"), "stderr"))
        output.stream = 2;
    encoded = text_of(data, "base64", &len); /* where the text is not all there is to it */
    if (encoded)
        bytes = hutch_base64_decode(encoded, len, &len);
    else
        text = text_of(data, "text", &len);
    output.text = encoded ? (const char *)bytes : text;
    output.text_len = len;
    if (output.text)
        c->cell.on_output(c->cell.user, 1, &output);
}

/* Of another kind than text: as nbformat has it. */
static void take_json(const struct server_cell *c, enum hutch_output_kind kind, struct json_view data)
{
    struct hutch_output output = { .size = sizeof(output), .kind = kind };
    auto_free char *json = strndup(data.text, data.len);

    output.json = json;
    if (json)
        c->cell.on_output(c->cell.user, 1, &output);
}

static void take_input(const struct server_cell *c, struct json_view data)
{
    size_t len;
    auto_free char *prompt = text_of(data, "prompt", &len);

    if (c->cell.on_input)
        c->cell.on_input(c->cell.user, 1, prompt ? prompt : "", is_true(data, "password"));
}

static enum hutch_verdict verdict_of(struct json_view data)
{
    const struct json_view value = hutch_json_view_get(data, "verdict");

    for (int v = 0; v <= HUTCH_SETUP_FAILED; v++)
        if (hutch_json_view_is(value, hutch_verdict_text((enum hutch_verdict)v)))
            return (enum hutch_verdict)v;
    return HUTCH_KILLED;
}

static void take_result(struct server_cell *c, struct json_view data)
{
    struct hutch_cell_result result = { .size = sizeof(result), .verdict = verdict_of(data), .outputs = "[]" };
    size_t len;
    auto_free char *message = text_of(data, "message", &len);
    int64_t count;

    result.message = message ? message : "";
    result.interpreter_died = is_true(data, "interpreter_died");
    result.is_fresh = is_true(data, "fresh");
    result.was_interrupted = is_true(data, "interrupted");
    result.truncated = is_true(data, "truncated");
    if (hutch_json_view_integer(hutch_json_view_get(data, "execution_count"), &count) && count > 0 && count < INT_MAX)
        result.execution_count = (int)count;
    c->has_result = true;
    c->cell.on_result(c->cell.user, 1, &result);
}

void hutch_server_cell_take(struct server_cell *c, struct json_view event, struct json_view data)
{
    static const struct {
        const char *event;
        enum hutch_output_kind kind;
    } kinds[] = {
        { "display", HUTCH_DISPLAY }, { "value", HUTCH_VALUE }, { "error", HUTCH_ERROR_OUTPUT },
        { "update", HUTCH_UPDATE },   { "clear", HUTCH_CLEAR }, { "widget", HUTCH_WIDGET },
    };

    if (c->has_result || !hutch_json_view_is_object(data))
        return;
    if (hutch_json_view_is(event, "result"))
        take_result(c, data);
    else if (hutch_json_view_is(event, "input"))
        take_input(c, data);
    else if (c->cell.on_output && hutch_json_view_is(event, "output"))
        take_output(c, data);
    for (size_t i = 0; c->cell.on_output && i < ARRAY_SIZE(kinds); i++)
        if (hutch_json_view_is(event, kinds[i].event))
            take_json(c, kinds[i].kind, data);
}

void hutch_server_cell_end(struct server_cell *c, const struct hutch_err *why)
{
    struct hutch_cell_result result = { .size = sizeof(result), .verdict = HUTCH_SETUP_FAILED, .outputs = "[]" };

    result.message = why ? why->msg : "the server has not said how the cell ended";
    if (!c->has_result)
        c->cell.on_result(c->cell.user, 1, &result);
    c->has_result = true;
}
