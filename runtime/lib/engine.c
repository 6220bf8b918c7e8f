#include "runtime/lib/engine_priv.h"
#include "runtime/lib/installed.h"

#include "runtime/config/limits.h"
#include "runtime/engine/run_queue.h"
#include "sandbox/cgroup.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "rootfs/guest.h"
#include "rootfs/home.h"
#include "sandbox/log.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_QUEUE 1024
#define DEFAULT_SESSIONS 1024
#define DEFAULT_RECYCLE_FORKS 10000
#define DEFAULT_RECYCLE_MS 3600000
#define DEFAULT_TRIM_MS 30000
#define FREE_MS 1800 /* for the end of an engine, whatever hangs: its helpers have 1,300 of them */
#define BUILDING_MORE 1 /* sandboxes that are built at the same time, beyond the CPUs */
#define SEATING_MORE 3  /* sessions that get one */

int hutch_engine_tell(struct hutch_error *to, const struct hutch_err *err, int code)
{
    if (to) {
        to->code = code ? code : err->errnum;
        snprintf(to->message, sizeof(to->message), "%s", err->msg);
    }
    return -1;
}

void hutch_engine_copy_sized(void *to, size_t to_size, const void *from)
{
    size_t from_size;

    memcpy(&from_size, from, sizeof(from_size));
    memset(to, 0, to_size);
    memcpy(to, from, from_size < to_size ? from_size : to_size);
}

/* The fields of the first version. A program of that time calls these functions with structs of that size; one of
 * today has the macros instead. */
#define FIRST_SIZE(type, last) (offsetof(struct type, last) + sizeof(((struct type *)0)->last))

static void init_struct(void *p, size_t size)
{
    memset(p, 0, size);
    memcpy(p, &size, sizeof(size));
}

void (hutch_engine_options_init)(struct hutch_engine_options *options)
{
    init_struct(options, FIRST_SIZE(hutch_engine_options, max_sessions));
}

void (hutch_request_init)(struct hutch_request *request)
{
    init_struct(request, FIRST_SIZE(hutch_request, rich));
}

void (hutch_session_options_init)(struct hutch_session_options *options)
{
    init_struct(options, FIRST_SIZE(hutch_session_options, user));
}

void (hutch_process_options_init)(struct hutch_process_options *options)
{
    init_struct(options, FIRST_SIZE(hutch_process_options, user));
}

void (hutch_cell_init)(struct hutch_cell *cell)
{
    init_struct(cell, FIRST_SIZE(hutch_cell, user));
}

void (hutch_path_options_init)(struct hutch_path_options *options)
{
    init_struct(options, FIRST_SIZE(hutch_path_options, mode));
}

void (hutch_function_init)(struct hutch_function *function)
{
    init_struct(function, FIRST_SIZE(hutch_function, user));
}

void (hutch_watch_options_init)(struct hutch_watch_options *options)
{
    init_struct(options, FIRST_SIZE(hutch_watch_options, user));
}

void (hutch_question_init)(struct hutch_question *question)
{
    init_struct(question, FIRST_SIZE(hutch_question, timeout_ms));
}

/* --- open ------------------------------------------------------------------------------------------------------- */

static int set_text(char **to, const char *text, struct hutch_err *err)
{
    return hutch_spec_set_string(to, text, err);
}

static int find_launcher(const char *given, char **ret, struct hutch_err *err)
{
    const char *from_env = getenv("HUTCH_LAUNCHER");
    const char *path = given ? given : from_env && *from_env ? from_env : NULL;
    auto_free char *installed = NULL;

    if (!path && hutch_lib_find("libexec/hutch-launcher", &installed, err) < 0)
        return -1;
    if (!path)
        path = installed;
    if (access(path, X_OK) < 0)
        return hutch_err_set(err, errno, "find the helper program '%s'%s", path,
                             given ? "" : " (HUTCH_LAUNCHER can name it)");
    return set_text(ret, path, err);
}

