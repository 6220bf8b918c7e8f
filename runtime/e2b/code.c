#include "runtime/e2b/code.h"

#include "runtime/e2b/answer.h"
#include "runtime/e2b/bash.h"
#include "runtime/e2b/event.h"
#include "runtime/e2b/execution.h"
#include "runtime/e2b/fields.h"
#include "runtime/e2b/sandbox.h"
#include "runtime/gateway/exchange.h"
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
#define BASH_CONTEXT "bash" /* the id of the one that code in bash has without a context */

/* ---- contexts ---- */

/* Its place among the sandbox's; E2B_MAX_CONTEXTS: there is none. */
static size_t find_context(const struct e2b_sandbox *sandbox, const char *id)
{
    for (size_t i = 0; i < sandbox->n_contexts; i++)
        if (strcmp(sandbox->contexts[i].id, id) == 0)
            return i;
    return E2B_MAX_CONTEXTS;
}

/* NULL is Python. */
static int read_language(const char *language, bool *ret_is_bash, struct hutch_err *err)
{
    *ret_is_bash = language && strcasecmp(language, "bash") == 0;
    if (!language || *ret_is_bash || strcasecmp(language, "python") == 0)
        return 0;
    return hutch_err_set(err, 0, "Unsupported language: %.64s; the languages here are python and bash", language);
}

static void add_context(struct text_buffer *t, const struct e2b_context *context)
{
    const char *cwd = context->cwd ? context->cwd : E2B_HOME;

    hutch_text_addf(t, "{\"id\":\"%s\",\"language\":\"%s\",\"cwd\":", context->id, context->shell ? "bash" : "python");
    hutch_json_quote(t, cwd, strlen(cwd));
    hutch_text_add_string(t, "}");
}

static int read_context(struct exchange *x, char **ret_cwd, bool *ret_is_bash, struct hutch_err *err)
{
    auto_free char *language = NULL;
    struct json_view body;

    if (hutch_e2b_fields_parse(x->body.data, x->body.len, &body, err) < 0 ||
        hutch_e2b_fields_text(body, "language", MAX_WORD, &language, err) < 0 ||
        read_language(language, ret_is_bash, err) < 0 || hutch_e2b_fields_text(body, "cwd", MAX_PATH, ret_cwd, err) < 0)
        return -1;
    if (*ret_cwd && (*ret_cwd)[0] != '/')
        return hutch_err_set(err, 0, "request: 'cwd' is to be an absolute path");
    return 0;
}

/* Takes @cwd. @id: NULL where it is to have one of its own. NULL: the exchange is refused. */
static struct e2b_context *add_new_context(struct exchange *x, struct e2b_sandbox *sandbox, const char *id, char *cwd,
                                           bool is_bash)
{
    struct e2b_context context = { .cwd = cwd };
    struct hutch_err err;

    if (sandbox->n_contexts == E2B_MAX_CONTEXTS) {
        hutch_exchange_refuse(x, GATEWAY_QUEUE_FULL, "the sandbox has %d contexts, and can have no more",
                              E2B_MAX_CONTEXTS);
    } else if (!id && hutch_id_make(context.id, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "%s", err.msg);
    } else if (is_bash && !(context.shell = hutch_e2b_shell_create(x, sandbox, cwd ? cwd : E2B_HOME))) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the context");
    } else {
        if (id)
            strcpy(context.id, id);
        sandbox->contexts[sandbox->n_contexts] = context;
        return &sandbox->contexts[sandbox->n_contexts++];
    }
    free(cwd);
    return NULL;
}

