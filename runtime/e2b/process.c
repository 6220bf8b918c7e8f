#include "runtime/e2b/process.h"

#include "runtime/e2b/answer.h"
#include "runtime/e2b/connect.h"
#include "runtime/e2b/fields.h"
#include "runtime/e2b/paths.h"
#include "runtime/e2b/request.h"
#include "runtime/e2b/sandbox.h"
#include "runtime/gateway/exchange.h"
#include "runtime/gateway/held.h"
#include "runtime/gateway/sessions.h"
#include "runtime/hutch.h"
#include "runtime/text/base64.h"
#include "runtime/text/json_write.h"
#include "runtime/text/quantity.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define MAX_ARGS 4096
#define MAX_PROCESS (256u << 10) /* of its description, as it is written */
#define MAX_WORD (128u << 10)
#define MAX_TAG 256
#define MAX_WAITING (4u << 20) /* that waits, or comes at once */
#define MAX_SIZE 10000       /* of a terminal */
#define HOLD_BYTES (1u << 20) /* that the client furthest ahead has not taken: then the process waits */

struct hearer {
    LIST_ENTRY(hearer) in_list;
    struct e2b_process *process;
    struct exchange *x;
};
LIST_HEAD(hearer_list, hearer);

struct e2b_process {
    LIST_ENTRY(e2b_process) in_list;
    struct e2b_sandbox *sandbox;
    struct hutch_engine *engine;
    uint64_t id;          /* in its session, and what clients know as its pid */
    char *config;         /* owned; JSON, as the client has said it */
    char *tag;            /* owned; NULL: none */
    bool is_terminal;
    uint64_t wall_ms;
    struct hearer_list hearers;
    bool is_held;             /* its output waits until one of them has taken what there is */
    struct text_buffer input; /* waits since hutch_process_write() had said EAGAIN */
    size_t n_held;            /* of it, that counts for the server's sum */
    struct server *server;
    struct token *token;      /* whose memory it takes */
    bool is_closing;          /* its input ends behind that */
};

/* @len: of the input that waits. */
static void hold_input(struct e2b_process *process, size_t len)
{
    hutch_held_remove(process->server, process->token, process->n_held);
    hutch_held_add(process->server, process->token, len);
    process->n_held = len;
}

static void free_process(struct e2b_process *process)
{
    hold_input(process, 0);
    free(process->config);
    free(process->tag);
    hutch_text_done(&process->input);
    free(process);
}

void hutch_e2b_processes_free(struct e2b_sandbox *sandbox)
{
    struct e2b_process *process;

    while ((process = LIST_FIRST(&sandbox->processes))) {
        LIST_REMOVE(process, in_list);
        free_process(process);
    }
}

/* ---- who listens ---- */

/* Where nobody listens it goes on, and what it says is lost. */
static bool is_heard_slowly(const struct e2b_process *process)
{
    const struct hearer *hearer;

    LIST_FOREACH(hearer, &process->hearers, in_list)
        if (hutch_exchange_behind(hearer->x) < HOLD_BYTES)
            return false;
    return !LIST_EMPTY(&process->hearers);
}

static void pace(struct e2b_process *process)
{
    bool is_held = is_heard_slowly(process);
    struct hutch_error error;

    if (is_held == process->is_held)
        return;
    process->is_held = is_held;
    hutch_process_hold(process->engine, process->sandbox->session->number, process->id, is_held, &error);
}

static void on_drained(struct exchange *x)
{
    const struct hearer *hearer = x->work;

    pace(hearer->process);
}

/* To all that listen. Who is too far behind is left. */
static void tell(struct e2b_process *process, const struct text_buffer *json)
{
    struct hearer *hearer, *next;

    for (hearer = LIST_FIRST(&process->hearers); hearer; hearer = next) {
        next = LIST_NEXT(hearer, in_list);
        if (hutch_e2b_answer_message(hearer->x, 0, json))
            continue;
        LIST_REMOVE(hearer, in_list);
        hutch_exchange_end(hearer->x, false);
    }
}

static void on_hearer_gone(struct exchange *x)
{
    struct hearer *hearer = x->work;

    LIST_REMOVE(hearer, in_list);
    pace(hearer->process);
    if (x->mhd && !x->is_aborted) /* the server ends: the process does so, too */
        hutch_exchange_end(x, false);
    else
        hutch_exchange_forget(x);
}

static struct hearer *create_hearer(struct exchange *x)
{
    struct hearer *hearer = calloc(1, sizeof(*hearer));

    x->work = hearer;
    if (hearer)
        hearer->x = x;
    else
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the stream");
    return hearer;
}