/* Not hutch_policy_dir(), which looks beside the program that runs. */
static int find_policies(const char *given, char **ret, struct hutch_err *err)
{
    const char *from_env = getenv("HUTCH_POLICY_DIR");
    const char *path = given ? given : from_env && *from_env ? from_env : NULL;

    return path ? set_text(ret, path, err) : hutch_lib_find("share/hutch-data/policies", ret, err);
}

_Static_assert(PROFILE_NO_LIMIT == HUTCH_NO_LIMIT, "profile.h and hutch.h differ");

/* NULL: that struct has no field for it. */
static uint64_t *field_of(struct hutch_limits *limits, size_t limit)
{
    return hutch_limit_rows[limit].field ? (uint64_t *)((char *)limits + hutch_limit_rows[limit].limits_at) : NULL;
}

static void take_limits(const struct hutch_limits *given, uint64_t to[LIMIT_COUNT])
{
    struct hutch_limits limits;

    hutch_engine_copy_sized(&limits, sizeof(limits), given);
    for (size_t i = 0; i < LIMIT_COUNT; i++)
        if (field_of(&limits, i))
            to[i] = *field_of(&limits, i);
}

static void give_limits(const uint64_t from[LIMIT_COUNT], struct hutch_limits *ret)
{
    struct hutch_limits limits = { 0 };
    size_t size = ret->size && ret->size < sizeof(limits) ? ret->size : sizeof(limits);

    for (size_t i = 0; i < LIMIT_COUNT; i++)
        if (field_of(&limits, i))
            *field_of(&limits, i) = from[i];
    limits.size = size;
    memcpy(ret, &limits, size);
}

void hutch_engine_get_limits(const struct hutch_engine *engine, struct hutch_limits *ret)
{
    give_limits(engine->spec.limits, ret);
}

int hutch_engine_get_policy_limits(const struct hutch_engine *engine, const char *policy, struct hutch_limits *ret,
                                   struct hutch_error *error)
{
    struct profile profile = engine->profile;
    struct sandbox_spec spec;
    struct hutch_err err = { 0 };

    profile.policy = policy;
    if (hutch_request_make_spec(engine, &profile, &spec, &err) < 0)
        return hutch_engine_tell(error, &err, err.errnum ? err.errnum : EINVAL);
    give_limits(spec.limits, ret);
    hutch_spec_done(&spec);
    return 0;
}

static void set_numbers(struct hutch_engine *engine, const struct hutch_engine_options *options)
{
    cpu_set_t cpus;
    unsigned n_cpus = 1;

    if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) > 0)
        n_cpus = (unsigned)CPU_COUNT(&cpus);
    engine->runs.max_running = options->max_running ? options->max_running : n_cpus;
    engine->runs.max_queued = options->max_queued ? options->max_queued : DEFAULT_QUEUE;
    engine->sessions.max = options->max_sessions ? options->max_sessions : DEFAULT_SESSIONS;
    engine->sessions.max_seating = n_cpus + SEATING_MORE;
    engine->zygotes.recycle_forks = options->recycle_forks ? options->recycle_forks : DEFAULT_RECYCLE_FORKS;
    engine->zygotes.recycle_ms = options->recycle_ms ? options->recycle_ms : DEFAULT_RECYCLE_MS;
    engine->zygotes.max_layouts = options->layouts;
    engine->pools.trim_ms = options->trim_ms ? options->trim_ms : DEFAULT_TRIM_MS;
    engine->pools.max_building = n_cpus + BUILDING_MORE;
    if (options->answer_ms)
        engine->core.answer_ms = (double)options->answer_ms;
    if (options->setup_ms)
        engine->core.setup_ms = (double)options->setup_ms;
}

