#include "runtime/e2b/bash.h"

#include "runtime/e2b/event.h"
#include "runtime/e2b/execution.h"
#include "runtime/e2b/shell.h"
#include "runtime/gateway/exchange.h"
#include "runtime/gateway/host.h"
#include "runtime/hutch.h"

#include <stdio.h>
#include <string.h>

#define MAX_CODE (1u << 20)
#define HOLD_BYTES (1u << 20) /* that the client has not taken: then the shell waits */

static void on_text(void *user, int stream, const char *data, size_t len)
{
    struct exchange *x = user;
    const struct execution *execution = x->work;

    hutch_e2b_execution_send_text(x, stream, data, len);
    if (!execution->is_behind && !x->is_aborted && hutch_exchange_behind(x) >= HOLD_BYTES)
        hutch_e2b_shell_hold(execution->shell, true);
}

static void on_drained(struct exchange *x)
{
    const struct execution *execution = x->work;

    if (execution->code)
        hutch_e2b_shell_hold(execution->shell, false);
}

static void on_begin(void *user, int count)
{
    struct exchange *x = user;

    if (!x->is_stream)
        hutch_e2b_execution_begin_stream(x);
    x->on_drained = on_drained;
    hutch_e2b_execution_send_count(x, count);
}

static void on_end(void *user, int status, const char *why)
{
    struct exchange *x = user;
    struct execution *execution = x->work;
    struct text_buffer t = TEXT_BUFFER_INIT;
    char value[16], message[32];

    execution->code = NULL;
    hutch_e2b_execution_leave(x);
    if (!x->is_stream)
        hutch_e2b_execution_begin_stream(x);
    hutch_e2b_execution_flush(x);
    snprintf(value, sizeof(value), "%d", status);
    snprintf(message, sizeof(message), "exit status %d", status);
    if (status == SHELL_LATE)
        hutch_e2b_event_add_error(&t, "KeyboardInterrupt", why, why); /* by which name clients know it of Python */
    else if (status < 0)
        hutch_e2b_event_add_error(&t, "SandboxError", why, why);
    else if (status > 0)
        hutch_e2b_event_add_error(&t, "ExitError", value, message);
    hutch_e2b_execution_send(x, &t);
    hutch_e2b_execution_end(x);
}

static const struct shell_events events = { .on_begin = on_begin, .on_text = on_text, .on_end = on_end };

static void on_gone(struct exchange *x)
{
    struct execution *execution = x->work;

    if (!execution->code || hutch_e2b_shell_cancel(execution->shell, execution->code))
        return;
    execution->code = NULL;
    hutch_e2b_execution_leave(x);
    if (x->mhd && !x->is_aborted)
        hutch_exchange_end(x, false);
    else
        hutch_exchange_forget(x);
}

static void interrupt(struct exchange *x)
{
    const struct execution *execution = x->work;

    if (execution->code)
        hutch_e2b_shell_cancel(execution->shell, execution->code);
}

/* NULL: the exchange is refused. */
static struct shell_code *read_code(struct exchange *x, const char *text, char *const *env)
{
    struct shell_code *code;
    struct hutch_err err;

    if (strlen(text) > MAX_CODE) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "request: 'code' has %zu bytes, and in bash may have %u: "
                              "write a file, and execute that", strlen(text), MAX_CODE);
        return NULL;
    }
    code = hutch_e2b_shell_code_create(text, env, &err);
    if (!code) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    } else if (!hutch_exchange_hold(x, hutch_e2b_shell_code_size(code))) {
        hutch_e2b_shell_code_free(code);
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the code");
        return NULL;
    }
    return code;
}

void hutch_e2b_bash_execute(struct exchange *x, const struct e2b_sandbox *sandbox, struct e2b_shell *shell,
                            const char *text, char *const *env)
{
    struct hutch_limits limits = { .size = sizeof(limits) };
    struct execution *execution;
    struct hutch_error error;
    struct shell_code *code = read_code(x, text, env);

    if (!code)
        return;
    execution = hutch_e2b_execution_create(x, sandbox);
    if (!execution) {
        hutch_e2b_shell_code_free(code);
        return;
    }
    execution->shell = shell;
    execution->code = code;
    execution->interrupt = interrupt;
    hutch_exchange_policy(x, &limits);
    hutch_exchange_note_program(x, text, strlen(text));
    hutch_e2b_execution_begin(x, on_gone);
    if (hutch_e2b_shell_execute(shell, code, limits.wall_ms == HUTCH_NO_LIMIT ? 0 : limits.wall_ms, &events, x,
                                &error) < 0) {
        hutch_e2b_shell_code_free(code);
        execution->code = NULL;
        hutch_e2b_execution_refuse(x, &error);
    } else if (!x->is_stream) {
        hutch_e2b_execution_begin_stream(x); /* it waits for others */
    }
}
