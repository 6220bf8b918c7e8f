#include "runtime/lib/engine_priv.h"

#include "runtime/data/files.h"
#include "runtime/text/utf8.h"
#include "sandbox/clock.h"
#include "sandbox/watched.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ORDERS 64
#define MAX_CODE (8u << 20)
#define MAX_ENV 256
#define MAX_ENV_BYTES (128u << 10)
#define MAX_CHECKPOINTS 64
#define DEFAULT_CHECKPOINTS 8
#define MAX_PROCESSES 64
_Static_assert(MAX_PROCESSES <= WATCHED_MAX, "init can watch all processes that a session may have");
#define DEFAULT_PROCESSES 16 /* where there is nothing else */
#define DEFAULT_IDLE_MS 600000
#define DEFAULT_LIFETIME_MS 86400000

static struct session *find_session(struct hutch_engine *engine, uint64_t id)
{
    return hutch_session_find(&engine->sessions, id);
}

/* A caller may pass the sentence on to whoever knows the session by another name than the engine's number. */
static int no_session(struct hutch_error *error)
{
    struct hutch_err err;

    hutch_err_set(&err, 0, "there is no such session, or no more");
    return hutch_engine_tell(error, &err, ENOENT);
}

struct session *hutch_engine_find_session(struct hutch_engine *engine, uint64_t id, struct hutch_error *error)
{
    struct session *s = find_session(engine, id);

    if (!s)
        no_session(error);
    return s;
}

int hutch_session_open(struct hutch_engine *engine, const struct hutch_session_options *given, uint64_t *ret_id,
                       struct hutch_error *error)
{
    struct hutch_session_options options;
    struct hutch_err err = { 0 };
    struct engine_run *run;
    struct session *s;

    hutch_engine_copy_sized(&options, sizeof(options), given);
    if (engine->sessions.n >= engine->sessions.max) {
        hutch_err_set(&err, 0, "%u sessions are open, which is the most that may", engine->sessions.n);
        return hutch_engine_tell(error, &err, EAGAIN);
    }
    if (options.max_checkpoints > MAX_CHECKPOINTS) {
        hutch_err_say(&err, EINVAL, "max_checkpoints of %u: at most %d can be", options.max_checkpoints,
                      MAX_CHECKPOINTS);
        return hutch_engine_tell(error, &err, 0);
    }
    if (options.max_processes > MAX_PROCESSES) {
        hutch_err_say(&err, EINVAL, "max_processes of %u: at most %d can be", options.max_processes, MAX_PROCESSES);
        return hutch_engine_tell(error, &err, 0);
    }
    if (options.no_interpreter && options.max_processes == 0)
        options.max_processes = DEFAULT_PROCESSES;
    if (hutch_descriptors_for_session(engine, options.max_processes > 0 || options.paths, &err) < 0)
        return hutch_engine_tell(error, &err, 0);
    s = hutch_session_create(&engine->sessions, &err);
    if (!s)
        return hutch_engine_tell(error, &err, 0);
    if (hutch_request_accept_session(engine, &options, options.no_interpreter ? NULL : s->token, &run, &err) < 0) {
        hutch_session_free(s);
        return hutch_engine_tell(error, &err, err.errnum ? err.errnum : EINVAL);
    }
    hutch_session_set_lifetime_ms(s, options.idle_ms ? options.idle_ms : DEFAULT_IDLE_MS,
                                  options.lifetime_ms ? options.lifetime_ms : DEFAULT_LIFETIME_MS);
    s->checkpoints.max = options.max_checkpoints ? options.max_checkpoints : DEFAULT_CHECKPOINTS;
    s->checkpoints.max_bytes = options.checkpoint_bytes;
    s->processes.max = options.max_processes;
    s->paths.is_allowed = options.paths || options.max_processes > 0;
    s->has_no_interpreter = options.no_interpreter != 0;
    s->keep_data = options.keep_data;
    s->on_end = options.on_end;
    s->user = options.user;
    hutch_session_start(s, run);
    if (options.wall_ms)
        s->wall_ms = options.wall_ms == HUTCH_NO_LIMIT ? 0 : options.wall_ms;
    if (ret_id)
        *ret_id = s->id;
    return 0;
}