/* Where the sandboxes' groups go. */
static int find_cgroup(struct hutch_engine *engine, struct hutch_err *err)
{
    struct cgroup_base base = CGROUP_BASE_INIT;
    struct helper *h = &engine->helper;
    int rc = 0;

    if (engine->spec.layers[LAYER_CGROUP] != NEED_OFF)
        hutch_cgroup_find_base(&base);
    h->controllers = base.controllers;
    memcpy(h->cgroup_why_not, base.why_not, sizeof(h->cgroup_why_not));
    if (base.dirfd < 0)
        rc = set_text(&h->cgroup, "", err);
    else if (asprintf(&h->cgroup, "%s%s/%s", base.mount, strcmp(base.path, "/") == 0 ? "" : base.path,
                      engine->core.state.cgroup_name) < 0)
        rc = hutch_err_set(err, ENOMEM, "name a cgroup");
    else
        rc = hutch_state_note_cgroup(&engine->core.state, &base, err);
    hutch_cgroup_base_done(&base);
    return rc;
}

static void drop_binds(struct sandbox_spec *spec)
{
    size_t n = 0;

    for (size_t i = 0; i < spec->n_mounts; i++) {
        struct sandbox_mount *m = &spec->mounts[i];

        if (m->kind == MOUNT_BIND && !(m->flags & MOUNT_LAYER)) {
            free(m->source);
            free(m->target);
            hutch_fd_closep(&m->tree_fd);
        } else {
            spec->mounts[n++] = *m;
        }
    }
    spec->n_mounts = n;
}

/* The image, and the interpreter in it: nothing that belongs to a run, and no limits, as it lives on. */
static int make_zygote_spec(struct hutch_engine *engine, struct sandbox_spec *ret, struct hutch_err *err)
{
    static const char *const argv[] = { "python3", GUEST_ZYGOTE_DIR "/main.py" };
    uint64_t tmp_bytes;
    int rc;

    if (hutch_request_make_spec(engine, &engine->profile, ret, err) < 0)
        return -1;
    drop_binds(ret);
    tmp_bytes = ret->limits[LIMIT_TMP_SIZE];
    memset(ret->limits, 0, sizeof(ret->limits));
    ret->limits[LIMIT_TMP_SIZE] = tmp_bytes;
    rc = hutch_spec_set_string(&ret->cwd, "/", err);
    for (const struct guest_file *f = hutch_guest_zygote(); rc == 0 && f->target; f++)
        rc = hutch_spec_add_file(ret, f->target, f->data, f->len, 0444, err);
    if (rc == 0)
        rc = hutch_spec_add_file(ret, GUEST_ZYGOTE_PRELOAD, engine->configs.list[0].text,
                                 engine->configs.list[0].text_len, 0444, err);
    if (rc == 0)
        rc = hutch_spec_set_list(&ret->argv, argv, ARRAY_SIZE(argv), err);
    if (rc < 0)
        hutch_spec_done(ret);
    return rc;
}

/* Of the pool that is another one of the same policy; NULL: there is none yet. */
static struct template *find_pool_template(const struct pools *pools, const char *policy)
{
    for (size_t i = pools->configs->n_zygotes; i < pools->n; i++)
        if (pools->list[i].template && strcmp(pools->list[i].policy, policy) == 0)
            return pools->list[i].template;
    return NULL;
}

static int make_pool_template(struct hutch_engine *engine, const char *policy, struct template **ret,
                              struct hutch_err *err)
{
    struct profile profile = engine->profile;
    struct sandbox_spec spec;

    profile.policy = policy;
    if (hutch_request_make_spec(engine, &profile, &spec, err) < 0)
        return hutch_err_wrap(err, "a pool with the policy '%s'", policy);
    if (spec.network != NETWORK_NONE)
        hutch_err_say(err, EINVAL, "a pool with the policy '%s': its network is not 'none', so its runs are built on "
                                   "demand", policy);
    else if (hutch_request_make_worker(engine, &spec, err) == 0) {
        *ret = hutch_template_create(&engine->templates, &spec, err);
        return *ret ? 0 : -1;
    }
    hutch_spec_done(&spec);
    return -1;
}

