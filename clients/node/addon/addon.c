/* addon.c - libhutch for Node, by Node-API: functions that take what clients/node/lib/library.js has made ready. */
#include "engine.h"
#include "values.h"


#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ARGS_MAX 4

/* ---- arguments ---- */

static napi_value undefined(napi_env env)
{
    napi_value value = NULL;

    napi_get_undefined(env, &value);
    return value;
}

/* The engine of the first argument, and all of them. NULL: an exception is pending. */
static struct engine *read_args(napi_env env, napi_callback_info info, napi_value args[ARGS_MAX])
{
    size_t n = ARGS_MAX;
    void *box = NULL;

    if (napi_get_cb_info(env, info, &n, args, NULL, NULL) != napi_ok ||
        napi_get_value_external(env, args[0], &box) != napi_ok || !((struct box *)box)->engine ||
        ((struct box *)box)->engine->is_closing) {
        napi_throw_error(env, NULL, "the engine is closed");
        return NULL;
    }
    return ((struct box *)box)->engine;
}

static uint64_t read_id(napi_env env, napi_value value)
{
    double number = 0;

    napi_get_value_double(env, value, &number);
    return number > 0 ? (uint64_t)number : 0;
}

static napi_value make_number(napi_env env, uint64_t number)
{
    napi_value value = NULL;

    napi_create_double(env, (double)number, &value);
    return value;
}

static napi_value throw_error(napi_env env, const struct hutch_error *error)
{
    const char *code = error->code == EAGAIN ? "EAGAIN" : error->code == ENOENT ? "ENOENT"
                                                      : error->code == EINVAL ? "EINVAL" : NULL;

    napi_throw_error(env, code, error->message);
    return NULL;
}

/* ---- the engine ---- */

static void free_box(napi_env env, void *data, void *hint)
{
    struct box *box = data;

    (void)env;
    (void)hint;
    if (box->engine) {
        box->engine->box = NULL;
        hutch_node_engine_close(box->engine);
    }
    free(box);
}

/* open(options, onFailure) */
static napi_value open_engine(napi_env env, napi_callback_info info)
{
    struct values v = { .env = env };
    struct hutch_engine_options options;
    struct box *box = calloc(1, sizeof(*box));
    napi_value args[2], external = NULL;
    size_t n = 2;

    hutch_engine_options_init(&options);
    if (!box || napi_get_cb_info(env, info, &n, args, NULL, NULL) != napi_ok)
        goto out;
    options.home = hutch_node_text(&v, args[0], "home", NULL);
    options.launcher = hutch_node_text(&v, args[0], "launcher", NULL);
    options.image = hutch_node_text(&v, args[0], "image", NULL);
    options.policy = hutch_node_text(&v, args[0], "policy", NULL);
    options.policy_dir = hutch_node_text(&v, args[0], "policyDir", NULL);
    options.rootfs = hutch_node_text(&v, args[0], "rootfs", NULL);
    options.network = hutch_node_text(&v, args[0], "network", NULL);
    options.env = hutch_node_texts(&v, args[0], "env");
    options.volumes = hutch_node_texts(&v, args[0], "volumes");
    options.max_running = (unsigned)hutch_node_number(&v, args[0], "maxRunning");
    options.max_queued = (unsigned)hutch_node_number(&v, args[0], "maxQueued");
    options.max_sessions = (unsigned)hutch_node_number(&v, args[0], "maxSessions");
    options.layouts = (unsigned)hutch_node_number(&v, args[0], "layouts");
    if (!hutch_node_values_throw(&v))
        box->engine = hutch_node_engine_open(env, &options, args[1]);
out:
    hutch_node_values_done(&v);
    if (!box || !box->engine) {
        free(box);
        return NULL;
    }
    box->engine->box = box;
    napi_create_external(env, box, free_box, NULL, &external);
    return external;
}

/* close(engine) */
static napi_value close_engine(napi_env env, napi_callback_info info)
{
    napi_value args[1];
    size_t n = 1;
    void *box = NULL;

    if (napi_get_cb_info(env, info, &n, args, NULL, NULL) == napi_ok &&
        napi_get_value_external(env, args[0], &box) == napi_ok && ((struct box *)box)->engine)
        hutch_node_engine_close(((struct box *)box)->engine);
    return undefined(env);
}

/* ---- runs ---- */

static void on_output(void *user, uint64_t id, int stream, const char *data, size_t len)
{
    (void)id;
    hutch_node_note(user, false, stream, data, len);
}

