#include "runtime/gateway/session_request.h"

#include "runtime/gateway/body.h"
#include "runtime/gateway/request_parts.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 4
#define MAX_CODE (8u << 20)
#define MAX_NAME 64
#define MAX_MS (366ull * 24 * 3600 * 1000)
#define MAX_CHECKPOINTS 64
#define MAX_PROCESSES 64
#define MAX_CALLS 64             /* hutch.h, as all of these */
#define MAX_PATH 4095
#define MAX_LINE (1u << 20)
#define MAX_QUESTION (256u << 10)
#define MAX_QUESTION_MS 60000

/* ---- a session ---- */

static int read_env(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct session_request *r = context;
    int rc = hutch_request_read_env(node, &r->env, err);

    r->options.env = (const char *const *)r->env;
    return rc;
}

static int read_limits(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct hutch_session_options *o = &((struct session_request *)context)->options;
    struct hutch_limits limits;

    if (hutch_request_read_limits(node, &limits, err) < 0)
        return -1;
    if (limits.wall_ms || limits.cpu_ms)
        return hutch_json_refuse(node, err, "a session has no limit of time, but each cell has (timeout_ms)");
    o->memory_bytes = limits.memory_bytes;
    o->pids = limits.pids;
    o->cpus = limits.cpus;
    o->output_bytes = limits.output_bytes;
    o->data_bytes = limits.data_bytes;
    o->data_files = limits.data_files;
    o->file_bytes = limits.file_bytes;
    return 0;
}

static int read_zygote(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_string(node, MAX_NAME, &((struct session_request *)context)->options.zygote, err);
}

static int read_idle(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_u64(node, 1, MAX_MS, &((struct session_request *)context)->options.idle_ms, err);
}

static int read_lifetime(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_u64(node, 1, MAX_MS, &((struct session_request *)context)->options.lifetime_ms, err);
}

static int read_max_checkpoints(const struct json_node *node, void *context, struct hutch_err *err)
{
    uint64_t n = 0;
    int rc = hutch_json_u64(node, 1, MAX_CHECKPOINTS, &n, err);

    ((struct session_request *)context)->options.max_checkpoints = (unsigned)n;
    return rc;
}

static int read_checkpoint_bytes(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_u64(node, 1, JSON_U64_MAX, &((struct session_request *)context)->options.checkpoint_bytes, err);
}

static int read_max_processes(const struct json_node *node, void *context, struct hutch_err *err)
{
    uint64_t n = 0;
    int rc = hutch_json_u64(node, 1, MAX_PROCESSES, &n, err);

    ((struct session_request *)context)->options.max_processes = (unsigned)n;
    return rc;
}

static int read_no_interpreter(const struct json_node *node, void *context, struct hutch_err *err)
{
    bool value = false;
    int rc = hutch_json_bool(node, &value, err);

    ((struct session_request *)context)->options.no_interpreter = value;
    return rc;
}

static int read_paths(const struct json_node *node, void *context, struct hutch_err *err)
{
    bool value = false;
    int rc = hutch_json_bool(node, &value, err);

    ((struct session_request *)context)->options.paths = value;
    return rc;
}

static int read_data_targets(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct session_request *r = context;
    int rc = hutch_request_read_words(node, &r->data_targets, err);

    r->options.data_targets = r->data_targets;
    return rc;
}

int hutch_session_request_parse(const char *text, size_t len, struct session_request *ret, struct hutch_err *err)
{
    static const struct json_field fields[] = {
        { "env", read_env, false },           { "zygote", read_zygote, false },
        { "limits", read_limits, false },     { "max_checkpoints", read_max_checkpoints, false },
        { "idle_ms", read_idle, false },      { "checkpoint_bytes", read_checkpoint_bytes, false },
        { "lifetime_ms", read_lifetime, false }, { "max_processes", read_max_processes, false },
        { "no_interpreter", read_no_interpreter, false }, { "paths", read_paths, false },
        { "data_targets", read_data_targets, false },
    };
    struct json_node root;

    *ret = (struct session_request){ .doc = JSON_DOC_INIT };
    hutch_session_options_init(&ret->options);
    if (len == 0)
        return 0;
    if (hutch_body_parse(text, len, MAX_DEPTH, &ret->doc, err) < 0)
        return -1;
    root = hutch_json_root(&ret->doc);
    return hutch_json_object(&root, fields, ARRAY_SIZE(fields), ret, err);
}

void hutch_session_request_done(struct session_request *r)
{
    hutch_request_env_free(r->env);
    free(r->data_targets);
    hutch_json_done(&r->doc);
    *r = (struct session_request){ .doc = JSON_DOC_INIT };
}