static int make_pool_templates(struct hutch_engine *engine, struct hutch_err *err)
{
    struct pools *pools = &engine->pools;

    for (size_t i = 0; i < pools->n; i++) {
        struct pool *pool = &pools->list[i];
        struct template *template = pool->policy ? find_pool_template(pools, pool->policy) : engine->worker_template;

        if (template)
            template->refs++;
        else if (make_pool_template(engine, pool->policy, &template, err) < 0)
            return -1;
        pool->template = template;
    }
    return 0;
}

static int make_templates(struct hutch_engine *engine, struct hutch_err *err)
{
    struct sandbox_spec spec;

    if (hutch_request_make_spec(engine, &engine->profile, &spec, err) < 0)
        return -1;
    if (hutch_request_make_worker(engine, &spec, err) < 0) {
        hutch_spec_done(&spec);
        return -1;
    }
    engine->worker_template = hutch_template_create(&engine->templates, &spec, err);
    if (!engine->worker_template || make_zygote_spec(engine, &spec, err) < 0)
        return -1;
    engine->zygote_template = hutch_template_create(&engine->templates, &spec, err);
    engine->zygotes.template = engine->zygote_template;
    engine->functions.template = engine->worker_template;
    return engine->zygote_template ? make_pool_templates(engine, err) : -1;
}

static const char *name_policy(const char *policy)
{
    return policy ? policy : "default";
}

static int open_engine(const struct hutch_engine_options *options, const struct profile *profile,
                       struct hutch_engine **ret, struct hutch_err *err)
{
    struct hutch_engine *engine = calloc(1, sizeof(*engine));

    if (!engine)
        return hutch_err_set(err, ENOMEM, "open an engine");
    engine->core = (struct core)CORE_INIT;
    hutch_engine_connect(engine);
    engine->pools.policy = name_policy(options->policy);
    if (hutch_zygote_configs_read(&engine->configs, options->zygotes, options->n_zygotes, err) < 0 ||
        hutch_pools_configure(&engine->pools, options->pools, options->n_pools, err) < 0)
        goto fail;
    set_numbers(engine, options);
    if (hutch_descriptors_for_engine(engine, err) < 0 || hutch_profile_copy(profile, &engine->profile, err) < 0 ||
        find_launcher(options->launcher, &engine->helper.launcher_path, err) < 0 ||
        hutch_spec_init(&engine->spec, err) < 0 || hutch_profile_build(profile, &engine->spec, err) < 0 ||
        hutch_profile_set_root(profile, &engine->spec, &engine->image, err) < 0 ||
        hutch_core_open(&engine->core, engine->profile.home, err) < 0 || find_cgroup(engine, err) < 0 ||
        make_templates(engine, err) < 0 || hutch_descriptors_for_engine(engine, err) < 0 ||
        hutch_helper_start(&engine->helper, err) < 0)
        goto fail;
    engine->pools.policy = name_policy(engine->profile.policy); /* which is its own */
    *ret = engine;
    return 0;
fail:
    hutch_engine_free(engine);
    return -1;
}

int hutch_engine_open(const struct hutch_engine_options *given, struct hutch_engine **ret, struct hutch_error *error)
{
    struct hutch_engine_options options;
    struct hutch_err err = { 0 };
    struct profile profile;
    auto_free char *home = NULL, *policies = NULL;

    hutch_engine_copy_sized(&options, sizeof(options), given);
    profile = (struct profile){ .home = options.home,
                                .policy = options.policy,
                                .image = options.image,
                                .rootfs = options.rootfs,
                                .workdir = options.workdir,
                                .network = options.network,
                                .gpu = options.gpu,
                                .env = options.env,
                                .volumes = options.volumes,
                                .tmpfs = options.tmpfs,
                                .data_targets = options.data_targets };
    if (!options.rootfs && options.image && options.image[0] == '/') {
        profile.rootfs = options.image;
        profile.image = NULL;
    }
    if (options.limits && !options.limits->size) {
        hutch_err_say(&err, EINVAL, "the options' limits have no size");
        return hutch_engine_tell(error, &err, 0);
    }
    if (options.layouts > ZYGOTE_MAX_LAYOUTS) {
        hutch_err_say(&err, EINVAL, "layouts: there can be %d, not %u", ZYGOTE_MAX_LAYOUTS, options.layouts);
        return hutch_engine_tell(error, &err, 0);
    }
    if (options.limits)
        take_limits(options.limits, profile.limits);
    if ((!options.home && hutch_home_path(&home, &err) < 0) ||
        find_policies(options.policy_dir, &policies, &err) < 0)
        return hutch_engine_tell(error, &err, 0);
    profile.policy_dir = policies;
    if (!options.home)
        profile.home = home;
    return open_engine(&options, &profile, ret, &err) < 0 ? hutch_engine_tell(error, &err, 0) : 0;
}