static void note_json(struct pending *p, char *json)
{
    hutch_node_note(p, true, NOTE_TEXT, json ? json : "", json ? strlen(json) : 0);
    free(json);
}

static void on_result(void *user, uint64_t id, const struct hutch_result *result)
{
    (void)id;
    note_json(user, hutch_result_to_json(result));
}

static void read_limits(struct values *v, napi_value from, struct hutch_request *r)
{
    napi_value limits = hutch_node_field(v, from, "limits");

    r->wall_ms = hutch_node_number(v, limits, "wall_ms");
    r->cpu_ms = hutch_node_number(v, limits, "cpu_ms");
    r->memory_bytes = hutch_node_number(v, limits, "memory_bytes");
    r->pids = hutch_node_number(v, limits, "pids");
    r->cpus = hutch_node_number(v, limits, "cpus");
    r->output_bytes = hutch_node_number(v, limits, "output_bytes");
    r->data_bytes = hutch_node_number(v, limits, "data_bytes");
    r->data_files = hutch_node_number(v, limits, "data_files");
    r->file_bytes = hutch_node_number(v, limits, "file_bytes");
}

/* submit(engine, request, onOutput, onResult) */
static napi_value submit(napi_env env, napi_callback_info info)
{
    struct values v = { .env = env };
    struct hutch_request r;
    struct hutch_error error;
    struct pending *p = NULL;
    napi_value args[ARGS_MAX], result = NULL;
    struct engine *e = read_args(env, info, args);

    if (!e)
        return NULL;
    hutch_request_init(&r);
    r.code = hutch_node_text(&v, args[1], "code", &r.code_len);
    r.language = hutch_node_text(&v, args[1], "language", NULL);
    r.name = hutch_node_text(&v, args[1], "name", NULL);
    r.args = hutch_node_texts(&v, args[1], "args");
    r.env = hutch_node_texts(&v, args[1], "env");
    r.input = hutch_node_text(&v, args[1], "stdin", &r.input_len);
    r.rich = hutch_node_flag(&v, args[1], "rich");
    read_limits(&v, args[1], &r);
    if (!hutch_node_values_throw(&v))
        p = hutch_node_pending_create(e, args[2], args[3], true);
    if (p) {
        r.on_output = p->on_output ? on_output : NULL;
        r.on_result = on_result;
        r.user = p;
        if (hutch_engine_submit(e->engine, &r, &p->number, &error) == 0) {
            result = make_number(env, p->number);
        } else {
            hutch_node_pending_free(p);
            throw_error(env, &error);
        }
    }
    hutch_node_values_done(&v);
    return result;
}

/* cancel(engine, run) */
static napi_value cancel(napi_env env, napi_callback_info info)
{
    napi_value args[ARGS_MAX];
    struct engine *e = read_args(env, info, args);

    if (e)
        hutch_engine_cancel(e->engine, read_id(env, args[1]));
    return e ? undefined(env) : NULL;
}

/* ---- sessions ---- */

static void on_end(void *user, uint64_t session, const char *why, const char *directory)
{
    (void)session;
    (void)directory;
    hutch_node_note(user, true, NOTE_TEXT, why ? why : "", why ? strlen(why) : 0);
}

/* openSession(engine, options, onEnd) */
static napi_value open_session(napi_env env, napi_callback_info info)
{
    struct values v = { .env = env };
    struct hutch_session_options options;
    struct hutch_error error;
    struct pending *p = NULL;
    napi_value args[ARGS_MAX], limits, result = NULL;
    struct engine *e = read_args(env, info, args);

    if (!e)
        return NULL;
    hutch_session_options_init(&options);
    limits = hutch_node_field(&v, args[1], "limits");
    options.zygote = hutch_node_text(&v, args[1], "zygote", NULL);
    options.env = hutch_node_texts(&v, args[1], "env");
    options.idle_ms = hutch_node_number(&v, args[1], "idle_ms");
    options.lifetime_ms = hutch_node_number(&v, args[1], "lifetime_ms");
    options.max_checkpoints = (unsigned)hutch_node_number(&v, args[1], "max_checkpoints");
    options.checkpoint_bytes = hutch_node_number(&v, args[1], "checkpoint_bytes");
    options.memory_bytes = hutch_node_number(&v, limits, "memory_bytes");
    options.pids = hutch_node_number(&v, limits, "pids");
    options.cpus = hutch_node_number(&v, limits, "cpus");
    options.output_bytes = hutch_node_number(&v, limits, "output_bytes");
    options.data_bytes = hutch_node_number(&v, limits, "data_bytes");
    options.data_files = hutch_node_number(&v, limits, "data_files");
    options.file_bytes = hutch_node_number(&v, limits, "file_bytes");
    if (!hutch_node_values_throw(&v))
        p = hutch_node_pending_create(e, undefined(env), args[2], false);
    if (p) {
        options.on_end = on_end;
        options.user = p;
        if (hutch_session_open(e->engine, &options, &p->number, &error) == 0) {
            result = make_number(env, p->number);
        } else {
            hutch_node_pending_free(p);
            throw_error(env, &error);
        }
    }
    hutch_node_values_done(&v);
    return result;
}

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
    note_json(user, hutch_cell_result_to_json(result));
}