/* ---- a cell ---- */

static int read_code(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct cell_request *r = context;

    if (hutch_json_string(node, MAX_CODE, &r->cell.code, err) < 0)
        return -1;
    r->cell.code_len = strlen(r->cell.code);
    return 0;
}

static int read_context(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_string(node, MAX_NAME, &((struct cell_request *)context)->cell.context, err);
}

static int read_timeout(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_u64(node, 1, MAX_MS, &((struct cell_request *)context)->cell.timeout_ms, err);
}

static int read_flag(const struct json_node *node, int *ret, struct hutch_err *err)
{
    bool value;

    if (hutch_json_bool(node, &value, err) < 0)
        return -1;
    *ret = value;
    return 0;
}

static int read_silent(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_flag(node, &((struct cell_request *)context)->cell.silent, err);
}

static int read_no_history(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_flag(node, &((struct cell_request *)context)->cell.no_history, err);
}

static int read_allow_input(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_flag(node, &((struct cell_request *)context)->cell.allow_input, err);
}

static int read_wants_value(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_flag(node, &((struct cell_request *)context)->cell.wants_value, err);
}

static int read_stop_on_error(const struct json_node *node, void *context, struct hutch_err *err)
{
    return read_flag(node, &((struct cell_request *)context)->cell.stop_on_error, err);
}

static int read_cwd(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_string(node, MAX_PATH, &((struct cell_request *)context)->cell.cwd, err);
}

static int read_cell_env(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct cell_request *r = context;
    int rc = hutch_request_read_env(node, &r->env, err);

    r->cell.env = (const char *const *)r->env;
    return rc;
}

/* Names as the library has them: it checks them, and the JSON of each is written anew. */
struct call_name {
    const char *name;
    bool is_async, has_async;
};

static int read_call_name(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_string(node, MAX_NAME, &((struct call_name *)context)->name, err);
}

static int read_call_async(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct call_name *call = context;

    call->has_async = true;
    return hutch_json_bool(node, &call->is_async, err);
}

static int read_call(const struct json_node *node, void *context, struct hutch_err *err)
{
    static const struct json_field fields[] = { { "name", read_call_name, true }, { "async", read_call_async, false } };
    struct text_buffer *to = context;
    struct call_name call = { 0 };
    int rc = hutch_json_is_string(node) ? read_call_name(node, &call, err)
                                        : hutch_json_object(node, fields, ARRAY_SIZE(fields), &call, err);

    if (rc < 0)
        return -1;
    hutch_text_add_string(to, to->len > 1 ? ",{\"name\":" : "{\"name\":");
    hutch_json_quote(to, call.name, strlen(call.name));
    if (call.has_async)
        hutch_text_add_string(to, call.is_async ? ",\"async\":true" : ",\"async\":false");
    hutch_text_add_string(to, "}");
    return 0;
}

static int read_calls(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct cell_request *r = context;
    struct text_buffer t = TEXT_BUFFER_INIT;
    int rc;

    hutch_text_add_string(&t, "[");
    rc = hutch_json_array(node, MAX_CALLS, read_call, &t, err);
    hutch_text_add_string(&t, "]");
    r->cell.calls = r->calls = hutch_text_take(&t, NULL);
    return rc == 0 && !r->calls ? hutch_err_set(err, ENOMEM, "read the names of calls") : rc;
}

int hutch_cell_request_parse(const char *text, size_t len, struct cell_request *ret, struct hutch_err *err)
{
    static const struct json_field fields[] = {
        { "code", read_code, true },          { "context", read_context, false },
        { "timeout_ms", read_timeout, false }, { "silent", read_silent, false },
        { "no_history", read_no_history, false }, { "allow_input", read_allow_input, false },
        { "wants_value", read_wants_value, false }, { "stop_on_error", read_stop_on_error, false },
        { "cwd", read_cwd, false },           { "env", read_cell_env, false },
        { "calls", read_calls, false },
    };
    struct json_node root;

    *ret = (struct cell_request){ .doc = JSON_DOC_INIT };
    hutch_cell_init(&ret->cell);
    if (hutch_body_parse(text, len, MAX_DEPTH, &ret->doc, err) < 0)
        return -1;
    root = hutch_json_root(&ret->doc);
    return hutch_json_object(&root, fields, ARRAY_SIZE(fields), ret, err);
}

void hutch_cell_request_done(struct cell_request *r)
{
    hutch_request_env_free(r->env);
    free(r->calls);
    hutch_json_done(&r->doc);
    *r = (struct cell_request){ .doc = JSON_DOC_INIT };
}

/* ---- a line of input ---- */

