#include "runtime/e2b/code.h"

#include "runtime/e2b/answer.h"
#include "runtime/e2b/event.h"
#include "runtime/e2b/fields.h"
#include "runtime/e2b/sandbox.h"
#include "runtime/gateway/exchange.h"
#include "runtime/gateway/pieces.h"
#include "runtime/gateway/session_api.h"
#include "runtime/gateway/sessions.h"
#include "runtime/hutch.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <string.h>
#include <strings.h>

#define MAX_CODE (6u * (8u << 20))  /* as it is written; the session has its own limit */
#define MAX_WORD 256
#define MAX_PATH 4096
#define SILENCE_MS 5000 /* as the clients' own server has it */

/* What an exchange has besides while its cell or order is the sandbox's. */
struct execution {
    struct gateway_session *session;
    uint64_t cell;           /* its number; 0: it is an order */
    struct pieces pieces[2]; /* of stdout and stderr */
    bool is_behind;          /* the client was too far behind: nothing more goes out */
    bool has_error;          /* one was told */
};

static struct execution *create_execution(struct exchange *x, const struct e2b_sandbox *sandbox)
{
    struct execution *execution = calloc(1, sizeof(*execution));

    x->work = execution;
    if (execution)
        execution->session = sandbox->session;
    else
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the request");
    return execution;
}

static void begin_waiting(struct exchange *x, void (*on_gone)(struct exchange *x))
{
    hutch_gateway_sessions_begin(((struct execution *)x->work)->session);
    hutch_exchange_wait(x, on_gone);
}

/* The session has not taken it. */
static void refuse(struct exchange *x, const struct hutch_error *error)
{
    hutch_gateway_sessions_end(((struct execution *)x->work)->session);
    hutch_exchange_refuse_error(x, error, GATEWAY_QUEUE_FULL, GATEWAY_NOT_FOUND);
}

/* ---- contexts ---- */

/* Its place among the sandbox's; E2B_MAX_CONTEXTS: there is none. */
static size_t find_context(const struct e2b_sandbox *sandbox, const char *id)
{
    for (size_t i = 0; i < sandbox->n_contexts; i++)
        if (strcmp(sandbox->contexts[i].id, id) == 0)
            return i;
    return E2B_MAX_CONTEXTS;
}

static int check_language(const char *language, struct hutch_err *err)
{
    if (!language || strcasecmp(language, "python") == 0)
        return 0;
    return hutch_err_set(err, 0, "Unsupported language: %.64s; the one language here is python", language);
}

static void add_context(struct text_buffer *t, const struct e2b_context *context)
{
    const char *cwd = context->cwd ? context->cwd : E2B_HOME;

    hutch_text_addf(t, "{\"id\":\"%s\",\"language\":\"python\",\"cwd\":", context->id);
    hutch_json_quote(t, cwd, strlen(cwd));
    hutch_text_add_string(t, "}");
}

static int read_context(struct exchange *x, char **ret_cwd, struct hutch_err *err)
{
    auto_free char *language = NULL;
    struct json_view body;

    if (hutch_e2b_fields_parse(x->body.data, x->body.len, &body, err) < 0 ||
        hutch_e2b_fields_text(body, "language", MAX_WORD, &language, err) < 0 || check_language(language, err) < 0 ||
        hutch_e2b_fields_text(body, "cwd", MAX_PATH, ret_cwd, err) < 0)
        return -1;
    if (*ret_cwd && (*ret_cwd)[0] != '/')
        return hutch_err_set(err, 0, "request: 'cwd' is to be an absolute path");
    return 0;
}

void hutch_e2b_code_create_context(struct exchange *x)
{
    struct e2b_sandbox *sandbox = hutch_e2b_sandbox_awake(x);
    struct e2b_context context = { .cwd = NULL };
    struct text_buffer t = TEXT_BUFFER_INIT;
    struct hutch_err err;

    if (!sandbox)
        return;
    if (read_context(x, &context.cwd, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    } else if (sandbox->n_contexts == E2B_MAX_CONTEXTS) {
        hutch_exchange_refuse(x, GATEWAY_QUEUE_FULL, "the sandbox has %d contexts, and can have no more",
                              E2B_MAX_CONTEXTS);
    } else if (hutch_id_make(context.id, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "%s", err.msg);
    } else {
        add_context(&t, &context);
        sandbox->contexts[sandbox->n_contexts++] = context;
        hutch_exchange_answer_json(x, 200, &t);
        return;
    }
    free(context.cwd);
}

void hutch_e2b_code_list_contexts(struct exchange *x)
{
    const struct e2b_sandbox *sandbox = hutch_e2b_sandbox_awake(x);
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (!sandbox)
        return;
    hutch_text_add_string(&t, "[");
    for (size_t i = 0; i < sandbox->n_contexts; i++) {
        hutch_text_add_string(&t, i ? "," : "");
        add_context(&t, &sandbox->contexts[i]);
    }
    hutch_text_add_string(&t, "]");
    hutch_exchange_answer_json(x, 200, &t);
}

static void remove_context(struct e2b_sandbox *sandbox, size_t i)
{
    free(sandbox->contexts[i].cwd);
    sandbox->n_contexts--;
    memmove(&sandbox->contexts[i], &sandbox->contexts[i + 1], (sandbox->n_contexts - i) * sizeof(struct e2b_context));
}

static void answer_null(struct exchange *x)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_text_add_string(&t, "null");
    hutch_exchange_answer_json(x, 200, &t);
}

