#include "runtime/gateway/batch_api.h"

#include "runtime/gateway/run_request.h"
#include "runtime/gateway/run_result.h"
#include "runtime/gateway/server_priv.h"
#include "runtime/gateway/submit.h"
#include "sandbox/fd.h"

#include <string.h>
#include <unistd.h>

#define AT_ONCE_PER_CPU 2
#define MAX_BEHIND (1u << 20) /* where a client has not read so much, no further line is begun */

struct batch;

/* One line whose run is the engine's. */
struct batch_run {
    LIST_ENTRY(batch_run) in_list;
    struct batch *batch;
    uint64_t id;
    size_t line;
    char *name; /* owned; the line's own id as JSON, NULL without one */
};

/* What an exchange has besides. */
struct batch {
    struct exchange *x;
    struct text_buffer text; /* the body; begun up to @at */
    size_t at, line;
    LIST_HEAD(, batch_run) running;
    unsigned n_running, max_running;
    bool is_left;            /* nobody wants the rest */
    bool is_ended;
};

/* ---- answers ---- */

static void leave(struct batch *b)
{
    const struct batch_run *run;

    b->is_left = true;
    LIST_FOREACH(run, &b->running, in_list)
        hutch_engine_cancel(b->x->server->engine, run->id);
}

/* @rest: what follows the id, from the key on, and the closing brace. */
static bool write_line(struct batch *b, size_t line, const char *name, const char *rest)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    bool is_taken;

    hutch_text_addf(&t, "{\"line\":%zu,\"id\":", line);
    hutch_text_add_string(&t, name ? name : "null");
    hutch_text_add_string(&t, ",");
    hutch_text_add_string(&t, rest);
    is_taken = !t.is_broken && hutch_exchange_write_all(b->x, t.data, t.len);
    hutch_text_done(&t);
    return is_taken;
}

static void write_error(struct batch *b, size_t line, const char *name, enum gateway_error error, const char *message)
{
    size_t len;
    auto_free char *json = hutch_gateway_error_json(error, message, &len); /* {"error":{…}}, and a newline */

    b->x->server->metrics.errors[error]++;
    if (!json || !write_line(b, line, name, json + 1))
        leave(b); /* the answer cannot be whole any more */
}

static void write_result(struct batch *b, const struct batch_run *run, const struct hutch_result *result)
{
    auto_free char *json = hutch_run_result_json(result);
    struct text_buffer t = TEXT_BUFFER_INIT;
    bool is_taken;

    hutch_text_add_string(&t, "\"result\":");
    hutch_text_add_string(&t, json ? json : "");
    hutch_text_add_string(&t, "}\n");
    is_taken = json && !t.is_broken && write_line(b, run->line, run->name, t.data);
    hutch_text_done(&t);
    if (!is_taken)
        write_error(b, run->line, run->name, GATEWAY_OVERLOADED, "the server has no room for the result");
}

/* ---- lines ---- */

static void go_on(struct batch *b);

static void remove_run(struct batch_run *run)
{
    LIST_REMOVE(run, in_list);
    run->batch->n_running--;
    free(run->name);
    free(run);
}

static void on_result(void *user, uint64_t id, const struct hutch_result *result)
{
    struct batch_run *run = user;
    struct batch *b = run->batch;
    struct exchange *x = b->x;

    (void)id;
    hutch_server_count_run(x->server, x->format->name, result);
    if (x->token)
        x->token->n_runs--;
    if (!b->is_left)
        write_result(b, run, result);
    remove_run(run);
    go_on(b);
}

/* Takes @name. False: the line is to be begun again when a run of this batch has ended. */
static bool submit(struct batch *b, struct hutch_request *request, char *name)
{
    struct exchange *x = b->x;
    struct batch_run *run = calloc(1, sizeof(*run));
    struct hutch_error error = { .code = EAGAIN, .message = "this token has as many runs as its share is" };

    if (!run) {
        write_error(b, b->line, name, GATEWAY_OVERLOADED, "the server has no memory for the run");
        free(name);
        return true;
    }
    *run = (struct batch_run){ .batch = b, .line = b->line, .name = name };
    LIST_INSERT_HEAD(&b->running, run, in_list);
    b->n_running++;
    request->on_result = on_result;
    request->user = run;
    if ((!x->token || x->token->n_runs < hutch_server_share(x->server)) &&
        hutch_submit_for(x, request, &run->id, &error) == 0) {
        if (x->token)
            x->token->n_runs++;
        return true;
    }
    if (error.code == EAGAIN && b->n_running > 1) {
        remove_run(run);
        return false;
    }
    write_error(b, b->line, name, hutch_gateway_error_of(error.code, GATEWAY_QUEUE_FULL, GATEWAY_INVALID_REQUEST),
                error.message);
    remove_run(run);
    return true;
}

