#include "runtime/engine/pool.h"

#include "runtime/engine/slot_ids.h"
#include "runtime/run/supervisor.h"
#include "sandbox/clock.h"
#include "sandbox/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BACKOFF_MS 20
#define BACKOFF_MAX_MS 2000
#define SAME_DEATH_MS 20 /* apart, deaths have one cause: a launcher, a zygote, a group of processes */
#define MAX_DEATHS 10

static const struct slot_events slot_events;

static const struct zygote_config *config_of(const struct pool *pool)
{
    return &pool->pools->configs->list[pool->zygote_index];
}

/* --- idle ones ---------------------------------------------------------------------------------------------------- */

static void keep_idle(struct pool *pool, struct slot *slot)
{
    TAILQ_INSERT_HEAD(&pool->idle, slot, idle);
    slot->is_idle = true;
    pool->n_idle++;
    pool->pools->n_prepared++;
}

static void take_idle(struct pool *pool, struct slot *slot)
{
    TAILQ_REMOVE(&pool->idle, slot, idle);
    slot->is_idle = false;
    pool->n_idle--;
    pool->pools->n_prepared--;
}

static void discard_idle(struct pool *pool, struct slot *slot)
{
    take_idle(pool, slot);
    hutch_slot_discard(slot);
}

/* --- two kinds ---------------------------------------------------------------------------------------------------- */

/* Whether a run with a directory of the caller's cannot have a sandbox that was prepared with ids of its own. */
static bool has_two_kinds(const struct pool *pool)
{
    return hutch_slots_map_in_memory(pool->pools->slots, pool->template);
}

static struct slot *find_idle(const struct pool *pool, bool shares_ids)
{
    struct slot *slot;
    bool has_kinds = has_two_kinds(pool);

    TAILQ_FOREACH(slot, &pool->idle, idle) /* the youngest first: its memory is in the caches */
        if (!has_kinds || slot->shares_ids == shares_ids)
            break;
    return slot;
}

static struct pool_wait *find_waiting(const struct pool *pool, const struct slot *slot)
{
    struct pool_wait *wait;
    bool has_kinds = has_two_kinds(pool);

    TAILQ_FOREACH(wait, &pool->waiting, link)
        if (!has_kinds || wait->shares_ids == slot->shares_ids)
            break;
    return wait;
}

/* The kind of the next one that is built: what waits comes first, then what was asked for lately. */
static bool next_shares_ids(const struct pool *pool)
{
    unsigned waiting = 0, idle = 0;
    const struct pool_wait *wait;
    const struct slot *slot;

    if (!has_two_kinds(pool))
        return false;
    TAILQ_FOREACH(wait, &pool->waiting, link)
        waiting += wait->shares_ids;
    if (pool->n_building < pool->n_waiting)
        return pool->n_sharing < waiting;
    TAILQ_FOREACH(slot, &pool->idle, idle)
        idle += slot->shares_ids;
    return idle + pool->n_sharing < waiting + (pool->target * pool->sharing + 128) / 256;
}

static void note_asked(struct pool *pool, bool shares_ids)
{
    pool->sharing = (pool->sharing * 7 + (shares_ids ? 256 : 0)) / 8;
}

/* A full pool gives up its oldest sandbox, which is of the other kind, for one of the kind that was missed. */
static void make_room(struct pool *pool)
{
    if (pool->n_idle > 0 && pool->n_idle >= pool->target)
        discard_idle(pool, TAILQ_LAST(&pool->idle, slot_list));
}

/* --- building ----------------------------------------------------------------------------------------------------- */

static void note_failure(struct pool *pool, const struct hutch_err *why);

