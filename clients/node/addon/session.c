/* Sessions: their cells, and the orders that are theirs. */
#include "call.h"
#include "values.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a session ---- */

static void on_end(void *user, uint64_t session, const char *why, const char *directory)
{
    (void)session;
    (void)directory;
    hutch_node_note(user, true, NOTE_TEXT, why ? why : "", why ? strlen(why) : 0);
}

static void read_options(struct values *v, napi_value from, struct hutch_session_options *options)
{
    napi_value limits = hutch_node_field(v, from, "limits");

    options->zygote = hutch_node_text(v, from, "zygote", NULL);
    options->env = hutch_node_texts(v, from, "env");
    options->data_targets = hutch_node_texts(v, from, "data_targets");
    options->idle_ms = hutch_node_number(v, from, "idle_ms");
    options->lifetime_ms = hutch_node_number(v, from, "lifetime_ms");
    options->max_checkpoints = hutch_node_count(v, from, "max_checkpoints");
    options->checkpoint_bytes = hutch_node_number(v, from, "checkpoint_bytes");
    options->memory_bytes = hutch_node_number(v, limits, "memory_bytes");
    options->pids = hutch_node_number(v, limits, "pids");
    options->cpus = hutch_node_number(v, limits, "cpus");
    options->output_bytes = hutch_node_number(v, limits, "output_bytes");
    options->data_bytes = hutch_node_number(v, limits, "data_bytes");
    options->data_files = hutch_node_number(v, limits, "data_files");
    options->file_bytes = hutch_node_number(v, limits, "file_bytes");
}

/* openSession(engine, options, onEnd) */
static napi_value open_session(napi_env env, napi_callback_info info)
{
    struct values v = { .env = env };
    struct hutch_session_options options;
    struct hutch_error error;
    struct pending *p = NULL;
    napi_value args[ARGS_MAX], result = NULL;
    struct engine *e = hutch_node_args(env, info, args);

    if (!e)
        return NULL;
    hutch_session_options_init(&options);
    read_options(&v, args[1], &options);
    if (!hutch_node_values_throw(&v))
        p = hutch_node_pending_create(e, hutch_node_undefined(env), args[2], false);
    if (p) {
        options.on_end = on_end;
        options.user = p;
        if (hutch_session_open(e->engine, &options, &p->number, &error) == 0) {
            result = hutch_node_make_number(env, p->number);
        } else {
            hutch_node_pending_free(p);
            hutch_node_throw(env, &error);
        }
    }
    hutch_node_values_done(&v);
    return result;
}

/* closeSession(engine, session) */
static napi_value close_session(napi_env env, napi_callback_info info)
{
    napi_value args[ARGS_MAX];
    struct engine *e = hutch_node_args(env, info, args);

    return e ? hutch_node_make_bool(env, hutch_session_close(e->engine, hutch_node_id(env, args[1])) == 1) : NULL;
}

/* ---- cells ---- */

static void on_cell_output(void *user, uint64_t session, const struct hutch_output *output)
{
    (void)session;
    if (output->kind == HUTCH_STREAM)
        hutch_node_note(user, false, output->stream, output->text, output->text_len);
    else
        hutch_node_note(user, false, NOTE_TEXT + (int)output->kind, output->json, strlen(output->json));
}

static void on_cell_result(void *user, uint64_t session, const struct hutch_cell_result *result)
{
    (void)session;
    hutch_node_note_json(user, hutch_cell_result_to_json(result));
}