static bool is_context(const char *name)
{
    size_t len = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-");

    return len > 0 && len <= CONTEXTS_MAX_NAME && name[len] == '\0';
}

static int read_env(const char *const *env, struct order *order, struct hutch_err *err)
{
    size_t n = 0, bytes = 0;

    for (; env && env[n]; n++) {
        const char *equals = strchr(env[n], '=');

        bytes += strlen(env[n]) + 1;
        if (!hutch_utf8_is_valid(env[n], strlen(env[n])))
            return hutch_err_say(err, EINVAL, "variable %zu of the environment is not UTF-8", n + 1);
        if (!equals || equals == env[n])
            return hutch_err_say(err, EINVAL, "environment '%.*s': expected NAME=VALUE",
                                 (int)hutch_utf8_cut(env[n], strlen(env[n]), 80), env[n]);
        if (n >= MAX_ENV || bytes > MAX_ENV_BYTES)
            return hutch_err_say(err, EINVAL, "the environment of a cell has at most %d variables and %u bytes",
                                 MAX_ENV, MAX_ENV_BYTES);
    }
    if (!env)
        return 0;
    order->env = calloc(n + 1, sizeof(*order->env));
    for (size_t i = 0; order->env && i < n; i++)
        if (!(order->env[i] = strdup(env[i])))
            return hutch_err_set(err, ENOMEM, "keep the environment");
    if (!order->env)
        return hutch_err_set(err, ENOMEM, "keep the environment");
    order->cell.env = (const char *const *)order->env;
    return 0;
}

int hutch_engine_check_code(const char *code, size_t code_len, size_t max, size_t *ret_len, struct hutch_err *err)
{
    size_t len;

    if (!code)
        return hutch_err_say(err, EINVAL, "there is no code");
    len = code_len ? code_len : strlen(code);
    if (len > max)
        return hutch_err_say(err, EINVAL, "the code is longer than %zu bytes", max);
    if (memchr(code, '\0', len))
        return hutch_err_say(err, EINVAL, "the code has a NUL byte in it");
    if (!hutch_utf8_is_valid(code, len))
        return hutch_err_say(err, EINVAL, "the code is not UTF-8");
    *ret_len = len;
    return 0;
}

int hutch_engine_check_context(const char *name, struct hutch_err *err)
{
    if (name && !is_context(name))
        return hutch_err_say(err, EINVAL, "a context's name is 1 to %d letters, digits, '-' and '_'",
                             CONTEXTS_MAX_NAME);
    return 0;
}

/* Fills @order with what @given says. */
static int read_cell(struct session *s, const struct hutch_cell *given, struct order *order, struct hutch_err *err)
{
    struct hutch_cell *cell = &order->cell;
    size_t len;

    hutch_engine_copy_sized(cell, sizeof(*cell), given);
    if (hutch_engine_check_code(cell->code, cell->code_len, MAX_CODE, &len, err) < 0 ||
        hutch_engine_check_context(cell->context, err) < 0)
        return -1;
    if (s->wall_ms && cell->timeout_ms > s->wall_ms)
        return hutch_err_say(err, EINVAL, "timeout_ms of %" PRIu64 " is above the policy's %" PRIu64, cell->timeout_ms,
                             s->wall_ms);
    if (!cell->timeout_ms)
        cell->timeout_ms = s->wall_ms;
    if (read_env(cell->env, order, err) < 0 || (cell->calls && hutch_calls_read(cell->calls, &order->calls, err) < 0))
        return -1;
    cell->calls = NULL;
    if (cell->cwd && (cell->cwd[0] != '/' || strlen(cell->cwd) >= PATH_MAX ||
                      !hutch_utf8_is_valid(cell->cwd, strlen(cell->cwd))))
        return hutch_err_say(err, EINVAL, "the cwd of a cell is an absolute path in UTF-8, and this one is not");
    order->code = strndup(cell->code, len);
    order->context = cell->context ? strdup(cell->context) : NULL;
    order->cwd = cell->cwd ? strdup(cell->cwd) : NULL;
    if (!order->code || (cell->context && !order->context) || (cell->cwd && !order->cwd))
        return hutch_err_set(err, ENOMEM, "keep the code");
    cell->code = cell->context = NULL;
    cell->cwd = order->cwd;
    return 0;
}