void hutch_e2b_code_create_context(struct exchange *x)
{
    struct e2b_sandbox *sandbox = hutch_e2b_sandbox_awake(x);
    struct text_buffer t = TEXT_BUFFER_INIT;
    struct e2b_context *context;
    char *cwd = NULL;
    bool is_bash = false;
    struct hutch_err err;

    if (!sandbox)
        return;
    if (read_context(x, &cwd, &is_bash, &err) < 0) {
        free(cwd);
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    } else if ((context = add_new_context(x, sandbox, NULL, cwd, is_bash))) {
        add_context(&t, context);
        hutch_exchange_answer_json(x, 200, &t);
    }
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
    if (sandbox->contexts[i].shell)
        hutch_e2b_shell_drop(sandbox->contexts[i].shell);
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

    (void)number;
    hutch_e2b_execution_leave(x);
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
    if (sandbox->contexts[i].shell && !drops)
        hutch_e2b_shell_restart(sandbox->contexts[i].shell);
    memcpy(id, sandbox->contexts[i].id, sizeof(id));
    has_begun = sandbox->contexts[i].has_begun;
    if (has_begun && !hutch_e2b_execution_create(x, sandbox))
        return;
    if (drops)
        remove_context(sandbox, i);
    if (!has_begun) {
        answer_null(x);
        return;
    }
    hutch_e2b_execution_begin(x, on_order_gone);
    rc = drops ? hutch_session_drop_context(engine, sandbox->session->number, id, on_reply, x, &error)
               : hutch_session_reset_context(engine, sandbox->session->number, id, on_reply, x, &error);
    if (rc < 0)
        hutch_e2b_execution_refuse(x, &error);
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

static void on_start(void *user, uint64_t number, uint64_t cell, int execution_count)
{
    (void)number;
    (void)cell;
    hutch_e2b_execution_send_count(user, execution_count);
}

static void on_output(void *user, uint64_t number, const struct hutch_output *output)
{
    struct exchange *x = user;
    struct execution *execution = x->work;
    struct text_buffer t = TEXT_BUFFER_INIT;

    (void)number;
    if (output->kind == HUTCH_STREAM) {
        if (output->text_len)
            hutch_e2b_execution_send_text(x, output->stream == 2 ? 2 : 1, output->text, output->text_len);
        return;
    }
    hutch_e2b_execution_flush(x);
    if (output->kind == HUTCH_ERROR_OUTPUT && execution->has_error)
        return;
    if (!hutch_e2b_event_add(&t, output))
        t.is_broken = true;
    execution->has_error |= output->kind == HUTCH_ERROR_OUTPUT;
    hutch_e2b_execution_send(x, &t);
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

    (void)number;
    hutch_session_api_count_cell(x, execution->session, result);
    if (result->interpreter_died)
        lose_contexts(hutch_e2b_sandbox_of(execution->session));
    hutch_e2b_execution_leave(x);
    hutch_e2b_execution_flush(x);
    if (!execution->has_error && (result->interpreter_died ||
                                  (result->verdict != HUTCH_OK && result->verdict != HUTCH_ERROR)))
        hutch_e2b_event_add_error(&t, "SandboxError", result->message, result->message);
    hutch_e2b_execution_send(x, &t);
    hutch_e2b_execution_end(x);
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
    bool is_bash;                    /* @language is */
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
    return read_language(ret->language, &ret->is_bash, err);
}

/* The one that code is for, made where it is the first in its language; NULL: the exchange is refused. */
static struct e2b_context *choose_context(struct exchange *x, struct e2b_sandbox *sandbox,
                                          const struct execution_request *request)
{
    const char *id = request->context ? request->context : request->is_bash ? BASH_CONTEXT : sandbox->contexts[0].id;
    size_t i = find_context(sandbox, id);

    if (i < E2B_MAX_CONTEXTS)
        return &sandbox->contexts[i];
    if (!request->context)
        return add_new_context(x, sandbox, BASH_CONTEXT, NULL, true);
    hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "Context %.64s not found", id);
    return NULL;
}

/* Of the cell that runs: what came is its own. */
static void interrupt(struct exchange *x)
{
    const struct execution *execution = x->work;

    hutch_session_interrupt(hutch_exchange_engine(x), execution->session->number);
}

static void execute_python(struct exchange *x, const struct e2b_sandbox *sandbox, struct e2b_context *context,
                           const struct execution_request *request)
{
    struct execution *execution = hutch_e2b_execution_create(x, sandbox);
    struct hutch_error error;
    struct hutch_cell cell;

    if (!execution)
        return;
    execution->interrupt = interrupt;
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
    hutch_e2b_execution_begin(x, on_gone);
    if (hutch_session_execute(hutch_exchange_engine(x), sandbox->session->number, &cell, &error) < 0) {
        hutch_e2b_execution_refuse(x, &error);
        return;
    }
    context->has_begun = true;
    hutch_e2b_execution_begin_stream(x);
}

static void execute(struct exchange *x, struct e2b_sandbox *sandbox, const struct execution_request *request)
{
    struct e2b_context *context = choose_context(x, sandbox, request);

    if (context && context->shell)
        hutch_e2b_bash_execute(x, sandbox, context->shell, request->code, request->env);
    else if (context)
        execute_python(x, sandbox, context, request);
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
