#include "runtime/lib/engine_priv.h"
#include "runtime/lib/run_env.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/zygote_wire.h"
#include "sandbox/inside.h"
#include "runtime/engine/job.h"
#include "runtime/engine/job_run.h"
#include "runtime/engine/slot_ids.h"
#include "runtime/run/data_place.h"
#include "runtime/session/cell_run.h"
#include "runtime/config/data_targets.h"
#include "runtime/config/image_env.h"
#include "runtime/config/limits.h"
#include "runtime/lang/program.h"
#include "runtime/lang/python_error.h"
#include "runtime/text/json_view.h"
#include "runtime/text/utf8.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_LIST 4096         /* arguments, variables */
#define MAX_LIST_BYTES (1u << 20)
#define INPUT_MAX_BYTES (256u << 20)
#define CODE_TMPFS_BYTES (1u << 20) /* where the worker puts its program: WORKER_CODE_MAX and a page or two */

/* What a running interpreter has read when it started, or its C library: such a run has one of its own. A '*' at the
 * end stands for any rest. */
static const char *const read_at_start[] = {
    "PYTHONHASHSEED", "PYTHONUTF8", "PYTHONOPTIMIZE", "PYTHONMALLOC", "PYTHONDEVMODE", "PYTHONNOUSERSITE",
    "PYTHONUSERBASE", "PYTHONHOME", "PYTHONPLATLIBDIR", "PYTHONVERBOSE", "PYTHONDEBUG", "PYTHONINSPECT",
    "PYTHONSAFEPATH", "PYTHONPROFILEIMPORTTIME", "PYTHONCOERCECLOCALE", "PYTHONNODEBUGRANGES", "PYTHONCASEOK",
    "PYTHONSTARTUP", "PYTHONDUMPREFS", "PYTHONEXECUTABLE", "PYTHONWARNDEFAULTENCODING", "PYTHONMALLOCSTATS",
    "PYTHONLEGACYWINDOWSSTDIO", "LANG", "LANGUAGE", "LC_*", "LD_*", "MALLOC_*", "GLIBC_TUNABLES",
};
/* … and what libraries have, which the first zygote may not have loaded. */
static const char *const read_at_import[] = { "MPL*", "OPENBLAS_*", "OMP_*", "MKL_*", "NUMEXPR_*", "BLIS_*", "NPY_*" };

static bool matches_any(const char *name, size_t len, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t want = strlen(list[i]);

        if (list[i][want - 1] == '*' ? len >= want - 1 && strncmp(name, list[i], want - 1) == 0
                                     : len == want && strncmp(name, list[i], want) == 0)
            return true;
    }
    return false;
}

static int check_list(const char *const *list, const char *what, struct hutch_err *err)
{
    size_t bytes = 0, n = 0;

    for (; list && list[n]; n++)
        bytes += strlen(list[n]) + 1;
    if (n > MAX_LIST || bytes > MAX_LIST_BYTES)
        return hutch_err_say(err, EINVAL, "%zu %s of %zu bytes: at most %d of %u can be", n, what, bytes, MAX_LIST,
                             MAX_LIST_BYTES);
    return 0;
}

static int check_env(const char *const *env, struct hutch_err *err)
{
    for (; env && *env; env++) {
        const char *equals = strchr(*env, '=');

        if (!equals || equals == *env)
            return hutch_err_say(err, EINVAL, "environment '%s': expected NAME=VALUE", *env);
    }
    return 0;
}

/* --- the environment -------------------------------------------------------------------------------------------- */

/* Whether a variable would come too late for an interpreter that runs already. */
static bool needs_own_interpreter(const struct hutch_engine *engine, const char *const *env, bool has_libraries)
{
    for (; env && *env; env++) {
        size_t len = strcspn(*env, "=");

        if (!matches_any(*env, len, read_at_start, ARRAY_SIZE(read_at_start)) &&
            !(has_libraries && matches_any(*env, len, read_at_import, ARRAY_SIZE(read_at_import))))
            continue;
        for (char *const *e = engine->spec.envp; *e; e++)
            if (strcmp(*e, *env) == 0) { /* it has it like that */
                len = 0;
                break;
            }
        if (len)
            return true;
    }
    return false;
}