static bool begin_line(struct batch *b, const char *text, size_t len)
{
    struct run_request request;
    struct hutch_err err;
    bool is_begun = true;

    if (hutch_run_request_parse_line(text, len, &request, &err) < 0) {
        write_error(b, b->line, request.id, GATEWAY_INVALID_REQUEST, err.msg);
    } else if (b->x->server->has_failed) {
        write_error(b, b->line, request.id, GATEWAY_ENGINE_FAILED, "the engine can run nothing any more");
    } else {
        is_begun = submit(b, &request.request, request.id);
        request.id = NULL;
    }
    hutch_run_request_done(&request);
    return is_begun;
}

/* Without white space at its end. */
static size_t line_length(const char *text, size_t len)
{
    while (len && strchr(" \t\r", text[len - 1]) && text[len - 1])
        len--;
    return len;
}

/* Lines with nothing on them, and what is before the first word of the next: a body of nothing else is 16 MiB of it. */
static void skip_space(struct batch *b)
{
    const char *text = b->text.data;

    for (; b->at < b->text.len; b->at++)
        if (text[b->at] == '\n')
            b->line++;
        else if (text[b->at] != ' ' && text[b->at] != '\t' && text[b->at] != '\r')
            break;
}

/* May free the exchange, and the batch with it. */
static void go_on(struct batch *b)
{
    for (skip_space(b); !b->is_left && !b->is_ended && b->at < b->text.len && b->n_running < b->max_running &&
           hutch_exchange_behind(b->x) < MAX_BEHIND; skip_space(b)) {
        const char *line = b->text.data + b->at;
        const char *newline = memchr(line, '\n', b->text.len - b->at);
        size_t len = newline ? (size_t)(newline - line) : b->text.len - b->at;

        b->line++;
        if (!begin_line(b, line, line_length(line, len))) {
            b->line--;
            break;
        }
        b->at += len + (newline != NULL);
    }
    if (b->is_ended || b->n_running || (!b->is_left && b->at < b->text.len))
        return;
    b->is_ended = true;
    hutch_exchange_end(b->x, !b->is_left);
}

/* ---- the exchange ---- */

static void on_gone(struct exchange *x)
{
    struct batch *b = x->work;

    leave(b);
    go_on(b);
}

static void on_drained(struct exchange *x)
{
    go_on(x->work);
}

static void on_free(struct exchange *x)
{
    struct batch *b = x->work;

    while (!LIST_EMPTY(&b->running)) /* the engine is gone, and calls back no more */
        remove_run(LIST_FIRST(&b->running));
    hutch_text_done(&b->text);
}

static unsigned count_at_once(const struct server *s)
{
    long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned jobs = s->options->engine->max_running;

    return AT_ONCE_PER_CPU * (jobs ? jobs : n_cpus > 0 ? (unsigned)n_cpus : 1);
}

void hutch_batch_api_run(struct exchange *x)
{
    struct batch *b;

    if (hutch_exchange_header(x, "Idempotency-Key")) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "an Idempotency-Key is for one run or one call: a batch that "
                                                          "is sent again runs again");
        return;
    }
    b = calloc(1, sizeof(*b));
    x->work = b;
    if (!b) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the batch");
        return;
    }
    b->x = x;
    b->text = x->body; /* its bytes count for the exchange until that ends */
    x->body = (struct text_buffer)TEXT_BUFFER_INIT;
    b->max_running = count_at_once(x->server);
    LIST_INIT(&b->running);
    x->on_free = on_free;
    hutch_exchange_wait(x, on_gone);
    hutch_exchange_begin_stream(x, "application/x-ndjson");
    x->on_drained = on_drained;
    go_on(b);
}
