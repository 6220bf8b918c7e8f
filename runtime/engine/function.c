#include "runtime/engine/function.h"

#include "runtime/text/utf8.h"
#include "sandbox/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct zygote_config *config_of(const struct function *function)
{
    return &function->functions->zygotes->configs->list[function->index];
}

static void wake(struct functions *functions)
{
    hutch_loop_advance_deadline(&functions->core->loop, &functions->clock, 0);
}

/* Of those of that name, the one in @state. */
static struct function *find(const struct functions *functions, const char *name, enum function_state state)
{
    struct function *function;

    LIST_FOREACH(function, &functions->list, link)
        if (function->state == state && strcmp(config_of(function)->name, name) == 0)
            break;
    return function;
}

/* The one that calls of that name go to. */
static struct function *find_current(const struct functions *functions, const char *name)
{
    struct function *function = find(functions, name, FUNCTION_READY);

    return function ? function : find(functions, name, FUNCTION_FAILED);
}

/* Nothing refers to it: its processes end, and its place is free. */
static void free_function(struct function *function)
{
    static const struct hutch_err why = { .msg = "the function was taken away" };
    struct functions *functions = function->functions;

    hutch_pools_close_function(functions->pools, function->index, &why);
    hutch_pools_remove_function(functions->pools, function->index);
    hutch_zygotes_forget(functions->zygotes, function->index);
    hutch_zygote_configs_remove_function(functions->zygotes->configs, function->index);
    LIST_REMOVE(function, link);
    free(function);
}

/* The place goes when the last call is over, by the clock: a call may end amid what uses it. */
static void retire(struct function *function)
{
    function->state = FUNCTION_RETIRED;
    hutch_pools_retire_function(function->functions->pools, function->index);
    wake(function->functions);
}

/* Tells who has set it, once. */
static void tell(struct function *function, const struct hutch_err *why)
{
    void (*on_ready)(void *user, const char *name, const struct hutch_error *why) = function->on_ready;
    struct hutch_error error;

    function->on_ready = NULL;
    if (!on_ready)
        return;
    if (why) {
        error.code = why->errnum;
        snprintf(error.message, sizeof(error.message), "%s", why->msg);
    }
    on_ready(function->user, config_of(function)->name, why ? &error : NULL);
}

/* What the zygote itself says names the function already. */
static void name_failure(const struct function *function, struct hutch_err *ret)
{
    const struct zygote_config *config = config_of(function);

    if (strncmp(config->why.msg, "the function '", strlen("the function '")) == 0)
        *ret = config->why;
    else
        hutch_err_set(ret, 0, "the function '%s' cannot be imported: %s", config->name,
                      config->why.msg);
}

static void be_ready(struct function *function)
{
    struct function *old = find_current(function->functions, config_of(function)->name);

    function->state = FUNCTION_READY;
    if (old)
        retire(old);
    hutch_pools_open_function(function->functions->pools, function->index, function->min, function->max);
    tell(function, NULL);
}

static void fail_to_start(struct function *function)
{
    struct hutch_err err;

    name_failure(function, &err);
    function->state = FUNCTION_RETIRED;
    tell(function, &err);
}

static void be_lost(struct function *function)
{
    struct hutch_err err;

    name_failure(function, &err);
    function->state = FUNCTION_FAILED;
    hutch_pools_close_function(function->functions->pools, function->index, &err);
}

/* Does what is due for one of them. False when nothing is. */
static bool take_step(struct function *function)
{
    const struct zygote_config *config = config_of(function);

    if (function->state == FUNCTION_RETIRED && function->n_calls == 0)
        free_function(function);
    else if (function->state == FUNCTION_STARTING && config->has_given_up)
        fail_to_start(function);
    else if (function->state == FUNCTION_STARTING &&
             hutch_zygotes_are_ready(function->functions->zygotes, function->index))
        be_ready(function);
    else if (function->state == FUNCTION_READY && config->has_given_up)
        be_lost(function);
    else
        return false;
    return true;
}

/* A callback may set and drop any of them, so each step begins anew. */
static void on_due(void *owner, double now)
{
    struct functions *functions = owner;
    struct function *function;

    (void)now;
    do {
        LIST_FOREACH(function, &functions->list, link)
            if (take_step(function))
                break;
    } while (function);
}

void hutch_functions_init(struct functions *functions, struct zygotes *zygotes, struct pools *pools)
{
    *functions = (struct functions){ .core = zygotes->core, .zygotes = zygotes, .pools = pools,
                                     .clock = DEADLINE_INIT(on_due, functions) };
    LIST_INIT(&functions->list);
}

void hutch_functions_done(struct functions *functions)
{
    struct function *function;

    hutch_loop_set_deadline(&functions->core->loop, &functions->clock, LOOP_NEVER);
    while ((function = LIST_FIRST(&functions->list))) {
        LIST_REMOVE(function, link);
        free(function);
    }
}