static bool build_one(struct pool *pool)
{
    struct pools *pools = pool->pools;
    const bool shares_ids = next_shares_ids(pool);
    struct hutch_err err;
    struct slot *slot = hutch_slot_create(pools->slots, pool->template, pool->zygote_index, false, shares_ids, NULL,
                                          &slot_events, pool, &err);

    if (!slot) {
        note_failure(pool, &err);
        return false;
    }
    pool->n_building++;
    pool->n_sharing += shares_ids;
    hutch_slot_build(slot);
    return slot->state < SLOT_DESTROYING; /* else on_failed was called, and the next would fail likewise */
}

static bool may_build(const struct pool *pool)
{
    const struct pools *pools = pool->pools;

    return pools->slots->n_building < pools->max_building &&
           (pool->n_idle + pool->n_building < pool->n_waiting + pool->min ||
            pools->n_prepared + pools->slots->n_building < pools->max_prepared);
}

static void refill(struct pool *pool)
{
    struct pools *pools = pool->pools;
    unsigned wanted;

    if (pools->core->is_broken || !pools->slots->helper->has_launcher || hutch_clock_ms() < pool->retry_at)
        return;
    while (pool->n_building < pool->n_waiting) /* each of them is waited for */
        if (!build_one(pool))
            return;
    if (config_of(pool)->has_given_up) { /* runs go to another one's pool */
        while (!TAILQ_EMPTY(&pool->idle))
            discard_idle(pool, TAILQ_FIRST(&pool->idle));
        return;
    }
    wanted = pool->n_waiting + (pool->target > pool->n_idle ? pool->target - pool->n_idle : 0);
    while (pool->n_building < wanted && may_build(pool))
        if (!build_one(pool))
            return;
}

static void refuse_waiting(struct pool *pool, const struct hutch_err *why)
{
    while (!TAILQ_EMPTY(&pool->waiting)) {
        struct pool_wait *wait = TAILQ_FIRST(&pool->waiting);

        hutch_pool_leave(wait);
        wait->on_refused(wait->owner, why);
    }
}

/* One on its way did not get there. */
static void note_failure(struct pool *pool, const struct hutch_err *why)
{
    struct core *core = pool->pools->core;
    double wait, now = hutch_clock_ms();
    struct hutch_err unknown;

    if (!why) {
        if (now - pool->counted_death > SAME_DEATH_MS) {
            pool->deaths++;
            pool->counted_death = now;
        }
        if (pool->deaths < MAX_DEATHS) { /* a process was killed, and that can happen to the next one too */
            refill(pool);
            return;
        }
        hutch_err_set(&unknown, 0, "%u sandboxes in a row broke before they were ready", pool->deaths);
        why = &unknown;
    }
    hutch_log_debug("engine: pool '%s'%s%s: %s", config_of(pool)->name, pool->policy ? " with policy " : "",
                    pool->policy ? pool->policy : "", why->msg);
    pool->failures++;
    wait = BACKOFF_MS << (pool->failures < 8 ? pool->failures - 1 : 7);
    pool->retry_at = now + (wait < BACKOFF_MAX_MS ? wait : BACKOFF_MAX_MS);
    hutch_loop_advance_deadline(&core->loop, &pool->clock, pool->retry_at);
    if (pool->failures < CORE_MAX_RESTARTS)
        return;
    if (!core->has_worked)
        hutch_core_break(core, why);
    else
        refuse_waiting(pool, why);
}

/* --- what a sandbox tells ----------------------------------------------------------------------------------------- */

static void leave_building(struct pool *pool, const struct slot *slot)
{
    pool->n_building--;
    pool->n_sharing -= slot->shares_ids;
}

static void on_prepared(void *owner, struct slot *slot)
{
    struct pool *pool = owner;
    struct pool_wait *wait = find_waiting(pool, slot);

    leave_building(pool, slot);
    pool->failures = pool->deaths = 0;
    pool->last_given = slot->since;
    if (wait) {
        hutch_pool_leave(wait);
        wait->on_slot(wait->owner, slot);
    } else {
        keep_idle(pool, slot);
    }
    hutch_pools_refill(pool->pools); /* there is room for another build, of any pool */
}

