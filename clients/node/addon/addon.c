/* addon.c - libhutch for Node, by Node-API: functions that take what clients/node/lib/library.js has made ready. */
#include "call.h"
#include "values.h"

#include <stdlib.h>
#include <string.h>

#define ZYGOTES_MAX 32 /* hutch.h */

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

static void read_zygotes(struct values *v, napi_value from, struct hutch_engine_options *options)
{
    napi_value list = hutch_node_field(v, from, "zygotes"), each;
    uint32_t n = list ? hutch_node_length(v, list, "zygotes", ZYGOTES_MAX) : 0;
    struct hutch_zygote *zygotes = n ? hutch_node_alloc(v, n * sizeof(*zygotes)) : NULL;

    for (uint32_t i = 0; zygotes && i < n; i++) {
        if (napi_get_element(v->env, list, i, &each) != napi_ok)
            continue;
        zygotes[i].name = hutch_node_text(v, each, "name", NULL);
        zygotes[i].parent = hutch_node_text(v, each, "parent", NULL);
        zygotes[i].modules = hutch_node_texts(v, each, "modules");
        zygotes[i].warm_up = hutch_node_text(v, each, "warmUp", NULL);
        zygotes[i].min = hutch_node_count(v, each, "min");
        zygotes[i].max = hutch_node_count(v, each, "max");
        if (!zygotes[i].name)
            hutch_node_values_wrong(v, "zygotes", "has one without a name");
    }
    options->zygotes = zygotes;
    options->n_zygotes = n;
}

static void read_options(struct values *v, napi_value from, struct hutch_engine_options *options)
{
    options->home = hutch_node_text(v, from, "home", NULL);
    options->launcher = hutch_node_text(v, from, "launcher", NULL);
    options->image = hutch_node_text(v, from, "image", NULL);
    options->policy = hutch_node_text(v, from, "policy", NULL);
    options->policy_dir = hutch_node_text(v, from, "policyDir", NULL);
    options->rootfs = hutch_node_text(v, from, "rootfs", NULL);
    options->network = hutch_node_text(v, from, "network", NULL);
    options->gpu = hutch_node_text(v, from, "gpu", NULL);
    options->workdir = hutch_node_text(v, from, "workdir", NULL);
    options->env = hutch_node_texts(v, from, "env");
    options->volumes = hutch_node_texts(v, from, "volumes");
    options->tmpfs = hutch_node_texts(v, from, "tmpfs");
    options->data_targets = hutch_node_texts(v, from, "dataTargets");
    options->max_running = hutch_node_count(v, from, "maxRunning");
    options->max_queued = hutch_node_count(v, from, "maxQueued");
    options->max_sessions = hutch_node_count(v, from, "maxSessions");
    options->layouts = hutch_node_count(v, from, "layouts");
    read_zygotes(v, from, options);
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
    if (!box || napi_get_cb_info(env, info, &n, args, NULL, NULL) != napi_ok) {
        napi_throw_error(env, "ENOMEM", "there is no memory for an engine");
    } else {
        read_options(&v, args[0], &options);
        if (!hutch_node_values_throw(&v))
            box->engine = hutch_node_engine_open(env, &options, args[1]);
    }
    hutch_node_values_done(&v);
    if (!box || !box->engine) {
        free(box);
        return NULL;
    }
    box->engine->box = box;
    if (napi_create_external(env, box, free_box, NULL, &external) != napi_ok)
        free_box(env, box, NULL);
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
    return hutch_node_undefined(env);
}

static void set(napi_env env, napi_value object, const char *key, napi_value value)
{
    if (value)
        napi_set_named_property(env, object, key, value);
}