/* A zygote waits while a child that shares its memory forks the worker inside the sandbox's cgroup. What a request
 * asks for itself must not make that long, nor have the kernel end both for its memory: such a program is executed by
 * init. */
static bool is_cramped(const struct hutch_request *request)
{
    return (request->cpus && request->cpus < 200) || (request->memory_bytes && request->memory_bytes < 64u << 20);
}

/* --- limits ----------------------------------------------------------------------------------------------------- */

/* What @request asks for; 0: the policy's. */
static uint64_t asked_limit(const struct hutch_request *request, size_t limit)
{
    size_t at = hutch_limit_rows[limit].request_at;

    return at ? *(const uint64_t *)((const char *)request + at) : 0;
}

/* Whether a fresh data directory would be in another place with less memory. */
static bool moves_data(const struct hutch_engine *engine, const struct template *template,
                       const struct hutch_request *request)
{
    const unsigned controllers = engine->helper.controllers;
    const bool maps_owner = template->spec.layers[LAYER_OWN_UID] == NEED_REQUIRE &&
                            hutch_slots_map_in_memory(&engine->slots, template);
    struct sandbox_spec spec = template->spec; /* which keeps what this one points to */

    spec.limits[LIMIT_MEMORY] = request->memory_bytes;
    return !request->data_dir && hutch_data_belongs_in_memory(&spec, controllers, maps_owner) !=
                                     hutch_data_belongs_in_memory(&template->spec, controllers, maps_owner);
}

static uint64_t count_cpus(uint64_t thousandths)
{
    return (thousandths + 999) / 1000;
}

/* A prepared sandbox is given tighter limits when the run starts, but for a limit that its policy does not have (then
 * nothing in it counts or shows that) and for what files in it, or their place, go by. It is given no further names of
 * the data directory: its root is read-only by then. */
static bool asks_for_own_sandbox(const struct hutch_engine *engine, const struct template *template,
                                 const struct hutch_request *request)
{
    const uint64_t *built = template->spec.limits;

    for (size_t i = 0; i < LIMIT_COUNT; i++)
        if (hutch_limit_rows[i].is_built_in && asked_limit(request, i) && !built[i])
            return true;
    return (request->cpus && count_cpus(request->cpus) != count_cpus(built[LIMIT_CPUS])) ||
           (request->memory_bytes && moves_data(engine, template, request)) ||
           !hutch_data_targets_are_among(request->data_targets, engine->profile.data_targets);
}

/* Of the pool that the run may have its sandbox from. NULL: its policy has none, or what it asks for takes a sandbox of
 * its own. */
static const struct template *choose_pool(const struct hutch_engine *engine, struct engine_run *run,
                                          const struct hutch_request *request)
{
    int index = hutch_pools_find(&engine->pools, request->policy, run->zygote_index);
    const struct pool *pool = index < 0 ? NULL : &engine->pools.list[index];

    if (!pool || asks_for_own_sandbox(engine, pool->template, request) ||
        needs_own_interpreter(engine, request->env, engine->configs.list[pool->zygote_index].n_modules > 0))
        return NULL;
    run->pool_index = (unsigned)index;
    run->zygote_index = pool->zygote_index;
    return pool->template;
}

static int apply_limits(const struct hutch_request *request, const uint64_t *policy, uint64_t *limits,
                        struct hutch_err *err)
{
    for (size_t i = 0; i < LIMIT_COUNT; i++) {
        const struct limit *row = &hutch_limit_rows[i];
        uint64_t value = asked_limit(request, i);
        const char *refusal = hutch_limit_refuses(row, value);

        if (!value)
            continue;
        if (policy[i] && value > policy[i])
            return hutch_err_say(err, EINVAL, "%s of %" PRIu64 " is above the policy's %" PRIu64, row->field, value,
                                 policy[i]);
        if (refusal)
            return hutch_err_say(err, EINVAL, "%s of %" PRIu64 " is too %s", row->field, value, refusal);
        limits[i] = value;
    }
    return 0;
}

/* --- specs ------------------------------------------------------------------------------------------------------ */