static void begin_listening(struct e2b_process *process, struct hearer *hearer)
{
    static const char sign[] = "\0\0\0\0\x1a{\"event\":{\"keepalive\":{}}}";
    struct text_buffer t = TEXT_BUFFER_INIT;

    hearer->process = process;
    LIST_INSERT_HEAD(&process->hearers, hearer, in_list);
    hutch_exchange_wait(hearer->x, on_hearer_gone);
    hearer->x->on_drained = on_drained;
    hutch_exchange_begin_stream(hearer->x, "application/connect+json");
    hutch_text_addf(&t, "{\"event\":{\"start\":{\"pid\":%" PRIu64 "}}}", process->id);
    hutch_e2b_answer_break_silence(hearer->x, sign, sizeof(sign) - 1);
    hutch_e2b_answer_message(hearer->x, 0, &t); /* nothing is in its way yet; what comes later finds out if it is */
    hutch_text_done(&t);
    pace(process);
}

/* ---- what it says ---- */

static void on_output(void *user, uint64_t session, uint64_t id, int stream, const char *data, size_t len)
{
    struct e2b_process *process = user;
    struct text_buffer t = TEXT_BUFFER_INIT;
    const char *kind = process->is_terminal ? "pty" : stream == 2 ? "stderr" : "stdout";
    auto_free char *encoded = NULL;
    size_t n = 0;

    (void)session;
    (void)id;
    if (LIST_EMPTY(&process->hearers))
        return;
    encoded = hutch_base64_encode(data, len, &n);
    if (!encoded)
        t.is_broken = true;
    hutch_text_addf(&t, "{\"event\":{\"data\":{\"%s\":\"", kind);
    hutch_text_add(&t, encoded, n);
    hutch_text_add_string(&t, "\"}}}");
    tell(process, &t);
    hutch_text_done(&t);
    pace(process);
}

static void add_end(struct text_buffer *t, const struct hutch_process_end *end)
{
    char status[64];

    if (end->exit_code >= 0)
        snprintf(status, sizeof(status), "exit status %d", end->exit_code);
    else
        snprintf(status, sizeof(status), "signal: %d", end->signal);
    hutch_text_addf(t, "{\"event\":{\"end\":{\"exitCode\":%d,\"exited\":%s,\"status\":\"%s\"", end->exit_code,
                    end->exit_code >= 0 ? "true" : "false", status);
    if (end->exit_code != 0) {
        const char *why = end->why[0] ? end->why : status;

        hutch_text_add_string(t, ",\"error\":");
        hutch_json_quote(t, why, strlen(why));
    }
    hutch_text_add_string(t, "}}}");
}

static void on_end(void *user, uint64_t session, uint64_t id, const struct hutch_process_end *end)
{
    struct e2b_process *process = user;
    struct text_buffer event = TEXT_BUFFER_INIT, last = TEXT_BUFFER_INIT;
    bool is_late = process->wall_ms && end->why[0] && end->run_ms >= (double)process->wall_ms;
    struct hearer *hearer;

    (void)session;
    (void)id;
    add_end(&event, end);
    hutch_connect_add_last(&last, is_late ? "deadline_exceeded" : NULL, end->why);
    if (!is_late)
        tell(process, &event);
    while ((hearer = LIST_FIRST(&process->hearers))) {
        bool is_whole = hutch_e2b_answer_message(hearer->x, CONNECT_END, &last);

        LIST_REMOVE(hearer, in_list);
        hutch_exchange_end(hearer->x, is_whole);
    }
    hutch_text_done(&event);
    hutch_text_done(&last);
    LIST_REMOVE(process, in_list);
    free_process(process);
}

/* ---- its input ---- */

/* What waits, as far as it is taken. */
static void write_input(struct e2b_process *process)
{
    struct hutch_engine *engine = process->engine;
    struct text_buffer *input = &process->input;
    struct hutch_error error;
    size_t at = 0;

    while (at < input->len) {
        int n = hutch_process_write(engine, process->sandbox->session->number, process->id, input->data + at,
                                    input->len - at, &error);

        if (n > 0) {
            at += (size_t)n;
            continue;
        }
        if (error.code != EAGAIN)
            at = input->len; /* nobody reads it any more */
        break;
    }
    if (at == input->len) {
        hutch_text_done(input);
        if (process->is_closing)
            hutch_process_close_stdin(engine, process->sandbox->session->number, process->id, &error);
    } else {
        memmove(input->data, input->data + at, input->len - at);
        input->len -= at;
    }
    hold_input(process, input->len);
}

