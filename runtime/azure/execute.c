#include "runtime/azure/execute.h"

#include "runtime/azure/session.h"
#include "runtime/gateway/exchange.h"
#include "runtime/gateway/host.h"
#include "runtime/gateway/session_api.h"
#include "runtime/gateway/sessions.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <string.h>

#define SIGNAL_BASE 128 /* as a shell has it */

/* Of what became of an execution so much is kept: of one that somebody has waited for, and of another one. */
#define MAX_KEPT (64u << 10)
#define MAX_KEPT_ASYNC (4u << 20)

/* ---- the answer ---- */

static void add_quoted(struct text_buffer *t, const char *text)
{
    hutch_json_quote(t, text, strlen(text));
}

static const char *state_of(const struct azure_execution *e)
{
    return e->state == AZURE_RUNNING ? "Running" : e->state == AZURE_SUCCEEDED ? "Succeeded" : "Failed";
}

static void add_execution(struct text_buffer *t, const struct azure_execution *e)
{
    hutch_text_addf(t, "{\"id\":\"%s\",\"identifier\":", e->id);
    add_quoted(t, e->session->name);
    if (e->process && e->state != AZURE_RUNNING)
        hutch_text_addf(t, ",\"status\":\"%d\"", e->exit_code);
    else
        hutch_text_addf(t, ",\"executionType\":\"%s\",\"status\":\"%s\"", e->is_async ? "Asynchronous" : "Synchronous",
                        state_of(e));
    if (e->state != AZURE_RUNNING && e->result.data) {
        hutch_text_add_string(t, ",\"result\":{");
        hutch_text_add(t, e->result.data, e->result.len);
        hutch_text_add_string(t, "}");
    }
    if (e->state == AZURE_FAILED && !e->process)
        hutch_text_add_string(t, ",\"error\":{\"error\":{\"code\":\"ExecutionFailed\","
                                 "\"message\":\"stderr says why\"}}");
    hutch_text_add_string(t, "}\n");
}

static void answer_execution(struct exchange *x, const struct azure_execution *e)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (e->shape == AZURE_PROPERTIES && !e->process && e->state != AZURE_RUNNING)
        hutch_text_add(&t, e->result.data ? e->result.data : "", e->result.len);
    else
        add_execution(&t, e);
    t.is_broken |= e->result.is_broken;
    hutch_exchange_answer_json(x, 200, &t);
}

/* ---- their list ---- */

static bool make_room(struct azure_session *state)
{
    struct azure_execution *e;

    if (state->n < AZURE_MAX_EXECUTIONS)
        return true;
    TAILQ_FOREACH(e, &state->list, in_list)
        if (e->state != AZURE_RUNNING)
            break;
    if (!e)
        return false;
    TAILQ_REMOVE(&state->list, e, in_list);
    hutch_text_done(&e->out);
    hutch_text_done(&e->err);
    hutch_text_done(&e->result);
    free(e);
    state->n--;
    return true;
}

/* NULL: the exchange was refused. */
static struct azure_execution *create(struct exchange *x, struct gateway_session *session, enum azure_shape shape)
{
    struct azure_session *state = session->own;
    struct azure_execution *e;
    struct hutch_err err;

    if (!make_room(state)) {
        hutch_exchange_refuse(x, GATEWAY_QUEUE_FULL, "%d executions of this session are not over",
                              AZURE_MAX_EXECUTIONS);
        return NULL;
    }
    e = calloc(1, sizeof(*e));
    if (!e || hutch_id_make(e->id, &err) < 0) {
        free(e);
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the execution");
        return NULL;
    }
    e->session = session;
    e->shape = shape;
    TAILQ_INSERT_TAIL(&state->list, e, in_list);
    state->n++;
    return e;
}

static void drop(struct azure_execution *e)
{
    struct azure_session *state = e->session->own;

    TAILQ_REMOVE(&state->list, e, in_list);
    state->n--;
    free(e);
}

/* ---- what becomes of it ---- */

struct azure_work {
    struct azure_execution *execution;
};

static void conclude(struct azure_execution *e, bool is_ok)
{
    struct exchange *x = e->x;

    e->state = is_ok ? AZURE_SUCCEEDED : AZURE_FAILED;
    e->x = NULL;
    hutch_gateway_sessions_touch(e->session);
    if (x)
        answer_execution(x, e);
    if (e->result.len > (e->is_async ? MAX_KEPT_ASYNC : MAX_KEPT))
        hutch_text_done(&e->result);
}

static void on_cell(void *user, uint64_t number, const struct hutch_cell_result *result)
{
    struct azure_execution *e = user;

    (void)number;
    if (e->x)
        hutch_session_api_count_cell(e->x, e->session, result);
    if (e->shape == AZURE_PROPERTIES)
        hutch_azure_add_properties(&e->result, result, NULL);
    else
        hutch_azure_add_result(&e->result, result, e->shape);
    conclude(e, result->verdict == HUTCH_OK);
}