int hutch_request_make_spec(const struct hutch_engine *engine, const struct profile *profile, struct sandbox_spec *ret,
                            struct hutch_err *err)
{
    struct sandbox_spec spec = { 0 };

    if (hutch_spec_init(&spec, err) < 0)
        return -1;
    spec.root_kind = engine->spec.root_kind;
    if (hutch_profile_build(profile, &spec, err) < 0 ||
        hutch_spec_set_string(&spec.rootfs_path, engine->spec.rootfs_path, err) < 0 ||
        hutch_spec_copy_layers(&engine->spec, &spec, err) < 0 ||
        hutch_image_env_add(profile, engine->image.env, &spec, err) < 0 ||
        (spec.root_kind == ROOT_DIR && spec.rootfs_path && hutch_data_targets_check_image(&spec, err) < 0)) {
        hutch_spec_done(&spec);
        return -1;
    }
    if (hutch_spec_find_changes(&spec)) {
        hutch_spec_done(&spec);
        return hutch_err_set(err, 0, "the policy has a directory for changes of the root (\"root_changes\"), which is "
                                     "for one run alone: hutch run --no-server");
    }
    *ret = spec;
    return 0;
}

int hutch_request_make_worker(const struct hutch_engine *engine, struct sandbox_spec *spec, struct hutch_err *err)
{
    struct sandbox_mount *code = hutch_spec_add_mount(spec, MOUNT_TMPFS, NULL, PROGRAM_DIR, 0, err), moved;
    size_t at = 0;

    if (!code)
        return -1;
    code->size_bytes = CODE_TMPFS_BYTES;
    code->mode = 0755;
    /* Right behind the one that it lies in: what the caller mounts comes over it, never below. */
    while (at < spec->n_mounts - 1 && strcmp(spec->mounts[at].target, "/run") != 0)
        at++;
    moved = *code;
    memmove(&spec->mounts[at + 2], &spec->mounts[at + 1], (spec->n_mounts - at - 2) * sizeof(moved));
    spec->mounts[at + 1] = moved;
    code = hutch_spec_add_mount(spec, MOUNT_BIND, engine->core.data_root, INSIDE_DATA_DIR, MOUNT_IDMAP | MOUNT_DATA,
                                err);
    return code ? 0 : -1;
}

/* Another policy, limits that a sandbox is built with, or further names of the data directory. */
static int make_own_spec(const struct hutch_engine *engine, const struct hutch_request *request,
                         struct sandbox_spec *ret, struct hutch_err *err)
{
    struct profile profile = engine->profile;
    uint64_t ignored[LIMIT_COUNT];
    bool is_again = false;

    if (request->policy)
        profile.policy = request->policy;
    profile.own_data_targets = request->data_targets;
    if (hutch_request_make_spec(engine, &profile, ret, err) < 0)
        return -1;
    if (apply_limits(request, ret->limits, ignored, err) < 0) {
        hutch_spec_done(ret);
        return -1;
    }
    for (size_t i = 0; i < LIMIT_COUNT; i++)
        if (hutch_limit_rows[i].is_built_in && asked_limit(request, i)) {
            profile.limits[i] = asked_limit(request, i);
            is_again = true;
        }
    if (!is_again)
        return 0;
    hutch_spec_done(ret); /* and again, as other things follow from them */
    return hutch_request_make_spec(engine, &profile, ret, err);
}

/* --- the program ------------------------------------------------------------------------------------------------ */

struct program {
    const char *language, *code, *name;
    size_t code_len;
    bool is_python, is_argument, is_input; /* -c; - */
    char own_name[32];
};