/* execute(engine, session, cell, onOutput, onResult) */
static napi_value execute(napi_env env, napi_callback_info info)
{
    struct values v = { .env = env };
    struct hutch_cell cell;
    struct hutch_error error;
    struct pending *p = NULL;
    napi_value args[ARGS_MAX], result = NULL;
    struct engine *e = hutch_node_args(env, info, args);

    if (!e)
        return NULL;
    hutch_cell_init(&cell);
    cell.code = hutch_node_text(&v, args[2], "code", &cell.code_len);
    cell.context = hutch_node_text(&v, args[2], "context", NULL);
    cell.timeout_ms = hutch_node_number(&v, args[2], "timeout_ms");
    cell.silent = hutch_node_flag(&v, args[2], "silent");
    cell.no_history = hutch_node_flag(&v, args[2], "no_history");
    if (!hutch_node_values_throw(&v))
        p = hutch_node_pending_create(e, args[3], args[4], true);
    if (p) {
        cell.on_output = p->on_output ? on_cell_output : NULL;
        cell.on_result = on_cell_result;
        cell.user = p;
        cell.ret_id = &p->number;
        if (hutch_session_execute(e->engine, hutch_node_id(env, args[1]), &cell, &error) == 0) {
            result = hutch_node_make_number(env, p->number);
        } else {
            hutch_node_pending_free(p);
            hutch_node_throw(env, &error);
        }
    }
    hutch_node_values_done(&v);
    return result;
}

/* cancelCell(engine, session, cell) */
static napi_value cancel_cell(napi_env env, napi_callback_info info)
{
    napi_value args[ARGS_MAX];
    struct engine *e = hutch_node_args(env, info, args);

    if (!e)
        return NULL;
    return hutch_node_make_bool(env, hutch_session_cancel_cell(e->engine, hutch_node_id(env, args[1]),
                                                               hutch_node_id(env, args[2])) != 0);
}

/* interrupt(engine, session) */
static napi_value interrupt(napi_env env, napi_callback_info info)
{
    napi_value args[ARGS_MAX];
    struct engine *e = hutch_node_args(env, info, args);

    return e ? hutch_node_make_bool(env, hutch_session_interrupt(e->engine, hutch_node_id(env, args[1])) == 1) : NULL;
}

/* ---- orders that are done at once ---- */

typedef int act_function(struct hutch_engine *engine, uint64_t session, struct hutch_error *err);

static napi_value act(napi_env env, napi_callback_info info, act_function *function)
{
    napi_value args[ARGS_MAX];
    struct engine *e = hutch_node_args(env, info, args);
    struct hutch_error error;

    return e ? hutch_node_done(env, function(e->engine, hutch_node_id(env, args[1]), &error), &error) : NULL;
}

/* restart(engine, session) and the like */
static napi_value restart(napi_env env, napi_callback_info info)
{
    return act(env, info, hutch_session_restart);
}

static napi_value pause_session(napi_env env, napi_callback_info info)
{
    return act(env, info, hutch_session_pause);
}

static napi_value resume_session(napi_env env, napi_callback_info info)
{
    return act(env, info, hutch_session_resume);
}

/* setLifetime(engine, session, {idle_ms, lifetime_ms}) */
static napi_value set_lifetime(napi_env env, napi_callback_info info)
{
    struct values v = { .env = env };
    napi_value args[ARGS_MAX];
    struct engine *e = hutch_node_args(env, info, args);
    struct hutch_error error;
    uint64_t idle_ms, lifetime_ms;

    if (!e)
        return NULL;
    idle_ms = hutch_node_number(&v, args[2], "idle_ms");
    lifetime_ms = hutch_node_number(&v, args[2], "lifetime_ms");
    if (hutch_node_values_throw(&v))
        return NULL;
    return hutch_node_done(env, hutch_session_set_lifetime(e->engine, hutch_node_id(env, args[1]), idle_ms, lifetime_ms,
                                                           &error), &error);
}

/* info(engine, session): JSON */
static napi_value get_info(napi_env env, napi_callback_info info)
{
    struct hutch_session_info found = { .size = sizeof(found) };
    napi_value args[ARGS_MAX], result;
    struct engine *e = hutch_node_args(env, info, args);
    struct hutch_error error;
    char *json = NULL;

    if (!e)
        return NULL;
    if (hutch_session_get_info(e->engine, hutch_node_id(env, args[1]), &found, &json, &error) < 0)
        return hutch_node_throw(env, &error);
    result = hutch_node_make_text(env, json);
    free(json);
    return result;
}