static int read_line(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_is_null(node) ? 0
                                    : hutch_json_string(node, MAX_LINE, &((struct input_reply *)context)->text, err);
}

int hutch_input_reply_parse(const char *text, size_t len, struct input_reply *ret, struct hutch_err *err)
{
    static const struct json_field fields[] = { { "text", read_line, true } };
    struct json_node root;

    *ret = (struct input_reply){ .doc = JSON_DOC_INIT };
    if (hutch_body_parse(text, len, MAX_DEPTH, &ret->doc, err) < 0)
        return -1;
    root = hutch_json_root(&ret->doc);
    return hutch_json_object(&root, fields, ARRAY_SIZE(fields), ret, err);
}

void hutch_input_reply_done(struct input_reply *r)
{
    hutch_json_done(&r->doc);
    *r = (struct input_reply){ .doc = JSON_DOC_INIT };
}

/* ---- a question to the shell ---- */

static int read_question_code(const struct json_node *node, void *context, struct hutch_err *err)
{
    struct hutch_question *q = &((struct question_request *)context)->question;

    if (hutch_json_string(node, MAX_QUESTION, &q->code, err) < 0)
        return -1;
    q->code_len = strlen(q->code);
    return 0;
}

static int read_cursor(const struct json_node *node, void *context, struct hutch_err *err)
{
    uint64_t cursor = 0;
    int rc = hutch_json_u64(node, 0, MAX_QUESTION, &cursor, err);

    ((struct question_request *)context)->question.cursor = (int64_t)cursor;
    return rc;
}

static int read_question_context(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_string(node, MAX_NAME, &((struct question_request *)context)->question.context, err);
}

static int read_detail(const struct json_node *node, void *context, struct hutch_err *err)
{
    uint64_t detail = 0;
    int rc = hutch_json_u64(node, 0, 1, &detail, err);

    ((struct question_request *)context)->question.detail = (int)detail;
    return rc;
}

static int read_question_timeout(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_u64(node, 1, MAX_QUESTION_MS, &((struct question_request *)context)->question.timeout_ms, err);
}

int hutch_question_request_parse(const char *text, size_t len, struct question_request *ret, struct hutch_err *err)
{
    static const struct json_field fields[] = {
        { "code", read_question_code, true }, { "cursor", read_cursor, false },
        { "context", read_question_context, false }, { "detail", read_detail, false },
        { "timeout_ms", read_question_timeout, false },
    };
    struct json_node root;

    *ret = (struct question_request){ .doc = JSON_DOC_INIT };
    hutch_question_init(&ret->question);
    ret->question.cursor = -1;
    if (hutch_body_parse(text, len, MAX_DEPTH, &ret->doc, err) < 0)
        return -1;
    root = hutch_json_root(&ret->doc);
    return hutch_json_object(&root, fields, ARRAY_SIZE(fields), ret, err);
}

void hutch_question_request_done(struct question_request *r)
{
    hutch_json_done(&r->doc);
    *r = (struct question_request){ .doc = JSON_DOC_INIT };
}

/* ---- when it ends ---- */

int hutch_lifetime_request_parse(const char *text, size_t len, uint64_t *ret_idle_ms, uint64_t *ret_lifetime_ms,
                                 struct hutch_err *err)
{
    static const struct json_field fields[] = {
        { "idle_ms", read_idle, false },
        { "lifetime_ms", read_lifetime, false },
    };
    __attribute__((cleanup(hutch_json_done))) struct json_doc doc = JSON_DOC_INIT;
    struct session_request r = { .doc = JSON_DOC_INIT };
    struct json_node root;

    if (hutch_body_parse(text, len, MAX_DEPTH, &doc, err) < 0)
        return -1;
    root = hutch_json_root(&doc);
    if (hutch_json_object(&root, fields, ARRAY_SIZE(fields), &r, err) < 0)
        return -1;
    *ret_idle_ms = r.options.idle_ms;
    *ret_lifetime_ms = r.options.lifetime_ms;
    return 0;
}

/* ---- a number ---- */

static int read_number(const struct json_node *node, void *context, struct hutch_err *err)
{
    return hutch_json_u64(node, 0, JSON_U64_MAX, context, err);
}

int hutch_number_request_parse(const char *text, size_t len, const char *key, uint64_t *ret, struct hutch_err *err)
{
    __attribute__((cleanup(hutch_json_done))) struct json_doc doc = JSON_DOC_INIT;
    const struct json_field fields[] = { { key, read_number, true } };
    struct json_node root;

    if (hutch_body_parse(text, len, MAX_DEPTH, &doc, err) < 0)
        return -1;
    root = hutch_json_root(&doc);
    return hutch_json_object(&root, fields, ARRAY_SIZE(fields), ret, err);
}