static int read_program(const struct hutch_request *request, struct program *ret, struct hutch_err *err)
{
    struct program p = { .language = request->language ? request->language : "python",
                         .code = request->code,
                         .name = request->name };
    const char *ending = p.language[0] ? hutch_program_ending(p.language) : "";

    if (!ending)
        return hutch_err_say(err, EINVAL, "there is no language '%s'", p.language);
    p.is_python = strcmp(p.language, "python") == 0;
    p.is_argument = p.name && strcmp(p.name, "-c") == 0;
    p.is_input = p.name && strcmp(p.name, "-") == 0;
    if ((p.is_argument || p.is_input) && !p.is_python)
        return hutch_err_say(err, EINVAL, "the name '%s' is for Python only", p.name);
    if (!p.code && !p.is_input)
        return hutch_err_say(err, EINVAL, "there is no code");
    if (!p.code)
        p.code = "";
    p.code_len = request->code && request->code_len ? request->code_len : strlen(p.code);
    if (memchr(p.code, '\0', p.code_len))
        return hutch_err_say(err, EINVAL, "the code has a NUL byte in it");
    if (p.code_len > PROGRAM_MAX_BYTES)
        return hutch_err_say(err, EINVAL, "the code is longer than %u bytes", PROGRAM_MAX_BYTES);
    if (!p.name)
        snprintf(p.own_name, sizeof(p.own_name), "main%s", ending);
    else if (!p.is_argument && !p.is_input && !hutch_program_is_name(p.name))
        return hutch_err_say(err, EINVAL, "'%s' is not the name of a program file", p.name);
    *ret = p;
    if (!ret->name)
        ret->name = ret->own_name;
    return 0;
}

/* Of a sandbox that is built for one run. */
static int take_environment(struct sandbox_spec *spec, const uint64_t limits[LIMIT_COUNT], const char *const *more,
                            struct hutch_err *err)
{
    auto_run_env env = { .list = NULL };

    if (hutch_run_env_merge(spec, limits, more, &env, err) < 0)
        return -1;
    return hutch_spec_set_list(&spec->envp, env.list, env.n, err);
}

static int set_exec(struct hutch_engine *engine, struct engine_run *run, const struct hutch_request *request,
                    const struct program *p, struct sandbox_spec *spec, struct hutch_err *err)
{
    char *const *args = (char *const *)request->args;
    const char *data = run->data_dir ? run->data_dir : engine->core.data_root;
    struct sandbox_mount *mount;
    int rc;

    if (take_environment(spec, run->limits, request->env, err) < 0)
        return -1;
    memcpy(spec->limits, run->limits, sizeof(spec->limits));
    if (p->is_input)
        rc = hutch_program_set_stdin(spec, args, err);
    else if (p->is_argument) {
        auto_free char *code = strndup(p->code, p->code_len);

        rc = code ? hutch_program_set_code(spec, code, args, err) : hutch_err_set(err, ENOMEM, "keep the code");
    } else
        rc = hutch_program_set_text(spec, p->language[0] ? p->language : NULL, p->name, p->code, p->code_len, args,
                                    err);
    if (rc < 0 || hutch_pyreport_attach(spec, INIT_REPORT_FD, err) < 0)
        return -1;
    mount = hutch_spec_add_mount(spec, MOUNT_BIND, data, INSIDE_DATA_DIR, MOUNT_IDMAP | MOUNT_DATA, err);
    if (!mount)
        return -1;
    if (run->data_dir) { /* else the launcher appends the name of a directory of its own making */
        mount->dev = run->data_dev;
        mount->ino = run->data_ino;
    }
    return 0;
}

static void lower_limits(struct engine_run *run, const struct hutch_request *request, struct job *job)
{
    if (request->cpu_ms) { /* as hutch_rlimits_plan() and hutch_rlimits_apply() have it */
        hutch_job_add_rlimit(&job->rlimits, RLIMIT_CPU, request->cpu_ms / 1000 + 1, request->cpu_ms / 1000 + 2);
        run->lowers_cpu = true;
    }
    if (request->file_bytes) {
        hutch_job_add_rlimit(&job->rlimits, RLIMIT_FSIZE, request->file_bytes, request->file_bytes);
        run->lowers_file_size = true;
    }
    run->rlimits = job->rlimits;
}