/* ---- orders that wait their turn ---- */

/* As an answer to the order: NOTE_TEXT and JSON, or NOTE_TEXT + 1 and why not. */
static void on_reply(void *user, uint64_t session, const struct hutch_reply *reply)
{
    char *json = NULL;

    (void)session;
    if (!reply->ok)
        hutch_node_note(user, true, NOTE_TEXT + 1, reply->message, strlen(reply->message));
    else if (asprintf(&json, "{\"id\":%" PRIu64 ",\"ms\":%.3f,\"bytes\":%" PRIu64 ",\"lost\":%s}", reply->id, reply->ms,
                      reply->bytes, reply->lost) < 0)
        hutch_node_note_json(user, NULL);
    else
        hutch_node_note_json(user, json);
}

typedef int order_function(struct engine *e, uint64_t session, uint64_t which, struct pending *p,
                           struct hutch_error *err);

/* order(engine, session, number, undefined, onReply) */
static napi_value order(napi_env env, napi_callback_info info, order_function *function)
{
    napi_value args[ARGS_MAX];
    struct engine *e = hutch_node_args(env, info, args);
    struct pending *p = e ? hutch_node_pending_create(e, args[3], args[4], true) : NULL;
    struct hutch_error error;

    if (!p)
        return NULL;
    if (function(e, hutch_node_id(env, args[1]), hutch_node_id(env, args[2]), p, &error) == 0)
        return hutch_node_undefined(env);
    hutch_node_pending_free(p);
    return hutch_node_throw(env, &error);
}

static int order_checkpoint(struct engine *e, uint64_t session, uint64_t which, struct pending *p,
                            struct hutch_error *err)
{
    (void)which;
    return hutch_session_checkpoint(e->engine, session, on_reply, p, err);
}

static int order_await_files(struct engine *e, uint64_t session, uint64_t which, struct pending *p,
                             struct hutch_error *err)
{
    (void)which;
    return hutch_session_await_files(e->engine, session, on_reply, p, err);
}

static int order_rollback(struct engine *e, uint64_t session, uint64_t which, struct pending *p,
                          struct hutch_error *err)
{
    return hutch_session_rollback(e->engine, session, which, on_reply, p, err);
}

static int order_fork(struct engine *e, uint64_t session, uint64_t which, struct pending *p, struct hutch_error *err)
{
    (void)which;
    return hutch_session_fork(e->engine, session, on_reply, p, err);
}

static int order_switch(struct engine *e, uint64_t session, uint64_t which, struct pending *p, struct hutch_error *err)
{
    return hutch_session_switch(e->engine, session, which, on_reply, p, err);
}

static int order_drop(struct engine *e, uint64_t session, uint64_t which, struct pending *p, struct hutch_error *err)
{
    return hutch_session_drop(e->engine, session, which, on_reply, p, err);
}

#define ORDER(name)                                                        \
    static napi_value give_##name(napi_env env, napi_callback_info info) \
    {                                                                      \
        return order(env, info, order_##name);                             \
    }
ORDER(await_files)
ORDER(checkpoint)
ORDER(rollback)
ORDER(fork)
ORDER(switch)
ORDER(drop)

const struct function hutch_node_session_functions[] = {
    { "openSession", open_session }, { "closeSession", close_session }, { "execute", execute },
    { "cancelCell", cancel_cell },   { "interrupt", interrupt },        { "restart", restart },
    { "pause", pause_session },      { "resume", resume_session },      { "setLifetime", set_lifetime },
    { "info", get_info },            { "checkpoint", give_checkpoint }, { "rollback", give_rollback },
    { "fork", give_fork },           { "switch", give_switch },         { "drop", give_drop },
    { "awaitFiles", give_await_files },
    { NULL, NULL },
};