static void on_failed(void *owner, struct slot *slot, const struct hutch_err *why)
{
    struct pool *pool = owner;

    if (slot->is_idle) {
        take_idle(pool, slot);
        refill(pool);
    } else {
        leave_building(pool, slot);
        note_failure(pool, why);
    }
}

static void on_refused(void *owner, struct slot *slot, const struct hutch_err *why)
{
    struct pool *pool = owner;

    leave_building(pool, slot);
    pool->retry_at = hutch_clock_ms() + BACKOFF_MAX_MS; /* the next one would be refused likewise */
    hutch_loop_advance_deadline(&pool->pools->core->loop, &pool->clock, pool->retry_at);
    refuse_waiting(pool, why);
}

/* The others come only when it was taken, and is another's. */
static const struct slot_events slot_events = { .on_prepared = on_prepared,
                                                .on_failed = on_failed,
                                                .on_refused = on_refused };

/* --- asking ------------------------------------------------------------------------------------------------------- */

void hutch_pool_name_awaited(const struct pools *pools, unsigned index, char *text, size_t size)
{
    const struct slot *slot, *first = NULL;

    TAILQ_FOREACH(slot, &pools->slots->list, link)
        if (slot->owner == &pools->list[index] && slot->state < SLOT_PREPARED && (!first || slot->since < first->since))
            first = slot;
    if (first)
        hutch_slot_name_awaited(first, text, size);
    else
        snprintf(text, size, "%s", pools->slots->helper->has_launcher ? "a sandbox" : "a launcher");
}

bool hutch_pool_has_idle(const struct pools *pools, unsigned index, bool shares_ids)
{
    return find_idle(&pools->list[index], shares_ids);
}

void hutch_pool_ask(struct pools *pools, unsigned index, struct pool_wait *wait)
{
    struct pool *pool = &pools->list[index];
    struct slot *slot = find_idle(pool, wait->shares_ids);

    note_asked(pool, wait->shares_ids);
    if (slot) {
        take_idle(pool, slot);
        pools->from_pool++;
        pool->from_pool++;
        wait->on_slot(wait->owner, slot);
        return;
    }
    pools->on_demand++;
    pool->on_demand++;
    pool->last_missed = hutch_clock_ms();
    hutch_loop_advance_deadline(&pools->core->loop, &pool->clock, pool->last_missed + (double)pools->trim_ms);
    make_room(pool);
    if (pool->target < pool->max)
        pool->target++;
    TAILQ_INSERT_TAIL(&pool->waiting, wait, link);
    wait->pool = pool;
    pool->n_waiting++;
    refill(pool);
}

void hutch_pool_leave(struct pool_wait *wait)
{
    if (!wait->pool)
        return;
    TAILQ_REMOVE(&wait->pool->waiting, wait, link);
    wait->pool->n_waiting--;
    wait->pool = NULL;
}

/* --- clocks ------------------------------------------------------------------------------------------------------- */

/* A pool that was large enough for a while may be too large. Says when that is to be asked again. */
static double trim(struct pool *pool, double now)
{
    unsigned min = pool->min;
    double trim_ms = (double)pool->pools->trim_ms, due = pool->last_missed + trim_ms;

    if (pool->target <= min && pool->n_idle <= pool->target)
        return LOOP_NEVER;
    if (now < due)
        return due;
    pool->last_missed = now; /* one step, then another while */
    if (pool->target > min)
        pool->target -= (pool->target - min + 1) / 2;
    while (pool->n_idle > pool->target)
        discard_idle(pool, TAILQ_LAST(&pool->idle, slot_list));
    return pool->target > min ? now + trim_ms : LOOP_NEVER;
}

