/* plain.c - the tool python: a cell whose answer is one text, as the models have learned it that have such a tool. */
#include "runtime/mcp/cell.h"
#include "runtime/mcp/tool.h"

#include "runtime/mcp/session.h"
#include "sandbox/fd.h"

#include <string.h>

enum { ARGUMENT_CODE };

static const struct mcp_argument arguments[] = {
    [ARGUMENT_CODE] = { .name = "code", .type = MCP_STRING, .is_required = true,
                        .description = "Python source text. Print what is to be seen." },
};

static void add_line(struct text_buffer *t, const char *text, size_t len)
{
    if (len == 0)
        return;
    if (t->len > 0 && t->data[t->len - 1] != '\n')
        hutch_text_add_string(t, "\n");
    hutch_text_add(t, text, len);
}

static int add_value(struct text_buffer *t, const struct mcp_shown *shown)
{
    struct json_view value = hutch_json_view_get(shown->json, "value");
    auto_free char *text = NULL;
    struct hutch_err err;
    size_t len;

    if (!hutch_json_view_is_string(value))
        return 0;
    if (hutch_json_view_text(value, &text, &len, &err) < 0)
        return -1;
    add_line(t, text, len);
    return 0;
}

/* Clients take the first item for all, so there is exactly one. */
static int make_result(const struct mcp_call *call, const struct hutch_cell_result *result, struct mcp_shown *shown,
                       struct mcp_result *ret)
{
    struct text_buffer all = TEXT_BUFFER_INIT, quoted = TEXT_BUFFER_INIT;
    const char *traceback = result->error_traceback ? result->error_traceback : "";
    char lost[400];
    int rc = hutch_mcp_shown_read(result, shown);

    if (rc == 0) {
        add_line(&all, shown->both.data, shown->both.len);
        rc = add_value(&all, shown);
        add_line(&all, traceback, strlen(traceback));
        add_line(&all, result->message, strlen(result->message));
        if (hutch_mcp_session_tell_loss(call->session, lost, sizeof(lost)))
            add_line(&all, lost, strlen(lost));
    }
    if (all.len == 0)
        hutch_text_add_string(&all, "[nothing was printed]");
    hutch_mcp_quote_excerpt(&quoted, all.data, all.len, hutch_mcp_max_text(call));
    hutch_mcp_add_quoted(ret, &quoted);
    ret->is_error = result->verdict != HUTCH_OK;
    rc = all.is_broken ? -1 : rc;
    hutch_text_done(&all);
    hutch_text_done(&quoted);
    return rc;
}

static void on_result(void *user, uint64_t session, const struct hutch_cell_result *result)
{
    (void)session;
    hutch_mcp_cell_answer(user, result, make_result);
}

static void begin(struct mcp_call *call)
{
    static const struct mcp_value no_timeout;
    struct hutch_cell cell;

    hutch_cell_init(&cell);
    cell.code = call->arguments.values[ARGUMENT_CODE].text;
    cell.on_result = on_result;
    hutch_mcp_cell_execute(call, &cell, &no_timeout);
}

const struct mcp_tool hutch_mcp_python = {
    .name = "python",
    .title = "Python",
    .description = "Executes Python in a sandbox and returns what it prints. Variables and files stay from call to "
                   "call.",
    .arguments = arguments,
    .n_arguments = ARRAY_SIZE(arguments),
    .session_at = MCP_NO_ARGUMENT,
    .annotations = "{\"include_in_prompt\":false,\"readOnlyHint\":false,\"destructiveHint\":false,"
                   "\"idempotentHint\":false,\"openWorldHint\":false}",
    .is_cell = true,
    .begin = begin,
};