/* --- free ------------------------------------------------------------------------------------------------------- */

void hutch_engine_free(struct hutch_engine *engine)
{
    double until = hutch_clock_ms() + FREE_MS;

    if (!engine)
        return;
    hutch_helper_stop(&engine->helper); /* all processes end here */
    hutch_zygotes_done(&engine->zygotes);
    hutch_sessions_done(&engine->sessions);
    hutch_runs_done(&engine->runs);
    hutch_functions_done(&engine->functions);
    hutch_pools_done(&engine->pools);
    hutch_slots_done(&engine->slots);
    hutch_loop_free_doomed(&engine->core.loop); /* some of which hold a template */
    hutch_template_unref(engine->worker_template);
    hutch_template_unref(engine->zygote_template);
    hutch_helper_done(&engine->helper);
    hutch_zygote_configs_done(&engine->configs);
    hutch_core_done(&engine->core, until);
    hutch_image_root_done(&engine->image);
    hutch_spec_done(&engine->spec);
    hutch_profile_done(&engine->profile);
    free(engine);
}

/* --- use -------------------------------------------------------------------------------------------------------- */

int hutch_engine_fd(const struct hutch_engine *engine)
{
    return engine->core.loop.epoll_fd;
}

int hutch_engine_dispatch(struct hutch_engine *engine, struct hutch_error *error)
{
    struct loop *loop = &engine->core.loop;

    hutch_loop_begin_turn(loop);
    hutch_runs_deliver_ending(&engine->runs);
    hutch_runs_start_queued(&engine->runs);
    hutch_sessions_work(&engine->sessions);
    hutch_loop_run_due(loop);
    if (engine->core.is_broken) {
        hutch_runs_refuse_all(&engine->runs);
        hutch_sessions_refuse_all(&engine->sessions);
        hutch_functions_refuse_all(&engine->functions);
    }
    hutch_runs_deliver_ending(&engine->runs);
    hutch_sessions_work(&engine->sessions);
    hutch_loop_end_turn(loop, engine->sessions.has_work || hutch_runs_have_work(&engine->runs));
    /* what runs in a sandbox that was there before still has its result */
    if (!engine->core.is_broken || engine->runs.n_active > 0 || hutch_runs_have_work(&engine->runs) ||
        hutch_sessions_have_orders(&engine->sessions))
        return 0;
    return hutch_engine_tell(error, &engine->core.why, 0);
}

int hutch_engine_submit(struct hutch_engine *engine, const struct hutch_request *given, uint64_t *ret_id,
                        struct hutch_error *error)
{
    struct hutch_request request;
    struct engine_run *run;
    struct hutch_err err = { 0 };
    uint64_t id;

    hutch_engine_copy_sized(&request, sizeof(request), given);
    if (!hutch_runs_have_room(&engine->runs, request.tenant)) {
        hutch_err_set(&err, 0, "%u runs wait already, which is the most that may", engine->runs.n_queued);
        return hutch_engine_tell(error, &err, EAGAIN);
    }
    if (hutch_request_accept(engine, &request, &run, &err) < 0) {
        if (err.errnum == EMFILE)
            hutch_descriptors_for_run(engine, &err); /* which says how many are needed */
        return hutch_engine_tell(error, &err, err.errnum ? err.errnum : EINVAL);
    }
    if ((run->template || request.has_input_fd) && hutch_descriptors_for_run(engine, &err) < 0) {
        hutch_run_free(run);
        return hutch_engine_tell(error, &err, 0);
    }
    id = hutch_run_enqueue(run);
    if (ret_id)
        *ret_id = id;
    return 0;
}

