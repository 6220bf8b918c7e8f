#include "runtime/tools/format.h"

#include "runtime/gateway/exchange.h"
#include "runtime/gateway/submit.h"
#include "runtime/text/ids.h"
#include "runtime/tools/call.h"
#include "runtime/tools/result.h"
#include "sandbox/fd.h"

#include <string.h>

struct tool_run {
    struct submitted submitted; /* first */
    struct tool_call call;
    char id[ID_LEN + 1];
};

static void on_free(struct exchange *x)
{
    struct tool_run *run = x->work;

    hutch_tool_call_done(&run->call);
}

/* Takes @content. */
static void answer(struct exchange *x, struct text_buffer *content, bool is_error)
{
    const struct tool_run *run = x->work;
    struct text_buffer t = TEXT_BUFFER_INIT;
    bool is_text = run->call.kind == TOOL_CALL_BARE &&
                   (run->call.tool->shape == TOOL_TEXT || run->call.tool->shape == TOOL_STDOUT);
    size_t len = 0;
    char *text;

    t.is_broken = content->is_broken;
    hutch_text_add_string(&t, ""); /* an answer may be empty */
    if (!content->is_broken)
        hutch_tool_call_answer(&t, &run->call, content->data ? content->data : "", content->len, is_error);
    hutch_text_done(content);
    text = hutch_text_take(&t, &len);
    hutch_exchange_answer(x, 200, is_text ? "text/plain; charset=utf-8" : "application/json", text, len);
}

static void on_result(void *user, uint64_t id, const struct hutch_result *result)
{
    struct exchange *x = user;
    const struct tool_run *run = x->work;
    struct text_buffer t = TEXT_BUFFER_INIT;
    bool is_error = hutch_tool_add_result(&t, &run->call, run->id, result);

    (void)id;
    hutch_submit_conclude(x, result);
    answer(x, &t, is_error);
}

static void begin(struct exchange *x, struct tool_run *run)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    struct hutch_request request;
    struct hutch_err err;

    if (hutch_id_make(run->id, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_INTERNAL, "%s", err.msg);
        return;
    }
    if (run->call.trouble.msg[0]) {
        hutch_tool_add_trouble(&t, &run->call, run->id, run->call.trouble.msg);
        answer(x, &t, true);
        return;
    }
    hutch_request_init(&request);
    request.language = "python";
    request.code = run->call.code.data;
    request.code_len = run->call.code.len;
    request.rich = hutch_tool_is_cell(run->call.tool);
    request.on_result = on_result;
    hutch_exchange_note_program(x, request.code, request.code_len);
    if (hutch_submit_is_allowed(x))
        hutch_submit_run(x, &request);
}

static struct tool_run *create_run(struct exchange *x)
{
    struct tool_run *run = calloc(1, sizeof(*run));

    x->work = run;
    if (run)
        x->on_free = on_free;
    else
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the call");
    return run;
}

static void call_any(struct exchange *x)
{
    struct tool_run *run = create_run(x);
    struct hutch_err err;

    if (!run)
        return;
    if (hutch_tool_call_parse(x->body.data, x->body.len, &run->call, &err) < 0)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else
        begin(x, run);
}

static void call_one(struct exchange *x)
{
    const struct tool *tool = hutch_tool_find(x->params[0], strlen(x->params[0]));
    struct tool_run *run = tool ? create_run(x) : NULL;
    struct hutch_err err;

    if (!tool)
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "there is no such tool");
    if (!run)
        return;
    if (hutch_tool_call_parse_bare(tool, x->body.data, x->body.len, &run->call, &err) < 0)
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "%s", err.msg);
    else
        begin(x, run);
}

static const struct route routes[] = {
    { "POST", "/v1/tools", ROUTE_JSON, false, call_any, NULL, NULL },
    { "POST", "/v1/tools/{tool}", ROUTE_JSON, false, call_one, NULL, NULL },
};

const struct format hutch_tools_format = { .name = "tools", .routes = routes, .n_routes = ARRAY_SIZE(routes) };