static void on_room(void *user, uint64_t session, uint64_t id)
{
    (void)session;
    (void)id;
    write_input(user);
}

/* ---- requests about one ---- */

static struct e2b_process *find(const struct e2b_sandbox *sandbox, uint64_t id, const char *tag)
{
    struct e2b_process *process;

    LIST_FOREACH(process, &sandbox->processes, in_list)
        if (tag ? process->tag && strcmp(process->tag, tag) == 0 : process->id == id)
            return process;
    return NULL;
}

/* The one that "process" of the body names; NULL: the exchange is refused. */
static struct e2b_process *select_process(struct exchange *x, const struct e2b_sandbox *sandbox, struct json_view body)
{
    struct json_view selector = JSON_VIEW_NONE;
    auto_free char *tag = NULL;
    struct e2b_process *process;
    struct hutch_err err;
    uint64_t id = 0;

    if (hutch_e2b_fields_object(body, "process", &selector, &err) < 0 ||
        hutch_e2b_fields_number(selector, "pid", 0, UINT32_MAX, &id, &err) < 0 ||
        hutch_e2b_fields_text(selector, "tag", MAX_TAG, &tag, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
        return NULL;
    }
    process = find(sandbox, id, tag);
    if (!process)
        hutch_exchange_refuse(x, GATEWAY_NOT_FOUND, "there is no such process, or no more");
    return process;
}

/* Sandbox, body and process of a request that is no stream. NULL: it is refused. */
static struct e2b_process *begin_request(struct exchange *x, bool is_stream, struct json_view *ret_body)
{
    const struct e2b_sandbox *sandbox = hutch_e2b_sandbox_awake(x);

    return sandbox && hutch_e2b_request_read(x, is_stream, ret_body) ? select_process(x, sandbox, *ret_body) : NULL;
}

static void answer_object(struct exchange *x)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_text_add_string(&t, "{}");
    hutch_exchange_answer_json(x, 200, &t);
}

static void answer_call(struct exchange *x, int rc, const struct hutch_error *error)
{
    if (rc < 0)
        hutch_exchange_refuse_error(x, error, GATEWAY_QUEUE_FULL, GATEWAY_NOT_FOUND);
    else
        answer_object(x);
}

void hutch_e2b_process_connect(struct exchange *x)
{
    struct json_view body;
    struct e2b_process *process = begin_request(x, true, &body);
    struct hearer *hearer = process ? create_hearer(x) : NULL;

    if (hearer)
        begin_listening(process, hearer);
}

void hutch_e2b_process_input(struct exchange *x)
{
    struct json_view body, input = JSON_VIEW_NONE;
    struct e2b_process *process = begin_request(x, false, &body);
    auto_free char *encoded = NULL;
    auto_free unsigned char *data = NULL;
    struct hutch_err err;
    size_t len = 0;

    if (!process)
        return;
    if (hutch_e2b_fields_object(body, "input", &input, &err) < 0 ||
        hutch_e2b_fields_text(input, process->is_terminal ? "pty" : "stdin", 2 * MAX_WAITING, &encoded, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
        return;
    }
    data = encoded ? hutch_base64_decode(encoded, strlen(encoded), &len) : NULL;
    if (!data) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "request: 'input' has no '%s', in base64",
                              process->is_terminal ? "pty" : "stdin");
    } else if (process->is_closing) {
        hutch_exchange_refuse(x, GATEWAY_CONFLICT, "the input of the process was closed");
    } else if (len > MAX_WAITING || process->input.len > MAX_WAITING - len ||
               !hutch_held_has_room(process->server, process->token, len)) {
        hutch_exchange_refuse(x, GATEWAY_QUEUE_FULL, "the process has not read what it was sent before");
    } else {
        hutch_text_add(&process->input, (const char *)data, len);
        write_input(process);
        answer_object(x);
    }
}

void hutch_e2b_process_close_stdin(struct exchange *x)
{
    struct json_view body;
    struct e2b_process *process = begin_request(x, false, &body);

    if (!process)
        return;
    process->is_closing = true;
    write_input(process);
    answer_object(x);
}

