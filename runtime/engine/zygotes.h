/* zygotes.h - the warm interpreters of an engine: trees of processes that only fork.
 *
 * A generation is one such tree. When it has forked often or long enough another one is made beside it and takes its
 * place. There may be several places: their roots are executed one by one, so that each tree has an address layout and
 * a hash seed of its own. The tree in the first place has a parked spare of each zygote. The others are made when all
 * of the first is ready and the owner has nothing else to do, and stand in for it as it does for them. */
#ifndef HUTCH_ENGINE_ZYGOTES_H
#define HUTCH_ENGINE_ZYGOTES_H

#include "runtime/engine/helper.h"
#include "runtime/engine/link.h"
#include "runtime/engine/patience.h"
#include "runtime/engine/template.h"
#include "runtime/engine/zygote_config.h"

#include <stdbool.h>
#include <stdint.h>

#define ZYGOTE_MAX_LAYOUTS 8

struct zygote;
struct generation;

struct zygote_events {
    /* One of the current generation is ready: what waits for one may ask again. */
    void (*on_ready)(void *owner);
    /* It is gone, and with it the answers that it owes. */
    void (*on_lost)(void *owner, struct zygote *zygote);
    /* Its answers to ZYGOTE_WORKER number @id. False when nothing waits for that. */
    bool (*on_forked)(void *owner, struct zygote *zygote, uint32_t id, pid_t pid);
    bool (*on_fork_failed)(void *owner, struct zygote *zygote, uint32_t id, const struct hutch_err *why);
    /* It cannot be in this image: its ancestors stand in for it, but for a function's. */
    void (*on_given_up)(void *owner, unsigned index);
    /* Whether nothing would have to wait for a zygote that imports now. */
    bool (*has_leisure)(void *owner);
};

enum zygote_state { ZYGOTE_IS_STARTING, ZYGOTE_IS_READY };
/* One interpreter process. */
struct zygote {
    struct link link;
    struct patience patience;
    struct zygotes *zygotes;
    struct generation *generation;
    unsigned index;     /* which config */
    uint32_t id;
    bool is_spare;
    enum zygote_state state;
    pid_t pid;          /* as this process sees it; 0: not known */
    double since;
    uint64_t forks;     /* workers */
    uint64_t memory;    /* bytes that it has taken beyond its parent's; once it is ready */
    unsigned n_forking; /* slots that wait for its answer */
    struct doomed doomed;
};

struct zygote_slot {
    struct zygote *zygote, *spare; /* NULL: none */
    double ready_at;           /* when one was ready for the first time; 0: not yet */
    double retry_at;           /* when the zygote is started; 0: now */
    unsigned failures;         /* in a row */
    unsigned refusals;         /* of these, with a reason: it will not be better the next time */
};

struct generation {
    struct zygotes *zygotes;
    struct zygote_slot zygote_slots[ZYGOTE_MAX_ALL];
    int stderr_fd;           /* owned; a memfd: what its processes say when they cannot start */
    double since;
    unsigned place;          /* that it has, or is going to take */
    bool has_failed;         /* it was to be one more, and a zygote of it could not start */
    struct generation *next; /* among those that retire */
};

struct zygotes {
    struct core *core;
    struct helper *helper;
    struct zygote_configs *configs;
    struct template *template; /* what they run in; set by the owner before a launcher comes */
    const struct zygote_events *events;
    void *owner;
    unsigned recycle_forks;    /* a generation's end, set by the owner */
    uint64_t recycle_ms;
    unsigned max_layouts;      /* set by the owner; 0: what memory allows */
    struct generation *places[ZYGOTE_MAX_LAYOUTS]; /* NULL: not there yet */
    struct generation *coming, *retiring;
    unsigned turn[ZYGOTE_MAX_ALL]; /* the place that is asked next */
    double more_at;            /* when it is next looked for room for one more tree; 0: the first is not whole yet */
    struct deadline clock;
    uint64_t lost;
    uint64_t recycled[ZYGOTE_MAX_ALL];
};

void hutch_zygotes_init(struct zygotes *zygotes, struct helper *helper, struct zygote_configs *configs,
                        const struct zygote_events *events, void *owner);
void hutch_zygotes_done(struct zygotes *zygotes);

/* The launcher is there and has their template. */
void hutch_zygotes_on_launcher(struct zygotes *zygotes);
/* LAUNCHER_STARTED, LAUNCHER_FAILED */
void hutch_zygotes_on_reply(struct zygotes *zygotes, const struct launcher_reply *reply);
void hutch_zygotes_drop_all(struct zygotes *zygotes); /* the opener is gone, and they with it */

/* The one that forks workers for @index now, NULL when none is ready. */
struct zygote *hutch_zygotes_find(struct zygotes *zygotes, unsigned index);
void hutch_zygotes_release(struct zygote *zygote); /* a slot does not wait for it any more */
/* Until when a run of @index may wait for its interpreter that reads its libraries for the first time, or has just done
 * so: a moment, perhaps past. */
double hutch_zygotes_import_until(const struct zygotes *zygotes, unsigned index);
/* A function was added. */
void hutch_zygotes_begin(struct zygotes *zygotes);
/* Whether there is one of @index that is ready. */
bool hutch_zygotes_are_ready(const struct zygotes *zygotes, unsigned index);
/* A function that nothing refers to is about to be removed: its processes end. */
void hutch_zygotes_forget(struct zygotes *zygotes, unsigned index);
/* Trees that are ready as a whole. */
unsigned hutch_zygotes_count_layouts(const struct zygotes *zygotes);

#endif