/* An order cannot be taken back. */
static void on_order_gone(struct exchange *x)
{
    (void)x;
}

static void on_reply(void *user, uint64_t number, const struct hutch_reply *reply)
{
    struct exchange *x = user;
    struct execution *execution = x->work;

    (void)number;
    hutch_gateway_sessions_end(execution->session);
    if (!reply->ok)
        hutch_exchange_refuse(x, GATEWAY_CONFLICT, "%s", reply->message);
    else
        answer_null(x);
}

/* The context that the path names is emptied, or goes. */
static void give_order(struct exchange *x, bool drops)
{
    struct e2b_sandbox *sandbox = hutch_e2b_sandbox_awake(x);
    size_t i = sandbox ? find_context(sandbox, x->params[0]) : 0;
    struct hutch_error error;
    struct hutch_engine *engine = hutch_exchange_engine(x);
    char id[ID_LEN + 1];
    bool has_begun;
    int rc;

    if (!sandbox)
        return;
    if (i == E2B_MAX_CONTEXTS) {
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "Context %.64s not found", x->params[0]);
        return;
    }
    if (drops && i == 0) {
        hutch_exchange_refuse(x, GATEWAY_CONFLICT, "the context that a sandbox begins with stays: it can be restarted");
        return;
    }
    memcpy(id, sandbox->contexts[i].id, sizeof(id));
    has_begun = sandbox->contexts[i].has_begun;
    if (has_begun && !create_execution(x, sandbox))
        return;
    if (drops)
        remove_context(sandbox, i);
    if (!has_begun) {
        answer_null(x);
        return;
    }
    begin_waiting(x, on_order_gone);
    rc = drops ? hutch_session_drop_context(engine, sandbox->session->number, id, on_reply, x, &error)
               : hutch_session_reset_context(engine, sandbox->session->number, id, on_reply, x, &error);
    if (rc < 0)
        refuse(x, &error);
}

void hutch_e2b_code_restart_context(struct exchange *x)
{
    give_order(x, false);
}

void hutch_e2b_code_remove_context(struct exchange *x)
{
    give_order(x, true);
}

/* ---- code ---- */

/* Takes what @t has. What comes is this cell's, so it is the one that runs. */
static void send_lines(struct exchange *x, struct text_buffer *t)
{
    struct execution *execution = x->work;

    if (!execution->is_behind && (t->is_broken || (t->len && !hutch_exchange_write(x, t->data, t->len)))) {
        execution->is_behind = true;
        hutch_session_interrupt(hutch_exchange_engine(x), execution->session->number);
    }
    hutch_text_done(t);
}

static void add_text(struct exchange *x, int stream, const char *data, size_t len, bool is_last)
{
    struct execution *execution = x->work;
    struct text_buffer text = TEXT_BUFFER_INIT, t = TEXT_BUFFER_INIT;
    struct pieces *pieces = &execution->pieces[stream - 1];

    if (is_last)
        hutch_pieces_flush(pieces, &text);
    else
        hutch_pieces_join(pieces, data, len, &text);
    if (text.is_broken)
        t.is_broken = true;
    else if (text.len > 0)
        hutch_e2b_event_add_text(&t, stream, text.data, text.len);
    hutch_text_done(&text);
    send_lines(x, &t);
}

static void flush(struct exchange *x)
{
    add_text(x, 1, NULL, 0, true);
    add_text(x, 2, NULL, 0, true);
}

static void on_start(void *user, uint64_t number, uint64_t cell, int execution_count)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    (void)number;
    (void)cell;
    hutch_text_addf(&t, "{\"type\":\"number_of_executions\",\"execution_count\":%d}\n", execution_count);
    send_lines(user, &t);
}

static void on_output(void *user, uint64_t number, const struct hutch_output *output)
{
    struct exchange *x = user;
    struct execution *execution = x->work;
    struct text_buffer t = TEXT_BUFFER_INIT;

    (void)number;
    if (output->kind == HUTCH_STREAM) {
        if (output->text_len)
            add_text(x, output->stream == 2 ? 2 : 1, output->text, output->text_len, false);
        return;
    }
    flush(x);
    if (output->kind == HUTCH_ERROR_OUTPUT && execution->has_error)
        return;
    if (!hutch_e2b_event_add(&t, output))
        t.is_broken = true;
    execution->has_error |= output->kind == HUTCH_ERROR_OUTPUT;
    send_lines(x, &t);
}

