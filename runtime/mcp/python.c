/* python.c - the tool run_python: a cell in the session's interpreter. */
#include "runtime/mcp/cell.h"
#include "runtime/mcp/tool.h"

#include "runtime/mcp/session.h"
#include "runtime/text/base64.h"
#include "sandbox/fd.h"
#include "sandbox/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARGUMENT_CODE, ARGUMENT_TIMEOUT, ARGUMENT_SESSION };

static const struct mcp_argument arguments[] = {
    [ARGUMENT_CODE] = { .name = "code", .type = MCP_STRING, .is_required = true,
                        .description = "Python source text, of any length, with `await` and IPython's magics." },
    [ARGUMENT_TIMEOUT] = MCP_TIMEOUT_ARGUMENT,
    [ARGUMENT_SESSION] = MCP_SESSION_ARGUMENT,
};

/* --- images ----------------------------------------------------------------------------------------------------- */

static const struct { const char *type, *ending; } images[] = {
    { "image/png", "png" }, { "image/jpeg", "jpg" }, { "image/gif", "gif" }, { "image/webp", "webp" },
};

static int add_decoded(struct mcp_result *r, const char *name, struct json_view value)
{
    auto_free char *text = NULL;
    auto_free unsigned char *data = NULL;
    struct hutch_err err;
    size_t len = 0;

    if (hutch_json_view_text(value, &text, &len, &err) < 0)
        return -1;
    data = hutch_base64_decode(text, len, &len);
    hutch_mcp_add_image(r, name, data ? data : (const unsigned char *)"", data ? len : 0);
    return 0;
}

/* In their order, under the names that hutch_cell_result_to_text() has for them: it counts SVG, too, which models do
 * not read. */
static int add_images(struct mcp_result *r, const struct mcp_shown *shown)
{
    struct json_walk walk = hutch_json_view_walk(hutch_json_view_get(shown->json, "outputs"));
    struct json_view output;
    unsigned n = 0;

    while (walk.p && hutch_json_view_next(&walk, NULL, &output)) {
        struct json_view data = hutch_json_view_get(output, "data"), value = JSON_VIEW_NONE;
        char name[40];
        size_t i = 0;

        while (i < ARRAY_SIZE(images) && !hutch_json_view_is_string(value))
            value = hutch_json_view_get(data, images[i++].type);
        if (hutch_json_view_is_string(value)) {
            snprintf(name, sizeof(name), "figure-%u.%s", ++n, images[i - 1].ending);
            if (add_decoded(r, name, value) < 0)
                return -1;
        } else if (hutch_json_view_is_string(hutch_json_view_get(data, "image/svg+xml"))) {
            n++;
        }
    }
    return 0;
}

/* --- the result ------------------------------------------------------------------------------------------------- */

static void add_error(struct mcp_result *r, const struct mcp_call *call, const struct hutch_cell_result *result)
{
    static const char *const keys[] = { "name", "value", "traceback" };
    const char *const values[] = { result->error_name, result->error_value, result->error_traceback };
    struct text_buffer *t = hutch_mcp_add_key(r, "error");

    if (!result->error_name) {
        hutch_text_add_string(t, "null");
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        const char *value = values[i] ? values[i] : "";

        hutch_text_addf(t, "%s\"%s\":", i ? "," : "{", keys[i]);
        hutch_mcp_quote_excerpt(t, value, strlen(value), hutch_mcp_max_text(call));
    }
    if (result->error_line > 0)
        hutch_text_addf(t, ",\"line\":%d}", result->error_line);
    else
        hutch_text_add_string(t, ",\"line\":null}");
}

static int add_value(struct mcp_result *r, const struct mcp_call *call, const struct mcp_shown *shown)
{
    struct json_view value = hutch_json_view_get(shown->json, "value");
    struct text_buffer *t = hutch_mcp_add_key(r, "result");
    auto_free char *text = NULL;
    struct hutch_err err;
    size_t len;

    if (!hutch_json_view_is_string(value)) {
        hutch_text_add_string(t, "null");
        return 0;
    }
    if (hutch_json_view_text(value, &text, &len, &err) < 0)
        return -1;
    hutch_mcp_quote_excerpt(t, text, len, hutch_mcp_max_text(call));
    return 0;
}

static int make_result(const struct mcp_call *call, const struct hutch_cell_result *result, struct mcp_shown *shown,
                       struct mcp_result *ret)
{
    auto_free char *text = hutch_cell_result_to_text(result, hutch_mcp_budget(call));

    if (!text || hutch_mcp_shown_read(result, shown) < 0)
        return -1;
    ret->is_error = result->verdict != HUTCH_OK;
    hutch_mcp_add_string(ret, text);
    if (add_images(ret, shown) < 0)
        return -1;
    hutch_mcp_add_shown(ret, call, result, shown);
    if (add_value(ret, call, shown) < 0)
        return -1;
    add_error(ret, call, result);
    hutch_text_addf(hutch_mcp_add_key(ret, "images"), "%u", ret->n_images);
    if (result->execution_count > 0)
        hutch_text_addf(hutch_mcp_add_key(ret, "execution_count"), "%d", result->execution_count);
    return 0;
}

static void on_result(void *user, uint64_t session, const struct hutch_cell_result *result)
{
    (void)session;
    hutch_mcp_cell_answer(user, result, make_result);
}

static void begin(struct mcp_call *call)
{
    const struct mcp_value *values = call->arguments.values;
    struct hutch_cell cell;

    hutch_cell_init(&cell);
    cell.code = values[ARGUMENT_CODE].text;
    cell.on_result = on_result;
    hutch_mcp_cell_execute(call, &cell, &values[ARGUMENT_TIMEOUT]);
}

const struct mcp_tool hutch_mcp_run_python = {
    .name = "run_python",
    .title = "Run Python",
    .description =
        "Runs Python in a sandbox and returns what it prints, the value of its last expression and its figures. "
        "Variables, imports and the files in " INSIDE_DATA_DIR ", the working directory, stay from call to call. "
        "numpy, pandas and matplotlib are there where the image has them; show a figure with plt.show(). There is no "
        "network, and nothing can be installed.",
    .arguments = arguments,
    .n_arguments = ARRAY_SIZE(arguments),
    .session_at = ARGUMENT_SESSION,
    .output_schema =
        "{\"type\":\"object\",\"properties\":{" MCP_SHOWN_SCHEMA ",\"result\":{\"type\":[\"string\",\"null\"]},"
        "\"error\":{\"type\":[\"object\",\"null\"],\"properties\":{\"name\":{\"type\":\"string\"},\"value\":{\"type\":"
        "\"string\"},\"traceback\":{\"type\":\"string\"},\"line\":{\"type\":[\"integer\",\"null\"]}}},"
        "\"images\":{\"type\":\"integer\"},\"execution_count\":{\"type\":\"integer\"}},"
        "\"required\":[" MCP_SHOWN_REQUIRED "]}",
    .annotations = "{\"readOnlyHint\":false,\"destructiveHint\":false,\"idempotentHint\":false,"
                   "\"openWorldHint\":false}",
    .is_cell = true,
    .begin = begin,
};