/* @own: the pool of the zygote for the engine's policy. No option of the addon makes others. */
static napi_value make_pool(napi_env env, const struct hutch_zygote_stats *zygote, const struct hutch_pool_stats *own)
{
    napi_value pool = NULL, policies = NULL;

    if (napi_create_object(env, &pool) != napi_ok || napi_create_array(env, &policies) != napi_ok)
        return NULL;
    set(env, pool, "name", hutch_node_make_text(env, zygote->name));
    set(env, pool, "ready", hutch_node_make_bool(env, zygote->is_ready));
    set(env, pool, "prepared", hutch_node_make_number(env, zygote->prepared));
    set(env, pool, "building", hutch_node_make_number(env, zygote->building));
    set(env, pool, "forks", hutch_node_make_number(env, zygote->forks));
    set(env, pool, "recycled", hutch_node_make_number(env, zygote->recycled));
    set(env, pool, "from_pool", hutch_node_make_number(env, own->from_pool));
    set(env, pool, "on_demand", hutch_node_make_number(env, own->on_demand));
    set(env, pool, "policies", policies);
    return pool;
}

/* pools(engine): as GET /v1/pools answers */
static napi_value get_pools(napi_env env, napi_callback_info info)
{
    struct hutch_engine_stats stats = { .size = sizeof(stats) };
    napi_value args[ARGS_MAX], result = NULL, pools = NULL;
    struct engine *e = hutch_node_args(env, info, args);

    if (!e || napi_create_object(env, &result) != napi_ok || napi_create_array(env, &pools) != napi_ok)
        return NULL;
    hutch_engine_get_stats(e->engine, &stats);
    for (size_t i = 0; i < stats.n_zygotes; i++) {
        napi_value pool = make_pool(env, &stats.zygotes[i], &stats.pools[i]);

        if (pool)
            napi_set_element(env, pools, (uint32_t)i, pool);
    }
    set(env, result, "pools", pools);
    set(env, result, "running", hutch_node_make_number(env, stats.running));
    set(env, result, "queued", hutch_node_make_number(env, stats.queued));
    set(env, result, "sessions", hutch_node_make_number(env, stats.sessions));
    return result;
}

/* ---- runs ---- */

static void on_output(void *user, uint64_t id, int stream, const char *data, size_t len)
{
    (void)id;
    hutch_node_note(user, false, stream, data, len);
}

static void on_result(void *user, uint64_t id, const struct hutch_result *result)
{
    (void)id;
    hutch_node_note_json(user, hutch_result_to_json(result));
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
    struct engine *e = hutch_node_args(env, info, args);

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
    r.data_targets = hutch_node_texts(&v, args[1], "data_targets");
    read_limits(&v, args[1], &r);
    if (!hutch_node_values_throw(&v))
        p = hutch_node_pending_create(e, args[2], args[3], true);
    if (p) {
        r.on_output = p->on_output ? on_output : NULL;
        r.on_result = on_result;
        r.user = p;
        if (hutch_engine_submit(e->engine, &r, &p->number, &error) == 0) {
            result = hutch_node_make_number(env, p->number);
        } else {
            hutch_node_pending_free(p);
            hutch_node_throw(env, &error);
        }
    }
    hutch_node_values_done(&v);
    return result;
}

/* cancel(engine, run) */
static napi_value cancel(napi_env env, napi_callback_info info)
{
    napi_value args[ARGS_MAX];
    struct engine *e = hutch_node_args(env, info, args);

    return e ? hutch_node_make_bool(env, hutch_engine_cancel(e->engine, hutch_node_id(env, args[1])) == 1) : NULL;
}

/* ---- the module ---- */

static bool export_functions(napi_env env, napi_value exports, const struct function *functions)
{
    for (const struct function *f = functions; f->name; f++) {
        napi_value function;

        if (napi_create_function(env, f->name, NAPI_AUTO_LENGTH, f->call, NULL, &function) != napi_ok ||
            napi_set_named_property(env, exports, f->name, function) != napi_ok)
            return false;
    }
    return true;
}

NAPI_MODULE_INIT()
{
    static const struct function functions[] = {
        { "open", open_engine }, { "close", close_engine }, { "pools", get_pools },
        { "submit", submit },    { "cancel", cancel },      { NULL, NULL },
    };

    if (!export_functions(env, exports, functions) || !export_functions(env, exports, hutch_node_session_functions) ||
        !export_functions(env, exports, hutch_node_file_functions))
        return NULL;
    return exports;
}