static void on_due(void *owner, double now)
{
    struct pool *pool = owner;
    double due = trim(pool, now);

    refill(pool);
    hutch_loop_advance_deadline(&pool->pools->core->loop, &pool->clock,
                                pool->retry_at > now && pool->retry_at < due ? pool->retry_at : due);
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

void hutch_pools_init(struct pools *pools, struct slots *slots, const struct zygote_configs *configs)
{
    *pools = (struct pools){ .core = slots->core, .slots = slots, .configs = configs };
}

static struct pool *set_pool(struct pools *pools, unsigned index, unsigned zygote_index, unsigned min, unsigned max)
{
    struct pool *pool = &pools->list[index];

    if (index == pools->n)
        pools->n++;
    *pool = (struct pool){ .pools = pools, .zygote_index = zygote_index, .min = min, .max = max, .target = min,
                           .clock = DEADLINE_INIT(on_due, pool) };
    TAILQ_INIT(&pool->idle);
    TAILQ_INIT(&pool->waiting);
    return pool;
}

static int add_more(struct pools *pools, const struct hutch_pool *given, struct hutch_err *err)
{
    int zygote = given->zygote ? hutch_zygote_configs_find(pools->configs, given->zygote) : 0;
    unsigned min = given->min, max = given->max;
    struct pool *pool;

    if (zygote < 0)
        return hutch_err_say(err, EINVAL, "a pool of the zygote '%s', which there is not", given->zygote);
    if (!given->policy || !given->policy[0])
        return hutch_err_say(err, EINVAL, "a pool without a policy");
    if (strcmp(given->policy, pools->policy) == 0)
        return hutch_err_say(err, EINVAL, "a pool with the policy '%s', which is the engine's: its zygotes have pools",
                             given->policy);
    for (unsigned i = (unsigned)pools->configs->n_zygotes; i < pools->n; i++)
        if (pools->list[i].zygote_index == (unsigned)zygote && strcmp(pools->list[i].policy, given->policy) == 0)
            return hutch_err_say(err, EINVAL, "two pools of the zygote '%s' with the policy '%s'",
                                 pools->configs->list[zygote].name, given->policy);
    if (!hutch_zygote_configs_set_bounds(&min, &max))
        return hutch_err_say(err, EINVAL, "a pool with the policy '%s': min %u is above max %u", given->policy, min,
                             max);
    pool = set_pool(pools, pools->n, (unsigned)zygote, min, max);
    pool->policy = strdup(given->policy);
    return pool->policy ? 0 : hutch_err_set(err, ENOMEM, "make a pool");
}

int hutch_pools_configure(struct pools *pools, const struct hutch_pool *more, size_t n_more, struct hutch_err *err)
{
    if (n_more > POOL_MAX_MORE)
        return hutch_err_say(err, EINVAL, "there are %zu pools, and at most %d can be", n_more, POOL_MAX_MORE);
    for (unsigned i = 0; i < pools->configs->n_zygotes; i++)
        set_pool(pools, i, i, pools->configs->list[i].min, pools->configs->list[i].max);
    for (size_t i = 0; i < n_more; i++)
        if (add_more(pools, &more[i], err) < 0)
            return -1;
    pools->n_more = (unsigned)n_more;
    return 0;
}

static bool is_function(const struct pools *pools, unsigned zygote_index)
{
    return zygote_index >= pools->configs->n_zygotes;
}

static unsigned index_of_function(const struct pools *pools, unsigned zygote_index)
{
    return zygote_index + pools->n_more;
}

int hutch_pools_find(const struct pools *pools, const char *policy, unsigned zygote_index)
{
    const struct zygote_configs *configs = pools->configs;
    int best = -1;

    if (!policy || strcmp(policy, pools->policy) == 0)
        return (int)(is_function(pools, zygote_index) ? index_of_function(pools, zygote_index) : zygote_index);
    if (is_function(pools, zygote_index))
        return -1; /* nothing else has imported its file */
    for (unsigned i = (unsigned)configs->n_zygotes; i < configs->n_zygotes + pools->n_more; i++) {
        unsigned has = pools->list[i].zygote_index;

        if (strcmp(pools->list[i].policy, policy) != 0)
            continue;
        if (has == zygote_index)
            return (int)i;
        if (hutch_zygote_configs_contains(configs, has, zygote_index) &&
            (best < 0 || configs->list[has].n_modules < configs->list[pools->list[best].zygote_index].n_modules))
            best = (int)i;
    }
    return best;
}

void hutch_pools_add_function(struct pools *pools, unsigned zygote_index, struct template *template)
{
    /* The place may be one that another function has left. */
    struct pool *pool = set_pool(pools, index_of_function(pools, zygote_index), zygote_index, 0, 0);

    pool->template = template;
    template->refs++;
}

void hutch_pools_open_function(struct pools *pools, unsigned zygote_index, unsigned min, unsigned max)
{
    struct pool *pool = &pools->list[index_of_function(pools, zygote_index)];

    pool->min = pool->target = min;
    pool->max = max;
    refill(pool);
}

void hutch_pools_retire_function(struct pools *pools, unsigned zygote_index)
{
    struct pool *pool = &pools->list[index_of_function(pools, zygote_index)];

    pool->min = pool->max = pool->target = 0;
}

/* Of those that are on their way to @pool, any one. */
static struct slot *find_building(const struct pool *pool)
{
    struct slot *slot;

    TAILQ_FOREACH(slot, &pool->pools->slots->list, link)
        if (slot->owner == pool && !slot->is_idle && slot->state < SLOT_PREPARED)
            break;
    return slot;
}

void hutch_pools_close_function(struct pools *pools, unsigned zygote_index, const struct hutch_err *why)
{
    struct pool *pool = &pools->list[index_of_function(pools, zygote_index)];
    struct slot *slot;

    hutch_pools_retire_function(pools, zygote_index);
    refuse_waiting(pool, why);
    while (!TAILQ_EMPTY(&pool->idle))
        discard_idle(pool, TAILQ_FIRST(&pool->idle));
    while ((slot = find_building(pool))) {
        leave_building(pool, slot);
        hutch_slot_discard(slot);
    }
}

void hutch_pools_remove_function(struct pools *pools, unsigned zygote_index)
{
    struct pool *pool = &pools->list[index_of_function(pools, zygote_index)];

    hutch_loop_set_deadline(&pools->core->loop, &pool->clock, LOOP_NEVER);
    hutch_template_unref(pool->template);
    pool->template = NULL;
}

const struct pool *hutch_pools_of_function(const struct pools *pools, unsigned zygote_index)
{
    return &pools->list[index_of_function(pools, zygote_index)];
}

void hutch_pools_done(struct pools *pools)
{
    for (unsigned i = 0; i < pools->n; i++) { /* none where the engine could not be opened */
        hutch_loop_set_deadline(&pools->core->loop, &pools->list[i].clock, LOOP_NEVER);
        hutch_template_unref(pools->list[i].template);
        pools->list[i].template = NULL;
        free(pools->list[i].policy);
        pools->list[i].policy = NULL;
    }
}

void hutch_pools_shrink(struct pools *pools)
{
    for (unsigned i = 0; i < pools->n; i++) {
        struct pool *pool = &pools->list[i];

        pool->target = pool->min;
        while (pool->n_idle > pool->target)
            discard_idle(pool, TAILQ_LAST(&pool->idle, slot_list));
    }
}

void hutch_pools_refill(struct pools *pools)
{
    for (unsigned i = 0; i < pools->n; i++)
        refill(&pools->list[i]);
}

void hutch_pools_refill_soon(struct pools *pools)
{
    for (unsigned i = 0; i < pools->n; i++)
        hutch_loop_advance_deadline(&pools->core->loop, &pools->list[i].clock, 0);
}

void hutch_pool_refill_in(struct pools *pools, unsigned index, double ms)
{
    hutch_loop_advance_deadline(&pools->core->loop, &pools->list[index].clock, hutch_clock_ms() + ms);
}
