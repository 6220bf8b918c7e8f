/* plan.h - all that a batch is to run: tasks, and programs for them.
 *
 * Both files are read once before anything runs, so that a mistake in the last line is known at the start, and so is
 * how many samples each task has. What stays in memory is where a record stands; it is read again when its turn
 * comes. */
#ifndef HUTCH_BATCH_PLAN_H
#define HUTCH_BATCH_PLAN_H

#include "runtime/batch/hash.h"
#include "runtime/batch/sample.h"
#include "runtime/batch/source.h"
#include "runtime/batch/task.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One program for one task. */
struct batch_item {
    uint32_t group, sample; /* its task; the how many-th for it, from 0 */
    struct batch_place place;
    struct batch_hash hash; /* of all that its verdict depends on */
    uint8_t is_done, verdict; /* enum batch_verdict */
};

/* One task. */
struct batch_group {
    char *id; /* owned */
    struct batch_place place;
    struct batch_hash hash;
    uint32_t n_samples;
    bool has_prompt;
    struct batch_task *task; /* owned; NULL: not in memory */
    uint32_t refs;
};

struct batch_plan {
    struct batch_task_options options; /* with the format that was found */
    struct batch_source tasks, samples;
    bool has_samples;
    struct batch_group *groups; /* owned */
    size_t n_groups, groups_room;
    struct batch_item *items; /* owned, in input order */
    size_t n_items, items_room;
    uint32_t *table; /* owned: id -> group + 1, open addressing */
    size_t table_size;
    size_t cached_bytes;
    uint64_t salt;       /* what else a verdict depends on: limits and modes */
    bool wants_data;     /* some program speaks of numpy or pandas */
};
#define BATCH_PLAN_INIT { .tasks = BATCH_SOURCE_INIT, .samples = BATCH_SOURCE_INIT }

/* @samples NULL: each task's own program is its one sample; a generic task that is there twice has two. @salt goes into
 * the hashes. @is_partial: a task without samples is no error. Errors name file and line. */
int hutch_batch_plan_make(const char *tasks, const char *samples, const struct batch_task_options *options,
                          uint64_t salt, bool is_partial, struct batch_plan *ret, struct hutch_err *err);
void hutch_batch_plan_done(struct batch_plan *plan);

/* The group of that id; SIZE_MAX when there is none. */
size_t hutch_batch_plan_find(const struct batch_plan *plan, const char *id);

/* An item in memory. */
struct batch_loaded {
    struct batch_task *task;  /* the plan's, until it is released */
    char *text;               /* owned; NULL: the program is in the task */
    struct json_view record; /* of the sample; none without a sample file */
    struct batch_sample sample;
};
int hutch_batch_plan_load(struct batch_plan *plan, const struct batch_item *item, struct batch_loaded *ret,
                          struct hutch_err *err);
void hutch_batch_plan_release(struct batch_plan *plan, const struct batch_item *item, struct batch_loaded *loaded);

#endif