static void on_output(void *user, uint64_t session, uint64_t process, int stream, const char *data, size_t len)
{
    struct azure_execution *e = user;

    (void)session;
    (void)process;
    hutch_text_add(stream == 2 ? &e->err : &e->out, data, len);
}

static void on_end(void *user, uint64_t session, uint64_t process, const struct hutch_process_end *end)
{
    struct azure_execution *e = user;

    (void)session;
    (void)process;
    e->exit_code = end->exit_code >= 0 ? end->exit_code : SIGNAL_BASE + (end->signal ? end->signal : 9);
    hutch_text_add_string(&e->err, end->why);
    hutch_text_add_string(&e->result, "\"stdout\":");
    hutch_json_quote(&e->result, e->out.data ? e->out.data : "", e->out.len);
    hutch_text_add_string(&e->result, ",\"stderr\":");
    hutch_json_quote(&e->result, e->err.data ? e->err.data : "", e->err.len);
    hutch_text_addf(&e->result, ",\"executionTimeInMilliseconds\":%.0f", end->run_ms);
    e->result.is_broken |= e->out.is_broken || e->err.is_broken;
    hutch_text_done(&e->out);
    hutch_text_done(&e->err);
    conclude(e, end->exit_code == 0);
}

/* A client that closes its connection cancels what it has asked for. */
static void on_gone(struct exchange *x)
{
    const struct azure_work *work = x->work;
    const struct azure_execution *e = work->execution;

    if (e->process)
        hutch_process_signal(hutch_exchange_engine(x), e->session->number, e->process, 9, NULL);
    else
        hutch_session_cancel_cell(hutch_exchange_engine(x), e->session->number, e->cell);
}

/* ---- its begin ---- */

/* Clients ask for 100 seconds as a matter of course: more than the policy's limit is that. */
static uint64_t time_of(struct exchange *x, const struct azure_request *r)
{
    struct hutch_limits limits = { .size = sizeof(limits) };

    hutch_exchange_policy(x, &limits);
    return limits.wall_ms && (r->timeout_ms == 0 || r->timeout_ms > limits.wall_ms) ? limits.wall_ms : r->timeout_ms;
}

static int start_code(struct exchange *x, const struct azure_request *r, struct azure_execution *e,
                      struct hutch_error *error)
{
    struct hutch_cell cell;

    hutch_cell_init(&cell);
    cell.code = r->code;
    cell.timeout_ms = time_of(x, r);
    cell.wants_value = 1;
    cell.on_result = on_cell;
    cell.user = e;
    cell.ret_id = &e->cell;
    hutch_exchange_note_program(x, cell.code, strlen(cell.code));
    return hutch_session_execute(hutch_exchange_engine(x), e->session->number, &cell, error);
}

static int start_command(struct exchange *x, const struct azure_request *r, struct azure_execution *e,
                         struct hutch_error *error)
{
    struct hutch_process_options options;

    hutch_process_options_init(&options);
    options.shell = r->command;
    options.wall_ms = time_of(x, r);
    options.on_output = on_output;
    options.on_end = on_end;
    options.user = e;
    return hutch_session_spawn(hutch_exchange_engine(x), e->session->number, &options, &e->process, error);
}

static void start(struct exchange *x, struct gateway_session *session, const struct azure_request *r,
                  enum azure_shape shape)
{
    struct azure_work *work = calloc(1, sizeof(*work));
    struct azure_execution *e;
    struct hutch_error error;

    x->work = work;
    if (!work) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the execution");
        return;
    }
    e = work->execution = create(x, session, shape);
    if (!e)
        return;
    e->is_async = r->is_async;
    if ((r->command ? start_command(x, r, e, &error) : start_code(x, r, e, &error)) < 0) {
        drop(e);
        hutch_exchange_refuse_error(x, &error, GATEWAY_QUEUE_FULL, GATEWAY_NOT_FOUND);
    } else if (r->is_async) {
        answer_execution(x, e);
    } else {
        e->x = x;
        hutch_exchange_wait(x, on_gone);
    }
}

void hutch_azure_execute(struct exchange *x)
{
    struct gateway_session *session;
    struct azure_request request = { .code = NULL };
    enum azure_shape shape;
    struct hutch_err err;

    if (!hutch_azure_read_version(x, &shape))
        return;
    if (hutch_azure_request_parse(x->body.data, x->body.len, &request, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    } else {
        session = hutch_azure_find(x, true);
        if (session)
            start(x, session, &request, shape);
    }
    hutch_azure_request_done(&request);
}

void hutch_azure_get_execution(struct exchange *x)
{
    const struct gateway_session *session;
    const struct azure_session *state;
    const struct azure_execution *e = NULL;

    session = hutch_azure_find(x, false);
    if (!session)
        return;
    state = session->own;
    TAILQ_FOREACH(e, &state->list, in_list)
        if (strcmp(e->id, x->params[0]) == 0)
            break;
    if (e)
        answer_execution(x, e);
    else
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "there is no such execution");
}