void hutch_e2b_process_signal(struct exchange *x)
{
    static const struct { const char *name; int signal; } rows[] = {
        { "SIGNAL_SIGKILL", SIGKILL }, { "SIGNAL_SIGTERM", SIGTERM }, { "9", SIGKILL }, { "15", SIGTERM },
    };
    struct json_view body, word;
    struct e2b_process *process = begin_request(x, false, &body);
    struct hutch_error error;
    int signal = 0;

    if (!process)
        return;
    word = hutch_json_view_get(body, "signal");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (hutch_json_view_is(word, rows[i].name) ||
            (word.len == strlen(rows[i].name) && memcmp(word.text, rows[i].name, word.len) == 0))
            signal = rows[i].signal;
    if (!signal)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "request: 'signal' is to be SIGNAL_SIGKILL or _SIGTERM");
    else
        answer_call(x, hutch_process_signal(process->engine, process->sandbox->session->number, process->id, signal,
                                            &error), &error);
}

/* {"size": {"cols", "rows"}} of "pty"; zeros where they are not said. */
static int read_size(struct json_view body, bool *ret_is_there, uint64_t *cols, uint64_t *rows, struct hutch_err *err)
{
    struct json_view pty = JSON_VIEW_NONE, size = JSON_VIEW_NONE;

    *cols = *rows = 0;
    if (hutch_e2b_fields_object(body, "pty", &pty, err) < 0 ||
        hutch_e2b_fields_object(pty, "size", &size, err) < 0 ||
        hutch_e2b_fields_number(size, "cols", 0, MAX_SIZE, cols, err) < 0 ||
        hutch_e2b_fields_number(size, "rows", 0, MAX_SIZE, rows, err) < 0)
        return -1;
    *ret_is_there = pty.text != NULL;
    return 0;
}

void hutch_e2b_process_update(struct exchange *x)
{
    struct json_view body;
    struct e2b_process *process = begin_request(x, false, &body);
    struct hutch_error error;
    struct hutch_err err;
    uint64_t cols, rows;
    bool is_there;

    if (!process)
        return;
    if (read_size(body, &is_there, &cols, &rows, &err) < 0)
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    else if (!is_there)
        answer_object(x);
    else
        answer_call(x, hutch_process_resize(process->engine, process->sandbox->session->number, process->id,
                                            (unsigned)rows, (unsigned)cols, &error), &error);
}

void hutch_e2b_process_list(struct exchange *x)
{
    const struct e2b_sandbox *sandbox = hutch_e2b_sandbox_awake(x);
    struct text_buffer t = TEXT_BUFFER_INIT;
    const struct e2b_process *process;
    struct json_view body;

    if (!sandbox || !hutch_e2b_request_read(x, false, &body))
        return;
    hutch_text_add_string(&t, "{\"processes\":[");
    LIST_FOREACH(process, &sandbox->processes, in_list) {
        hutch_text_addf(&t, "%s{\"pid\":%" PRIu64 ",\"config\":",
                        process == LIST_FIRST(&sandbox->processes) ? "" : ",", process->id);
        hutch_text_add_string(&t, process->config);
        if (process->tag) {
            hutch_text_add_string(&t, ",\"tag\":");
            hutch_json_quote(&t, process->tag, strlen(process->tag));
        }
        hutch_text_add_string(&t, "}");
    }
    hutch_text_add_string(&t, "]}");
    hutch_exchange_answer_json(x, 200, &t);
}

/* ---- start ---- */

struct start_request {
    char *cwd, *tag, *config; /* owned */
    char **args;              /* owned, with the program first */
    char **env;               /* owned */
    bool has_terminal, has_input;
    uint64_t cols, rows, wall_ms;
};

static void start_request_done(struct start_request *r)
{
    free(r->cwd);
    free(r->tag);
    free(r->config);
    hutch_e2b_fields_env_free(r->args); /* a list likewise */
    hutch_e2b_fields_env_free(r->env);
}

static int read_args(struct json_view process, struct start_request *r, struct hutch_err *err)
{
    struct json_view list = hutch_json_view_get(process, "args"), key, value;
    struct json_walk walk = hutch_json_view_walk(list);
    size_t n = hutch_json_view_is_array(list) ? hutch_json_view_count(list) : 0, i = 0;

    if (n > MAX_ARGS || (!hutch_json_view_is_null(list) && !hutch_json_view_is_array(list)))
        return hutch_err_set(err, 0, "request: 'args' is to be a list of at most %d strings", MAX_ARGS);
    r->args = calloc(n + 2, sizeof(char *));
    if (!r->args)
        return hutch_err_set(err, ENOMEM, "read the request");
    if (hutch_e2b_fields_text(process, "cmd", MAX_WORD, &r->args[i++], err) < 0)
        return -1;
    if (!r->args[0] || !r->args[0][0])
        return hutch_err_set(err, 0, "request: 'cmd' is missing");
    while (n > 0 && hutch_json_view_next(&walk, &key, &value)) {
        size_t len;

        if (!hutch_json_view_is_string(value))
            return hutch_err_set(err, 0, "request: 'args' is to be a list of strings");
        if (hutch_json_view_text(value, &r->args[i], &len, err) < 0)
            return -1;
        if (strlen(r->args[i++]) != len)
            return hutch_err_set(err, 0, "request: 'args' has a NUL in it");
    }
    return 0;
}