/* Its interpreter has died: the next code of each finds a new one, in the directory that it was made with. */
static void lose_contexts(struct e2b_sandbox *sandbox)
{
    for (size_t i = 0; sandbox && i < sandbox->n_contexts; i++)
        sandbox->contexts[i].has_begun = false;
}

static void on_result(void *user, uint64_t number, const struct hutch_cell_result *result)
{
    struct exchange *x = user;
    struct execution *execution = x->work;
    struct text_buffer t = TEXT_BUFFER_INIT;
    bool is_whole;

    (void)number;
    hutch_session_api_count_cell(x, execution->session, result);
    if (result->interpreter_died)
        lose_contexts(hutch_e2b_sandbox_of(execution->session));
    hutch_gateway_sessions_end(execution->session);
    flush(x);
    if (!execution->has_error && (result->interpreter_died ||
                                  (result->verdict != HUTCH_OK && result->verdict != HUTCH_ERROR)))
        hutch_e2b_event_add_error(&t, "SandboxError", result->message);
    hutch_text_add_string(&t, "{\"type\":\"end_of_execution\"}\n");
    send_lines(x, &t);
    is_whole = !execution->is_behind;
    hutch_exchange_end(x, is_whole);
}

/* Its own cell only: one that waits is taken back, one that runs is interrupted. */
static void on_gone(struct exchange *x)
{
    const struct execution *execution = x->work;

    hutch_session_cancel_cell(hutch_exchange_engine(x), execution->session->number, execution->cell);
}

struct execution_request {
    char *code, *context, *language; /* owned */
    char **env;                      /* owned */
};

static int read_execution(struct exchange *x, struct execution_request *ret, struct hutch_err *err)
{
    struct json_view body;

    if (hutch_e2b_fields_parse(x->body.data, x->body.len, &body, err) < 0 ||
        hutch_e2b_fields_text(body, "code", MAX_CODE, &ret->code, err) < 0 ||
        hutch_e2b_fields_text(body, "context_id", MAX_WORD, &ret->context, err) < 0 ||
        hutch_e2b_fields_text(body, "language", MAX_WORD, &ret->language, err) < 0 ||
        hutch_e2b_fields_env(body, "env_vars", &ret->env, err) < 0)
        return -1;
    if (!ret->code)
        return hutch_err_set(err, 0, "request: 'code' is missing");
    if (ret->context && ret->language)
        return hutch_err_set(err, 0, "Only one of context_id or language can be provided");
    return check_language(ret->language, err);
}

static void execute(struct exchange *x, struct e2b_sandbox *sandbox, const struct execution_request *request)
{
    static const char sign[] = "{\"type\":\"keepalive\"}\n";
    size_t i = request->context ? find_context(sandbox, request->context) : 0;
    struct execution *execution;
    struct e2b_context *context;
    struct hutch_error error;
    struct hutch_cell cell;

    if (i == E2B_MAX_CONTEXTS) {
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "Context %.64s not found", request->context);
        return;
    }
    execution = create_execution(x, sandbox);
    if (!execution)
        return;
    context = &sandbox->contexts[i];
    hutch_cell_init(&cell);
    cell.code = request->code;
    cell.code_len = strlen(request->code);
    cell.context = context->id;
    cell.cwd = context->has_begun ? NULL : context->cwd;
    cell.env = (const char *const *)request->env;
    cell.on_start = on_start;
    cell.on_output = on_output;
    cell.on_result = on_result;
    cell.user = x;
    cell.ret_id = &execution->cell;
    hutch_exchange_note_program(x, cell.code, cell.code_len);
    begin_waiting(x, on_gone);
    if (hutch_session_execute(hutch_exchange_engine(x), sandbox->session->number, &cell, &error) < 0) {
        refuse(x, &error);
        return;
    }
    context->has_begun = true;
    hutch_exchange_begin_stream(x, "application/x-ndjson");
    hutch_exchange_break_silence(x, sign, sizeof(sign) - 1, SILENCE_MS);
}

void hutch_e2b_code_execute(struct exchange *x)
{
    struct e2b_sandbox *sandbox = hutch_e2b_sandbox_awake(x);
    struct execution_request request = { .code = NULL };
    struct hutch_err err;

    if (!sandbox)
        return;
    if (read_execution(x, &request, &err) < 0)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else
        execute(x, sandbox, &request);
    free(request.code);
    free(request.context);
    free(request.language);
    hutch_e2b_fields_env_free(request.env);
}

void hutch_e2b_code_health(struct exchange *x)
{
    const struct e2b_sandbox *sandbox = hutch_e2b_sandbox_in_header(x);
    struct hutch_session_info info;
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (!sandbox || !hutch_e2b_sandbox_info(x, sandbox, &info) || info.state == HUTCH_SESSION_PAUSED) {
        hutch_e2b_answer_error(x, 502, "the sandbox was not found");
    } else if (hutch_e2b_sandbox_port(x) == E2B_PORT_CODE) {
        hutch_text_add_string(&t, "\"OK\"");
        hutch_exchange_answer_json(x, 200, &t);
    } else {
        hutch_e2b_answer_empty(x, 204);
    }
}