/* NULL when there is no such session @s, or no room in its queue. */
struct order *hutch_engine_make_order(struct session *s, struct hutch_error *error)
{
    struct hutch_err err = { 0 };
    struct order *order;

    if (!s) {
        no_session(error);
        return NULL;
    }
    if (s->has_no_interpreter) {
        hutch_err_set(&err, 0, "the session has no interpreter: it has processes and files only");
        hutch_engine_tell(error, &err, EINVAL);
        return NULL;
    }
    if (s->n_orders >= MAX_ORDERS) {
        hutch_err_set(&err, 0, "%u cells wait already, which is the most that may", s->n_orders);
        hutch_engine_tell(error, &err, EAGAIN);
        return NULL;
    }
    order = calloc(1, sizeof(*order));
    if (!order) {
        hutch_err_set(&err, ENOMEM, "take an order");
        hutch_engine_tell(error, &err, 0);
    }
    return order;
}

int hutch_session_execute(struct hutch_engine *engine, uint64_t id, const struct hutch_cell *cell,
                          struct hutch_error *error)
{
    struct session *s = find_session(engine, id);
    struct order *order = hutch_engine_make_order(s, error);
    struct hutch_err err;

    if (!order)
        return -1;
    if (read_cell(s, cell, order, &err) < 0) {
        hutch_order_free(order);
        return hutch_engine_tell(error, &err, 0);
    }
    order->id = ++s->last_cell;
    if (order->cell.ret_id)
        *order->cell.ret_id = order->id;
    order->cell.ret_id = NULL;
    hutch_session_enqueue(s, order);
    return 0;
}

int hutch_session_cancel_cell(struct hutch_engine *engine, uint64_t id, uint64_t cell)
{
    struct session *s = find_session(engine, id);

    return s ? hutch_session_cancel_order(s, cell) : 0;
}

int hutch_session_interrupt(struct hutch_engine *engine, uint64_t id)
{
    struct session *s = find_session(engine, id);

    return s && hutch_session_interrupt_cell(s) ? 1 : 0;
}

int hutch_session_reply(struct hutch_engine *engine, uint64_t id, const char *text)
{
    struct session *s = find_session(engine, id);

    return s && hutch_session_give_input(s, text) ? 1 : 0;
}

int hutch_session_answer(struct hutch_engine *engine, uint64_t id, uint64_t call, const char *json, int is_error,
                         struct hutch_error *error)
{
    struct session *s = find_session(engine, id);
    struct hutch_err err = { 0 };

    if (!s)
        return no_session(error);
    return hutch_calls_answer(s, call, json, is_error, &err) < 0 ? hutch_engine_tell(error, &err, 0) : 0;
}

int hutch_session_restart(struct hutch_engine *engine, uint64_t id, struct hutch_error *error)
{
    struct session *s = find_session(engine, id);

    if (!s)
        return no_session(error);
    hutch_session_begin_restart(s);
    return 0;
}

int hutch_session_close(struct hutch_engine *engine, uint64_t id)
{
    struct session *s = find_session(engine, id);

    if (!s)
        return 0;
    hutch_session_begin_end(s, "the session was closed");
    return 1;
}

/* --- checkpoints and branches ----------------------------------------------------------------------------------- */

static int order_copy(struct hutch_engine *engine, uint64_t id, enum order_kind kind, uint64_t target,
                      hutch_on_reply on_reply, void *user, struct hutch_error *error)
{
    struct session *s = find_session(engine, id);
    struct hutch_err err = { 0 };
    struct order *order;

    if (s && (kind == ORDER_CHECKPOINT || kind == ORDER_FORK) && hutch_descriptors_for_copy(engine, &err) < 0)
        return hutch_engine_tell(error, &err, 0);
    order = hutch_engine_make_order(s, error);
    if (!order)
        return -1;
    order->kind = kind;
    order->target = target;
    order->on_reply = on_reply;
    order->user = user;
    hutch_session_enqueue(s, order);
    return 0;
}