/* 0: none. */
static int read_timeout(const struct exchange *x, uint64_t *ret, struct hutch_err *err)
{
    const char *text = hutch_exchange_header(x, "Connect-Timeout-Ms");

    *ret = 0;
    return text && hutch_parse_u64(text, ret, err) < 0 ? hutch_err_wrap(err, "Connect-Timeout-Ms") : 0;
}

static int read_start(const struct exchange *x, struct json_view body, struct start_request *r, struct hutch_err *err)
{
    struct json_view process = JSON_VIEW_NONE;
    auto_free char *cwd = NULL;

    r->has_input = true;
    if (hutch_e2b_fields_object(body, "process", &process, err) < 0)
        return -1;
    if (!process.text || process.len > MAX_PROCESS)
        return hutch_err_set(err, 0, "request: 'process' is missing, or longer than %u bytes", MAX_PROCESS);
    r->config = strndup(process.text, process.len);
    if (!r->config)
        return hutch_err_set(err, ENOMEM, "read the request");
    if (read_args(process, r, err) < 0 || hutch_e2b_fields_env(process, "envs", &r->env, err) < 0 ||
        hutch_e2b_fields_text(process, "cwd", E2B_MAX_PATH, &cwd, err) < 0 ||
        hutch_e2b_fields_text(body, "tag", MAX_TAG, &r->tag, err) < 0 ||
        hutch_e2b_fields_bool(body, "stdin", &r->has_input, err) < 0 || read_timeout(x, &r->wall_ms, err) < 0 ||
        read_size(body, &r->has_terminal, &r->cols, &r->rows, err) < 0)
        return -1;
    if (!cwd || !cwd[0])
        return 0;
    r->cwd = hutch_e2b_path_absolute(cwd, err);
    return r->cwd ? 0 : -1;
}

/* Makes the process of what @r has; NULL: the exchange is refused. */
static struct e2b_process *spawn(struct exchange *x, struct e2b_sandbox *sandbox, struct start_request *r)
{
    struct e2b_process *process = calloc(1, sizeof(*process));
    struct hutch_process_options options;
    struct hutch_error error;

    if (!process) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the process");
        return NULL;
    }
    hutch_process_options_init(&options);
    options.args = (const char *const *)r->args;
    options.env = (const char *const *)r->env;
    options.cwd = r->cwd;
    options.has_input = r->has_input && !r->has_terminal;
    options.terminal = r->has_terminal;
    options.cols = (unsigned)r->cols;
    options.rows = (unsigned)r->rows;
    options.wall_ms = r->wall_ms;
    options.output_bytes = HUTCH_NO_LIMIT;
    options.on_output = on_output;
    options.on_room = on_room;
    options.on_end = on_end;
    options.user = process;
    if (hutch_session_spawn(hutch_exchange_engine(x), sandbox->session->number, &options, &process->id, &error) < 0) {
        free(process);
        hutch_exchange_refuse_error(x, &error, GATEWAY_QUEUE_FULL, GATEWAY_NOT_FOUND);
        return NULL;
    }
    process->sandbox = sandbox;
    process->server = x->server;
    process->token = x->token;
    process->engine = hutch_exchange_engine(x);
    process->config = r->config;
    process->tag = r->tag;
    process->is_terminal = r->has_terminal;
    process->wall_ms = r->wall_ms;
    r->config = r->tag = NULL;
    LIST_INSERT_HEAD(&sandbox->processes, process, in_list);
    return process;
}

void hutch_e2b_process_start(struct exchange *x)
{
    struct e2b_sandbox *sandbox = hutch_e2b_sandbox_awake(x);
    struct start_request request = { .cwd = NULL };
    struct e2b_process *process;
    struct hearer *hearer;
    struct json_view body;
    struct hutch_err err;

    if (!sandbox || !hutch_e2b_request_read(x, true, &body))
        return;
    if (read_start(x, body, &request, &err) < 0) {
        hutch_exchange_refuse(x, GATEWAY_INVALID_REQUEST, "%s", err.msg);
    } else if ((hearer = create_hearer(x))) {
        process = spawn(x, sandbox, &request);
        if (process)
            begin_listening(process, hearer);
    }
    start_request_done(&request);
}