int hutch_engine_cancel(struct hutch_engine *engine, uint64_t id)
{
    struct engine_run *run = hutch_run_find(&engine->runs, id);

    if (run)
        hutch_run_cancel(run);
    return run ? 1 : 0;
}

int hutch_engine_signal(struct hutch_engine *engine, uint64_t id, int signal)
{
    struct engine_run *run = signal > 0 && signal <= SIGRTMAX ? hutch_run_find(&engine->runs, id) : NULL;

    if (run)
        hutch_run_signal(run, signal);
    return run ? 1 : 0;
}

static void note_pools(struct hutch_engine *engine)
{
    for (size_t i = 0; i < engine->configs.n_zygotes + engine->pools.n_more; i++) {
        const struct pool *pool = &engine->pools.list[i];

        engine->pool_stats[i] = (struct hutch_pool_stats){
            .zygote = engine->configs.list[pool->zygote_index].name,
            .policy = pool->policy,
            .prepared = pool->n_idle,
            .building = pool->n_building,
            .from_pool = pool->from_pool,
            .on_demand = pool->on_demand,
        };
    }
}

void hutch_engine_get_stats(struct hutch_engine *engine, struct hutch_engine_stats *ret)
{
    struct hutch_engine_stats stats = {
        .size = sizeof(stats),
        .running = engine->runs.n_active,
        .queued = engine->runs.n_queued,
        .prepared = engine->pools.n_prepared,
        .building = engine->slots.n_building,
        .submitted = engine->runs.submitted,
        .finished = engine->runs.finished,
        .from_pool = engine->pools.from_pool,
        .on_demand = engine->pools.on_demand,
        .restarted = engine->runs.restarted,
        .lost_zygotes = engine->zygotes.lost,
        .lost_launchers = engine->helper.lost_launchers,
        .lost_sandboxes = engine->slots.lost,
        .launcher_pid = engine->helper.launcher_pid,
        .zygotes = engine->zygote_stats,
        .n_zygotes = engine->configs.n_zygotes,
        .sessions = engine->sessions.n,
        .hung = engine->core.hung,
        .layouts = hutch_zygotes_count_layouts(&engine->zygotes),
        .pools = engine->pool_stats,
        .n_pools = engine->configs.n_zygotes + engine->pools.n_more,
    };
    size_t size = ret->size && ret->size < sizeof(stats) ? ret->size : sizeof(stats);

    note_pools(engine);
    for (size_t i = 0; i < engine->configs.n_zygotes; i++) {
        const struct generation *const *places = (const struct generation *const *)engine->zygotes.places;
        const struct zygote *zygote = places[0] ? places[0]->zygote_slots[i].zygote : NULL;
        uint64_t forks = 0;
        bool is_ready = false;

        for (size_t p = 0; p < ZYGOTE_MAX_LAYOUTS; p++) {
            const struct zygote *one = places[p] ? places[p]->zygote_slots[i].zygote : NULL;

            forks += one ? one->forks : 0;
            is_ready = is_ready || (one && one->state == ZYGOTE_IS_READY);
        }
        engine->zygote_stats[i] = (struct hutch_zygote_stats){
            .name = engine->configs.list[i].name,
            .is_ready = is_ready,
            .pid = zygote ? zygote->pid : 0,
            .prepared = engine->pools.list[i].n_idle,
            .building = engine->pools.list[i].n_building,
            .forks = forks,
            .recycled = engine->zygotes.recycled[i],
        };
    }
    stats.size = size;
    memcpy(ret, &stats, size);
}