static int read_given(const struct hutch_function *given, size_t *ret_len, struct hutch_err *err)
{
    size_t len = given->code && given->code_len ? given->code_len : strlen(given->code ? given->code : "");

    if (!given->name || !given->code)
        return hutch_err_set(err, 0, "a function has a name and code");
    if (memchr(given->code, '\0', len) || !hutch_utf8_is_valid(given->code, len))
        return hutch_err_set(err, 0, "the function '%s' is not UTF-8, or has a NUL byte in it", given->name);
    *ret_len = len;
    return 0;
}

int hutch_functions_set(struct functions *functions, const struct hutch_function *given, struct function **ret,
                        struct hutch_err *err)
{
    struct function *function, *earlier;
    size_t len = 0;

    if (read_given(given, &len, err) < 0)
        return -1;
    function = calloc(1, sizeof(*function));
    if (!function)
        return hutch_err_set(err, ENOMEM, "keep the function '%s'", given->name);
    *function = (struct function){ .functions = functions, .min = given->min, .max = given->max,
                                   .on_ready = given->on_ready, .user = given->user };
    if (!hutch_zygote_configs_set_bounds(&function->min, &function->max)) {
        hutch_err_set(err, 0, "function '%s': min %u is above max %u", given->name, given->min, given->max);
        free(function);
        return -1;
    }
    if (hutch_zygote_configs_add_function(functions->zygotes->configs, given->name, given->code, len,
                                          &function->index, err) < 0) {
        free(function);
        return -1;
    }
    hutch_pools_add_function(functions->pools, function->index, functions->template);
    earlier = find(functions, given->name, FUNCTION_STARTING);
    if (earlier) { /* it does not come to that any more */
        struct zygote_config *config = config_of(earlier);

        config->has_given_up = true;
        hutch_err_set(&config->why, 0, "the function '%s' was set again before it was ready", given->name);
        config->why.errnum = ECANCELED;
    }
    LIST_INSERT_HEAD(&functions->list, function, link);
    hutch_zygotes_begin(functions->zygotes);
    wake(functions);
    *ret = function;
    return 0;
}

void hutch_functions_take_back(struct function *function)
{
    function->on_ready = NULL;
    free_function(function);
}

bool hutch_functions_drop(struct functions *functions, const char *name)
{
    struct function *starting = find(functions, name, FUNCTION_STARTING), *current = find_current(functions, name);

    if (starting) {
        struct zygote_config *config = config_of(starting);

        config->has_given_up = true;
        hutch_err_set(&config->why, 0, "the function '%s' was dropped before it was ready", name);
        config->why.errnum = ECANCELED;
        wake(functions);
    }
    if (current)
        retire(current);
    return starting || current;
}

struct function *hutch_functions_find(struct functions *functions, const char *name, struct hutch_err *err)
{
    struct function *function = find_current(functions, name);

    if (function && function->state == FUNCTION_READY)
        return function;
    if (function) {
        name_failure(function, err);
        err->errnum = EIO;
    } else if (find(functions, name, FUNCTION_STARTING)) {
        hutch_err_set(err, 0, "the function '%s' is not ready yet", name);
        err->errnum = EAGAIN;
    } else {
        hutch_err_set(err, 0, "there is no function '%s'", name);
        err->errnum = ENOENT;
    }
    return NULL;
}

void hutch_function_release(struct function *function)
{
    function->n_calls--;
    wake(function->functions);
}

bool hutch_functions_describe(const struct functions *functions, const char *name, struct hutch_function_info *ret)
{
    const struct function *current = find_current(functions, name), *next = find(functions, name, FUNCTION_STARTING);
    const struct function *one = current ? current : next;
    const struct pool *pool = one ? hutch_pools_of_function(functions->pools, one->index) : NULL;
    struct hutch_err err = { 0 };

    if (!one)
        return false;
    if (one->state == FUNCTION_FAILED)
        name_failure(one, &err);
    *ret = (struct hutch_function_info){
        .size = sizeof(*ret),
        .is_ready = one->state == FUNCTION_READY,
        .is_starting = next != NULL,
        .prepared = pool->n_idle,
        .building = pool->n_building,
        .calls = one->n_calls,
        .from_pool = pool->from_pool,
        .on_demand = pool->on_demand,
    };
    snprintf(ret->why, sizeof(ret->why), "%s", err.msg);
    return true;
}

void hutch_functions_on_zygote(struct functions *functions)
{
    if (!LIST_EMPTY(&functions->list))
        wake(functions);
}

void hutch_functions_refuse_all(struct functions *functions)
{
    struct function *function;

    do {
        LIST_FOREACH(function, &functions->list, link)
            if (function->state == FUNCTION_STARTING) {
                function->state = FUNCTION_RETIRED;
                tell(function, &functions->core->why);
                break;
            }
    } while (function);
}