static int set_job(struct engine_run *run, const struct hutch_request *request, const struct program *p,
                   const struct sandbox_spec *spec, struct hutch_err *err)
{
    auto_run_env env = { .list = NULL };
    char name[sizeof(PROGRAM_DIR) + 256];
    struct job job = {
        .mode = p->is_input ? "stdin" : p->is_argument ? "code" : "file",
        .name = p->is_input || p->is_argument ? "" : name,
        .code = p->code,
        .code_len = p->code_len,
        .args = request->args,
        .cwd = spec->cwd,
    };

    if (hutch_run_env_merge(spec, run->limits, request->env, &env, err) < 0)
        return -1;
    job.env = env.list;
    snprintf(name, sizeof(name), PROGRAM_DIR "/%s", p->name);
    lower_limits(run, request, &job);
    if (hutch_job_encode(&job, &run->job, &run->job_len, err) < 0)
        return -1;
    if (p->is_input) { /* which is the program, and at its end then */
        free(run->input.text);
        run->input.text = NULL;
        run->input.len = 0;
    }
    return 0;
}

/* --- cells ------------------------------------------------------------------------------------------------------ */

static int set_cells_job(struct engine_run *run, const struct hutch_request *request, const struct sandbox_spec *spec,
                         const char *token, struct hutch_err *err)
{
    auto_run_env env = { .list = NULL };
    char start[64];
    struct job job = { .mode = token ? "cells" : "processes", .name = "", .code = start, .cwd = spec->cwd };

    if (hutch_run_env_merge(spec, run->limits, request->env, &env, err) < 0)
        return -1;
    job.env = env.list;
    if (token)
        job.code_len = (size_t)snprintf(start, sizeof(start), "{\"token\":\"%s\"}", token);
    lower_limits(run, request, &job);
    return hutch_job_encode(&job, &run->job, &run->job_len, err);
}

/* Cells need an interpreter that is forked from a zygote, and what executes cells imported in it. */
static int check_for_cells(struct hutch_engine *engine, const struct engine_run *run,
                           const struct hutch_request *request, const struct sandbox_spec *spec, bool has_interpreter,
                           struct hutch_err *err)
{
    if (is_cramped(request))
        return hutch_err_say(err, EINVAL, "cells need 64 MiB of memory and a fifth of a CPU at least");
    if (has_interpreter &&
        needs_own_interpreter(engine, request->env, engine->configs.list[run->zygote_index].n_modules > 0))
        return hutch_err_say(err, EINVAL, "an interpreter for cells is there already, and a variable of the "
                             "environment would have to be there when it starts (LANG, PYTHONHASHSEED, "
                             "OMP_NUM_THREADS, …)");
    if (spec->network != NETWORK_NONE)
        return hutch_err_say(err, EINVAL, "cells can only be executed without a network");
    return 0;
}

/* --- all of it -------------------------------------------------------------------------------------------------- */