int hutch_session_checkpoint(struct hutch_engine *engine, uint64_t id, hutch_on_reply on_reply, void *user,
                             struct hutch_error *error)
{
    return order_copy(engine, id, ORDER_CHECKPOINT, 0, on_reply, user, error);
}

int hutch_session_rollback(struct hutch_engine *engine, uint64_t id, uint64_t checkpoint, hutch_on_reply on_reply,
                           void *user, struct hutch_error *error)
{
    return order_copy(engine, id, ORDER_ROLLBACK, checkpoint, on_reply, user, error);
}

int hutch_session_fork(struct hutch_engine *engine, uint64_t id, hutch_on_reply on_reply, void *user,
                       struct hutch_error *error)
{
    return order_copy(engine, id, ORDER_FORK, 0, on_reply, user, error);
}

int hutch_session_switch(struct hutch_engine *engine, uint64_t id, uint64_t branch, hutch_on_reply on_reply, void *user,
                         struct hutch_error *error)
{
    return order_copy(engine, id, ORDER_SWITCH, branch, on_reply, user, error);
}

int hutch_session_drop(struct hutch_engine *engine, uint64_t id, uint64_t checkpoint_or_branch, hutch_on_reply on_reply,
                       void *user, struct hutch_error *error)
{
    return order_copy(engine, id, ORDER_DROP, checkpoint_or_branch, on_reply, user, error);
}

/* --- files ------------------------------------------------------------------------------------------------------ */

/* The session whose /mnt/data it is; NULL also before its first sandbox, when there is none. */
static struct session *find_files(struct hutch_engine *engine, uint64_t id, struct hutch_error *error)
{
    struct session *s = find_session(engine, id);
    struct hutch_err err;

    if (!s) {
        no_session(error);
        return NULL;
    }
    if (s->data.dirfd >= 0)
        return s;
    hutch_err_set(&err, 0, "the session has no sandbox yet: its files are there when it has");
    hutch_engine_tell(error, &err, EAGAIN);
    return NULL;
}

int hutch_session_await_files(struct hutch_engine *engine, uint64_t id, hutch_on_reply on_reply, void *user,
                              struct hutch_error *error)
{
    struct session *s = hutch_engine_find_session(engine, id, error);
    struct hutch_err err = { 0 };

    if (!s)
        return -1;
    return hutch_data_waits_add(s, on_reply, user, &err) < 0 ? hutch_engine_tell(error, &err, 0) : 0;
}

char *hutch_session_files(struct hutch_engine *engine, uint64_t id, struct hutch_error *error)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    struct session *s = find_files(engine, id, error);
    struct hutch_err err;
    char *json;

    if (!s)
        return NULL;
    if (hutch_files_list(s->data.dirfd, &bounds, &json, &err) < 0) {
        hutch_engine_tell(error, &err, 0);
        return NULL;
    }
    return json;
}

int hutch_session_open_file(struct hutch_engine *engine, uint64_t id, const char *name, int flags,
                            struct hutch_error *error)
{
    struct session *s = find_files(engine, id, error);
    struct hutch_err err;
    int fd;

    if (!s)
        return -1;
    if (hutch_files_open(s->data.dirfd, name, flags, &fd, &err) < 0)
        return hutch_engine_tell(error, &err, 0);
    s->data.has_foreign = s->data.has_foreign || flags != O_RDONLY;
    return fd;
}

int hutch_session_delete_file(struct hutch_engine *engine, uint64_t id, const char *name, struct hutch_error *error)
{
    struct session *s = find_files(engine, id, error);
    struct hutch_err err;

    if (!s)
        return -1;
    if (hutch_files_delete(s->data.dirfd, name, &err) < 0)
        return hutch_engine_tell(error, &err, 0);
    s->data.has_foreign = true;
    return 0;
}
