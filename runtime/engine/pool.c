#include "runtime/engine/engine_priv.h"

#include "sandbox/clock.h"
#include "sandbox/log.h"

#define BACKOFF_MS 20
#define BACKOFF_MAX_MS 2000
#define SAME_DEATH_MS 20 /* apart, deaths have one cause: a launcher, a zygote, a group of processes */
#define MAX_DEATHS 10

static void on_due(void *owner, double now);

void hutch_pool_init(struct pool *pool, struct hutch_engine *engine, unsigned index)
{
    *pool = (struct pool){ .clock = DEADLINE_INIT(on_due, pool), .engine = engine, .index = index, .target = engine->confs[index].min };
    TAILQ_INIT(&pool->idle);
    TAILQ_INIT(&pool->waiting);
}

static bool build_one(struct pool *pool)
{
    struct hutch_engine *engine = pool->engine;
    struct hutch_err err;

    if (hutch_slot_create(engine, pool, engine->worker_template, pool->index, NULL, &err))
        return true;
    hutch_pool_on_failed(pool, &err);
    return false;
}

void hutch_pool_refill(struct pool *pool)
{
    struct hutch_engine *engine = pool->engine;
    unsigned wanted;

    if (engine->is_broken || !engine->helper.has_launcher || hutch_clock_ms() < pool->retry_at)
        return;
    while (pool->n_building < pool->n_waiting) /* somebody waits for each of them */
        if (!build_one(pool))
            return;
    if (engine->confs[pool->index].has_given_up) { /* runs go to another one's pool */
        while (!TAILQ_EMPTY(&pool->idle))
            hutch_slot_discard(TAILQ_FIRST(&pool->idle));
        return;
    }
    wanted = pool->n_waiting + (pool->target > pool->n_idle ? pool->target - pool->n_idle : 0);
    while (pool->n_building < wanted && engine->n_building < engine->max_building)
        if (!build_one(pool))
            return;
}

void hutch_pool_on_prepared(struct pool *pool, struct slot *slot)
{
    struct hutch_engine *engine = pool->engine;
    struct engine_run *run = TAILQ_FIRST(&pool->waiting);

    pool->failures = pool->deaths = 0;
    if (run) {
        TAILQ_REMOVE(&pool->waiting, run, waiting);
        run->is_in_pool = false;
        pool->n_waiting--;
        hutch_slot_give(slot, run);
    } else {
        TAILQ_INSERT_HEAD(&pool->idle, slot, idle);
        slot->is_idle = true;
        pool->n_idle++;
        engine->n_prepared++;
    }
    /* There is room for another build, of any pool. */
    for (size_t i = 0; i < engine->n_confs && engine->n_building < engine->max_building; i++)
        hutch_pool_refill(&engine->pools[i]);
}

void hutch_pool_on_failed(struct pool *pool, const struct hutch_err *why)
{
    struct hutch_engine *engine = pool->engine;
    double wait;
    struct hutch_err unknown;

    if (!why) {
        double now = hutch_clock_ms();

        if (now - pool->counted_death > SAME_DEATH_MS) {
            pool->deaths++;
            pool->counted_death = now;
        }
        if (pool->deaths < MAX_DEATHS) { /* somebody killed a process, and that can happen to the next one too */
            hutch_pool_refill(pool);
            return;
        }
        hutch_err_set(&unknown, 0, "%u sandboxes in a row broke before they were ready", pool->deaths);
        why = &unknown;
    }
    hutch_log_debug("engine: pool '%s': %s", engine->confs[pool->index].name, why->msg);
    pool->failures++;
    wait = BACKOFF_MS << (pool->failures < 8 ? pool->failures - 1 : 7);
    pool->retry_at = hutch_clock_ms() + (wait < BACKOFF_MAX_MS ? wait : BACKOFF_MAX_MS);
    hutch_loop_advance_deadline(&engine->loop, &pool->clock, pool->retry_at);
    if (pool->failures < ENGINE_MAX_RESTARTS)
        return;
    if (!engine->has_worked) {
        hutch_engine_break(engine, why);
        return;
    }
    while (!TAILQ_EMPTY(&pool->waiting))
        hutch_run_refuse(TAILQ_FIRST(&pool->waiting), why);
}

void hutch_pool_ask(struct pool *pool, struct engine_run *run)
{
    struct hutch_engine *engine = pool->engine;
    struct slot *slot = TAILQ_FIRST(&pool->idle); /* the youngest: its memory is in the caches */

    run->was_prepared = slot != NULL;
    if (slot) {
        TAILQ_REMOVE(&pool->idle, slot, idle);
        slot->is_idle = false;
        pool->n_idle--;
        engine->n_prepared--;
        engine->from_pool++;
        hutch_slot_give(slot, run);
        return;
    }
    engine->on_demand++;
    pool->last_missed = hutch_clock_ms();
    hutch_loop_advance_deadline(&engine->loop, &pool->clock, pool->last_missed + (double)engine->trim_ms);
    if (pool->target < engine->confs[pool->index].max)
        pool->target++;
    TAILQ_INSERT_TAIL(&pool->waiting, run, waiting);
    run->is_in_pool = true;
    pool->n_waiting++;
    hutch_pool_refill(pool);
}

/* A pool that was large enough for a while may be too large. */
static double trim(struct pool *pool, double now)
{
    struct hutch_engine *engine = pool->engine;
    double due = pool->last_missed + (double)engine->trim_ms;

    if (pool->target <= engine->confs[pool->index].min && pool->n_idle <= pool->target)
        return LOOP_NEVER;
    if (now < due)
        return due;
    pool->last_missed = now; /* one step, then another while */
    if (pool->target > engine->confs[pool->index].min)
        pool->target -= (pool->target - engine->confs[pool->index].min + 1) / 2;
    while (pool->n_idle > pool->target)
        hutch_slot_discard(TAILQ_LAST(&pool->idle, slot_list));
    return pool->target > engine->confs[pool->index].min ? now + (double)engine->trim_ms : LOOP_NEVER;
}

static void on_due(void *owner, double now)
{
    struct pool *pool = owner;
    double due = trim(pool, now);

    hutch_pool_refill(pool);
    hutch_loop_advance_deadline(&pool->engine->loop, &pool->clock, pool->retry_at > now && pool->retry_at < due ? pool->retry_at : due);
}