/* Not of "/": all is within that. */
static bool is_within(const char *path, const char *dir)
{
    size_t len = strlen(dir);

    return len > 1 && strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

static int set_data_dir(struct hutch_engine *engine, struct engine_run *run, const struct hutch_request *request,
                        struct hutch_err *err)
{
    const char *root;
    struct stat st;

    run->keep_data = request->keep_data;
    if (!request->data_dir)
        return 0;
    run->data_dir = realpath(request->data_dir, NULL);
    if (!run->data_dir || stat(run->data_dir, &st) < 0)
        return hutch_err_set(err, errno, "look at the data directory '%s'", request->data_dir);
    if (!S_ISDIR(st.st_mode))
        return hutch_err_set(err, ENOTDIR, "the data directory '%s'", request->data_dir);
    run->data_dev = st.st_dev;
    run->data_ino = st.st_ino;
    if (hutch_profile_refuse_own(&engine->profile, run->data_dir, err) < 0)
        return -1;
    /* The tree that zygotes run is not for a program to write to. */
    root = engine->spec.rootfs_path;
    if (root && (is_within(run->data_dir, root) || is_within(root, run->data_dir)))
        return hutch_err_say(err, EINVAL, "the data directory '%s' and the image's tree '%s' are one in the other",
                             run->data_dir, root);
    return 0;
}

static int set_source(struct engine_run *run, const struct hutch_request *request, const struct program *p,
                      struct hutch_err *err)
{
    if (request->input || p->is_input || request->rich)
        return hutch_err_say(err, EINVAL, "input_fd is for a program that reads it, and without another input");
    run->input.source_fd = fcntl(request->input_fd, F_DUPFD_CLOEXEC, 0);
    if (run->input.source_fd < 0)
        return hutch_err_set(err, errno, "take the input from descriptor %d", request->input_fd);
    return 0;
}

static int set_input(struct engine_run *run, const struct hutch_request *request, const struct program *p,
                     struct hutch_err *err)
{
    bool is_code = p->is_input && p->code_len > 0;
    const char *text = is_code ? p->code : request->input;
    size_t len = is_code ? p->code_len : request->input_len;

    if (request->has_input_fd)
        return set_source(run, request, p, err);
    if (len > INPUT_MAX_BYTES)
        return hutch_err_say(err, EINVAL, "an input of %zu bytes: at most %u can be", len, INPUT_MAX_BYTES);
    if (!text || len == 0)
        return 0;
    run->input.text = malloc(len);
    if (!run->input.text)
        return hutch_err_set(err, ENOMEM, "keep the input");
    memcpy(run->input.text, text, len);
    run->input.len = len;
    return 0;
}

/* What runs of one cell and sessions have in common. */
static int set_cells(struct hutch_engine *engine, struct engine_run *run, const struct hutch_request *request,
                     const char *token, bool has_cpu_rlimit, struct hutch_err *err)
{
    const struct template *pooled = choose_pool(engine, run, request);
    const struct sandbox_spec *spec;
    struct sandbox_spec own = { 0 };
    bool has_own = !pooled || (!has_cpu_rlimit && pooled->spec.limits[LIMIT_CPU_TIME]);

    if (has_own && make_own_spec(engine, request, &own, err) < 0)
        return -1;
    spec = has_own ? &own : &pooled->spec;
    memcpy(run->limits, spec->limits, sizeof(run->limits));
    run->grace_ms = spec->grace_ms;
    if (!has_cpu_rlimit)
        own.limits[LIMIT_CPU_TIME] = 0;
    if (check_for_cells(engine, run, request, spec, token != NULL, err) < 0 ||
        apply_limits(request, spec->limits, run->limits, err) < 0 ||
        set_cells_job(run, request, spec, token, err) < 0 ||
        (has_own && hutch_request_make_worker(engine, &own, err) < 0)) {
        hutch_spec_done(&own);
        return -1;
    }
    if (!has_own)
        return 0;
    run->template = hutch_template_create(&engine->templates, &own, err);
    return run->template ? 0 : -1;
}

static int set_cell_run(struct hutch_engine *engine, struct engine_run *run, const struct hutch_request *request,
                        const struct program *p, struct hutch_err *err)
{
    if (!p->is_python || request->name || (request->args && request->args[0]) || request->input)
        return hutch_err_say(err, EINVAL, "a rich run is Python code without name, arguments and input");
    if (!hutch_utf8_is_valid(p->code, p->code_len))
        return hutch_err_say(err, EINVAL, "the code is not UTF-8");
    run->zygote_index = (unsigned)hutch_zygote_configs_choose_for_cells(&engine->configs, NULL);
    if (hutch_cell_run_create(run, p->code, p->code_len, err) < 0)
        return -1;
    return set_cells(engine, run, request, hutch_cell_run_token(run), true, err);
}

/* --- calls of functions ------------------------------------------------------------------------------------------- */

static int check_call(const struct hutch_request *request, struct hutch_err *err)
{
    if (request->code || request->language || request->name || (request->args && request->args[0]) || request->input ||
        request->has_input_fd || request->rich)
        return hutch_err_say(err, EINVAL, "the call of a function has an event, and no code, language, name, "
                                          "arguments and input");
    if (is_cramped(request))
        return hutch_err_say(err, EINVAL, "a function needs 64 MiB of memory and a fifth of a CPU at least");
    return 0;
}

static int check_event(const char *event, size_t len, struct hutch_err *err)
{
    struct json_view ignored;

    if (len > FUNCTION_MAX_EVENT)
        return hutch_err_say(err, EINVAL, "an event of %zu bytes: at most %u can be", len, FUNCTION_MAX_EVENT);
    if (hutch_json_view_check("the event", 1, 1, event, len, &ignored, err) < 0) {
        err->errnum = EINVAL;
        return -1;
    }
    return 0;
}

static int set_call_job(struct engine_run *run, const struct hutch_request *request, const struct sandbox_spec *spec,
                        struct hutch_err *err)
{
    auto_run_env env = { .list = NULL };
    const char *event = request->event ? request->event : "null";
    struct job job = {
        .mode = "function", .name = "", .code = event, .cwd = spec->cwd,
        .code_len = request->event && request->event_len ? request->event_len : strlen(event),
    };

    if (hutch_run_env_merge(spec, run->limits, request->env, &env, err) < 0)
        return -1;
    job.env = env.list;
    if (check_event(event, job.code_len, err) < 0)
        return -1;
    lower_limits(run, request, &job);
    return hutch_job_encode(&job, &run->job, &run->job_len, err);
}

static int check_surroundings_of_call(const struct hutch_engine *engine, const struct hutch_request *request,
                                      const struct sandbox_spec *spec, struct hutch_err *err)
{
    if (needs_own_interpreter(engine, request->env, true))
        return hutch_err_say(err, EINVAL, "the interpreter of a function is there already, and a variable of the "
                             "environment would have to be there when it starts (LANG, PYTHONHASHSEED, "
                             "OMP_NUM_THREADS, …)");
    if (spec->network != NETWORK_NONE)
        return hutch_err_say(err, EINVAL, "a function can only be called without a network");
    return 0;
}

static int set_call(struct hutch_engine *engine, struct engine_run *run, const struct hutch_request *request,
                    struct hutch_err *err)
{
    const struct transfer_places places = { engine->spec.cwd, engine->profile.data_targets,
                                            request->data_targets };
    struct function *function = hutch_functions_find(&engine->functions, request->function, err);
    const struct template *pooled;
    const struct sandbox_spec *spec;
    struct sandbox_spec own = { 0 };

    if (!function || check_call(request, err) < 0 || set_data_dir(engine, run, request, err) < 0 ||
        hutch_run_transfer_take(&run->transfer, request, &places, err) < 0)
        return -1;
    run->kind = &hutch_call_run;
    run->kind_data = function;
    function->n_calls++;
    run->result.is_call = true;
    run->zygote_index = function->index;
    pooled = choose_pool(engine, run, request);
    if (!pooled && make_own_spec(engine, request, &own, err) < 0)
        return -1;
    spec = pooled ? &pooled->spec : &own;
    memcpy(run->limits, spec->limits, sizeof(run->limits));
    run->grace_ms = spec->grace_ms;
    if (check_surroundings_of_call(engine, request, spec, err) < 0 ||
        apply_limits(request, spec->limits, run->limits, err) < 0 || set_call_job(run, request, spec, err) < 0 ||
        (!pooled && hutch_request_make_worker(engine, &own, err) < 0)) {
        hutch_spec_done(&own);
        return -1;
    }
    if (pooled)
        return 0;
    run->template = hutch_template_create(&engine->templates, &own, err);
    return run->template ? 0 : -1;
}

/* --- programs ----------------------------------------------------------------------------------------------------- */

static int set_execution(struct hutch_engine *engine, struct engine_run *run, const struct hutch_request *request,
                         struct hutch_err *err)
{
    const struct transfer_places places = { engine->spec.cwd, engine->profile.data_targets,
                                            request->data_targets };
    struct sandbox_spec own = { 0 };
    const struct template *pooled = NULL;
    const struct sandbox_spec *spec;
    struct program program;
    bool has_own;

    if (read_program(request, &program, err) < 0 || set_data_dir(engine, run, request, err) < 0 ||
        set_input(run, request, &program, err) < 0 ||
        hutch_run_transfer_take(&run->transfer, request, &places, err) < 0)
        return -1;
    if (program.is_input && run->input.text) {
        program.code = run->input.text;
        program.code_len = run->input.len;
    }
    if (request->rich)
        return set_cell_run(engine, run, request, &program, err);
    if (program.is_python)
        run->zygote_index = hutch_zygote_configs_choose(&engine->configs, program.code, program.code_len);
    run->is_exec = !program.is_python || program.code_len > WORKER_CODE_MAX || is_cramped(request) ||
                   needs_own_interpreter(engine, request->env, engine->configs.list[run->zygote_index].n_modules > 0);
    if (!run->is_exec)
        pooled = choose_pool(engine, run, request);
    has_own = !pooled || pooled->spec.network != NETWORK_NONE;
    spec = has_own ? &own : &pooled->spec;
    if (has_own) {
        if (make_own_spec(engine, request, &own, err) < 0)
            return -1;
        if (own.network != NETWORK_NONE) /* a worker cannot join the host's, only be born in it */
            run->is_exec = true;
    }
    memcpy(run->limits, spec->limits, sizeof(run->limits));
    run->grace_ms = spec->grace_ms;
    if (apply_limits(request, spec->limits, run->limits, err) < 0)
        goto fail;
    if (run->is_exec) {
        if (set_exec(engine, run, request, &program, &own, err) < 0)
            goto fail;
    } else if (set_job(run, request, &program, spec, err) < 0 ||
               (has_own && hutch_request_make_worker(engine, &own, err) < 0)) {
        goto fail;
    }
    if (!has_own)
        return 0;
    run->template = hutch_template_create(&engine->templates, &own, err);
    return run->template ? 0 : -1;
fail:
    hutch_spec_done(&own);
    return -1;
}

/* --- sessions --------------------------------------------------------------------------------------------------- */

static int set_session(struct hutch_engine *engine, struct engine_run *run, const struct hutch_session_options *options,
                       const char *token, struct hutch_err *err)
{
    struct hutch_request request = {
        .policy = options->policy,
        .env = options->env,
        .data_dir = options->data_dir,
        .keep_data = options->keep_data,
        .data_targets = options->data_targets,
    };
    int zygote = token || options->zygote ? hutch_zygote_configs_choose_for_cells(&engine->configs, options->zygote)
                                          : 0; /* the smallest: nothing is executed in it */

    for (size_t i = 0; i < LIMIT_COUNT; i++)
        if (hutch_limit_rows[i].session_at)
            memcpy((char *)&request + hutch_limit_rows[i].request_at,
                   (const char *)options + hutch_limit_rows[i].session_at, sizeof(uint64_t));
    if (zygote < 0)
        return hutch_err_say(err, EINVAL, "there is no zygote '%s'", options->zygote);
    run->zygote_index = (unsigned)zygote;
    /* The kernel would count the CPU time of all cells. */
    return set_data_dir(engine, run, &request, err) < 0 ? -1 : set_cells(engine, run, &request, token, false, err);
}

static struct engine_run *make_run(struct hutch_engine *engine, uint64_t tenant, unsigned weight, struct hutch_err *err)
{
    struct engine_run *run = hutch_run_create(&engine->runs, tenant, weight);

    if (!run) {
        hutch_err_set(err, ENOMEM, "take a run");
        return NULL;
    }
    run->t_submitted = hutch_clock_ms();
    return run;
}

int hutch_request_accept_session(struct hutch_engine *engine, const struct hutch_session_options *options,
                                 const char *token, struct engine_run **ret, struct hutch_err *err)
{
    struct engine_run *run;

    if (check_list(options->env, "variables", err) < 0 || check_env(options->env, err) < 0 ||
        hutch_data_targets_check(options->data_targets, err) < 0)
        return -1;
    run = make_run(engine, 0, 1, err);
    if (!run)
        return -1;
    if (set_session(engine, run, options, token, err) < 0) {
        hutch_run_free(run);
        return -1;
    }
    *ret = run;
    return 0;
}

int hutch_request_accept(struct hutch_engine *engine, const struct hutch_request *request, struct engine_run **ret,
                         struct hutch_err *err)
{
    struct engine_run *run;

    if (check_list(request->args, "arguments", err) < 0 || check_list(request->env, "variables", err) < 0 ||
        check_env(request->env, err) < 0 || hutch_data_targets_check(request->data_targets, err) < 0)
        return -1;
    run = make_run(engine, request->tenant, request->weight, err);
    if (!run)
        return -1;
    run->kind = &hutch_job_run;
    run->on_output = request->on_output;
    run->on_result = request->on_result;
    run->user = request->user;
    if ((request->function ? set_call : set_execution)(engine, run, request, err) < 0) {
        hutch_run_free(run);
        return -1;
    }
    *ret = run;
    return 0;
}