/* execute(engine, cell, onOutput, onResult): cell.session is the session's number */
static napi_value execute(napi_env env, napi_callback_info info)
{
    struct values v = { .env = env };
    struct hutch_cell cell;
    struct hutch_error error;
    struct pending *p = NULL;
    napi_value args[ARGS_MAX], result = NULL;
    struct engine *e = read_args(env, info, args);

    if (!e)
        return NULL;
    hutch_cell_init(&cell);
    cell.code = hutch_node_text(&v, args[1], "code", &cell.code_len);
    cell.context = hutch_node_text(&v, args[1], "context", NULL);
    cell.timeout_ms = hutch_node_number(&v, args[1], "timeout_ms");
    cell.silent = hutch_node_flag(&v, args[1], "silent");
    cell.no_history = hutch_node_flag(&v, args[1], "no_history");
    if (!hutch_node_values_throw(&v))
        p = hutch_node_pending_create(e, args[2], args[3], true);
    if (p) {
        cell.on_output = p->on_output ? on_cell_output : NULL;
        cell.on_result = on_cell_result;
        cell.user = p;
        cell.ret_id = &p->number;
        if (hutch_session_execute(e->engine, hutch_node_number(&v, args[1], "session"), &cell, &error) == 0) {
            result = make_number(env, p->number);
        } else {
            hutch_node_pending_free(p);
            throw_error(env, &error);
        }
    }
    hutch_node_values_done(&v);
    return result;
}

static napi_value make_bool(napi_env env, int value)
{
    napi_value found = NULL;

    napi_get_boolean(env, value != 0, &found);
    return found;
}

/* cancelCell(engine, session, cell) */
static napi_value cancel_cell(napi_env env, napi_callback_info info)
{
    napi_value args[ARGS_MAX];
    struct engine *e = read_args(env, info, args);

    if (!e)
        return NULL;
    return make_bool(env, hutch_session_cancel_cell(e->engine, read_id(env, args[1]), read_id(env, args[2])));
}

/* interrupt(engine, session) */
static napi_value interrupt(napi_env env, napi_callback_info info)
{
    napi_value args[ARGS_MAX];
    struct engine *e = read_args(env, info, args);

    return e ? make_bool(env, hutch_session_interrupt(e->engine, read_id(env, args[1])) == 1) : NULL;
}

/* restart(engine, session) */
static napi_value restart(napi_env env, napi_callback_info info)
{
    napi_value args[ARGS_MAX];
    struct engine *e = read_args(env, info, args);
    struct hutch_error error;

    if (!e)
        return NULL;
    if (hutch_session_restart(e->engine, read_id(env, args[1]), &error) < 0)
        return throw_error(env, &error);
    return undefined(env);
}

/* closeSession(engine, session) */
static napi_value close_session(napi_env env, napi_callback_info info)
{
    napi_value args[ARGS_MAX];
    struct engine *e = read_args(env, info, args);

    return e ? make_bool(env, hutch_session_close(e->engine, read_id(env, args[1]))) : NULL;
}

NAPI_MODULE_INIT()
{
    static const struct {
        const char *name;
        napi_callback function;
    } functions[] = {
        { "open", open_engine },       { "close", close_engine },         { "submit", submit },
        { "cancel", cancel },          { "openSession", open_session },   { "execute", execute },
        { "cancelCell", cancel_cell }, { "interrupt", interrupt },        { "restart", restart },
        { "closeSession", close_session },
    };

    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        napi_value function;

        if (napi_create_function(env, functions[i].name, NAPI_AUTO_LENGTH, functions[i].function, NULL, &function) !=
                napi_ok ||
            napi_set_named_property(env, exports, functions[i].name, function) != napi_ok)
            return NULL;
    }
    return exports;
}
