/* pool.h - the prepared sandboxes that are kept for one zygote and one policy, how many, and what waits for one. */
#ifndef HUTCH_ENGINE_POOL_H
#define HUTCH_ENGINE_POOL_H

#include "runtime/engine/slot.h"
#include "runtime/engine/zygote_config.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct pool;
struct pools;

/* What waits for a sandbox. Part of that object. */
struct pool_wait {
    TAILQ_ENTRY(pool_wait) link;
    struct pool *pool; /* NULL: it does not wait */
    void (*on_slot)(void *owner, struct slot *slot); /* prepared; to be taken at once */
    void (*on_refused)(void *owner, const struct hutch_err *why);
    void *owner;
    bool shares_ids;   /* it is to have a directory of the caller's: hutch_slots_map_in_memory() */
};
TAILQ_HEAD(pool_wait_list, pool_wait);

struct pool {
    struct pools *pools;
    unsigned zygote_index;
    unsigned min, max;         /* how many are kept at all times, and at most */
    char *policy;              /* owned; as requests name it; NULL: the engine's */
    struct template *template; /* a reference, of its sandboxes; set before a launcher comes */
    struct slot_list idle;
    struct pool_wait_list waiting;
    unsigned n_idle, n_building, n_waiting;
    unsigned n_sharing;        /* of n_building: those that share ids */
    unsigned sharing;          /* how many of 256 runs that asked lately wanted one that shares ids */
    unsigned target;           /* how many are kept: from min to max */
    uint64_t from_pool, on_demand; /* given at once; later */
    struct deadline clock;
    double last_missed;        /* there was none when one was asked for */
    double last_given;         /* one was got ready */
    double retry_at;
    unsigned failures, deaths; /* in a row: with a reason; without one */
    double counted_death;      /* when; what dies together counts once */
};

#define POOL_MAX_MORE 32 /* beside those of the engine's policy */

/* All of one engine: one of the engine's policy for each zygote, in their order, then those of other policies, and then
 * one of the engine's policy for each function. */
struct pools {
    struct core *core;
    struct slots *slots;
    const struct zygote_configs *configs;
    const char *policy;        /* not owned; the engine's, as requests may name it; set by the owner */
    unsigned max_building;     /* set by the owner, as trim_ms and max_prepared */
    unsigned max_prepared;     /* all pools together, but each has its min */
    uint64_t trim_ms;          /* after so long without a miss a pool gets smaller */
    struct pool list[ZYGOTE_MAX_ALL + POOL_MAX_MORE];
    unsigned n;
    unsigned n_more;           /* those of other policies. Behind them come those of functions */
    unsigned n_prepared;
    uint64_t from_pool, on_demand;
};

void hutch_pools_init(struct pools *pools, struct slots *slots, const struct zygote_configs *configs);
/* The configs have been read: there is a pool for each, and for each of @more. Errors: EINVAL, ENOMEM. */
int hutch_pools_configure(struct pools *pools, const struct hutch_pool *more, size_t n_more, struct hutch_err *err);
/* The index of the pool for a run of that zygote with @policy, NULL: the engine's. Where there is none of its zygote,
 * of the smallest that has imported the same and more. -1: none. */
int hutch_pools_find(const struct pools *pools, const char *policy, unsigned zygote_index);
/* A function was added to the zygotes as @zygote_index: its pool, with nothing in it yet, for which sandboxes are made
 * by @template. */
void hutch_pools_add_function(struct pools *pools, unsigned zygote_index, struct template *template);
/* From here on it keeps @min sandboxes, and at most @max. */
void hutch_pools_open_function(struct pools *pools, unsigned zygote_index, unsigned min, unsigned max);
/* It keeps none; what waits gets one yet. */
void hutch_pools_retire_function(struct pools *pools, unsigned zygote_index);
/* It has none, and what waits is refused. */
void hutch_pools_close_function(struct pools *pools, unsigned zygote_index, const struct hutch_err *why);
/* It is closed, and nothing refers to it any more. */
void hutch_pools_remove_function(struct pools *pools, unsigned zygote_index);
const struct pool *hutch_pools_of_function(const struct pools *pools, unsigned zygote_index);
/* No deadline is left, what waits is forgotten, and no template held. */
void hutch_pools_done(struct pools *pools);
/* A launcher, a zygote, or room for another build is there: now, or in the next turn. */
void hutch_pools_refill(struct pools *pools);
void hutch_pools_refill_soon(struct pools *pools);

/* None has more than its min. */
void hutch_pools_shrink(struct pools *pools);

/* Which process what waits for the pool @index waits for, as in "the launcher". */
void hutch_pool_name_awaited(const struct pools *pools, unsigned index, char *text, size_t size);
/* @shares_ids as of a pool_wait. */
bool hutch_pool_has_idle(const struct pools *pools, unsigned index, bool shares_ids);
/* Gives a sandbox of the pool @index by on_slot: now, or when there is one. */
void hutch_pool_ask(struct pools *pools, unsigned index, struct pool_wait *wait);
/* It waits no more. Fine when it does not. */
void hutch_pool_leave(struct pool_wait *wait);
/* One was given away: another is built in @ms. */
void hutch_pool_refill_in(struct pools *pools, unsigned index, double ms);

#endif
