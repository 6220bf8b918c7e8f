#include "runtime/batch/plan.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CACHE_BYTES (64u << 20) /* of tasks that are not in use */
#define MAX_ITEMS 50000000u
#define FIRST_ROOM 1024
#define FIRST_TABLE_SIZE 256 /* a power of two, and so are all that follow */

/* ---- tasks by name ---- */

static size_t slot_of(const struct batch_plan *plan, const char *id)
{
    size_t slot = hutch_batch_hash_add(BATCH_HASH_START, id, strlen(id)).low & (plan->table_size - 1);

    while (plan->table[slot] && strcmp(plan->groups[plan->table[slot] - 1].id, id) != 0)
        slot = (slot + 1) & (plan->table_size - 1);
    return slot;
}

size_t hutch_batch_plan_find(const struct batch_plan *plan, const char *id)
{
    size_t slot;

    if (!plan->table_size)
        return SIZE_MAX;
    slot = slot_of(plan, id);
    return plan->table[slot] ? plan->table[slot] - 1 : SIZE_MAX;
}

static int grow_table(struct batch_plan *plan, struct hutch_err *err)
{
    size_t size = plan->table_size ? plan->table_size * 2 : FIRST_TABLE_SIZE;
    uint32_t *table = calloc(size, sizeof(*table)), *old = plan->table;

    if (!table)
        return hutch_err_set(err, ENOMEM, "remember %zu tasks", plan->n_groups);
    plan->table = table;
    plan->table_size = size;
    for (size_t i = 0; i < plan->n_groups; i++)
        plan->table[slot_of(plan, plan->groups[i].id)] = (uint32_t)i + 1;
    free(old);
    return 0;
}

/* Takes @id over. */
static int add_group(struct batch_plan *plan, char *id, const struct batch_place *place, struct batch_hash hash,
                     bool has_prompt, struct hutch_err *err)
{
    if (!id)
        return hutch_err_set(err, ENOMEM, "remember %zu tasks", plan->n_groups + 1);
    if (plan->n_groups == plan->groups_room) {
        size_t room = plan->groups_room ? plan->groups_room * 2 : FIRST_ROOM;
        struct batch_group *groups = realloc(plan->groups, room * sizeof(*groups));

        if (!groups || room > MAX_ITEMS) {
            plan->groups = groups ? groups : plan->groups;
            free(id);
            return hutch_err_set(err, ENOMEM, "remember %zu tasks", room);
        }
        plan->groups = groups;
        plan->groups_room = room;
    }
    if (plan->n_groups * 2 >= plan->table_size && grow_table(plan, err) < 0) {
        free(id);
        return -1;
    }
    plan->groups[plan->n_groups] =
        (struct batch_group){ .id = id, .place = *place, .hash = hash, .has_prompt = has_prompt };
    plan->table[slot_of(plan, id)] = (uint32_t)++plan->n_groups;
    return 0;
}

static int add_item(struct batch_plan *plan, size_t group, const struct batch_place *place, struct batch_hash hash,
                    struct hutch_err *err)
{
    if (plan->n_items == plan->items_room) {
        size_t room = plan->items_room ? plan->items_room * 2 : FIRST_ROOM;
        struct batch_item *items = room > MAX_ITEMS ? NULL : realloc(plan->items, room * sizeof(*items));

        if (!items)
            return hutch_err_set(err, ENOMEM, "remember %zu samples", room);
        plan->items = items;
        plan->items_room = room;
    }
    plan->items[plan->n_items++] = (struct batch_item){
        .group = (uint32_t)group, .sample = plan->groups[group].n_samples++, .place = *place, .hash = hash,
    };
    return 0;
}

/* ---- reading ---- */

static void format_where(char *where, size_t size, const struct batch_source *source, uint32_t line)
{
    snprintf(where, size, "'%s': line %" PRIu32, source->name, line);
}

static bool mentions_data(struct json_view value)
{
    static const char *const modules[] = { "numpy", "pandas" };

    for (size_t i = 0; value.text && i < ARRAY_SIZE(modules); i++)
        if (memmem(value.text, value.len, modules[i], strlen(modules[i])))
            return true;
    return false;
}

static void drop_task(struct batch_plan *plan, struct batch_group *group)
{
    if (!group->task)
        return;
    plan->cached_bytes -= group->place.len;
    hutch_batch_task_done(group->task);
    free(group->task);
    group->task = NULL;
}

static int acquire_task(struct batch_plan *plan, size_t index, struct batch_task **ret, struct hutch_err *err)
{
    struct batch_group *group = &plan->groups[index];
    struct json_view record;
    char where[BATCH_WHERE_MAX], *text;

    if (!group->task) {
        group->task = calloc(1, sizeof(*group->task));
        if (!group->task)
            return hutch_err_set(err, ENOMEM, "read the task '%s'", group->id);
        format_where(where, sizeof(where), &plan->tasks, group->place.line);
        if (hutch_batch_source_load(&plan->tasks, &group->place, &text, &record, err) < 0 ||
            hutch_batch_task_read(&plan->options, where, text, record, group->task, err) < 0) {
            free(group->task);
            group->task = NULL;
            return -1;
        }
        plan->cached_bytes += group->place.len;
    }
    group->refs++;
    *ret = group->task;
    return 0;
}

static void release_task(struct batch_plan *plan, size_t index)
{
    struct batch_group *group = &plan->groups[index];

    if (--group->refs == 0 && plan->cached_bytes > CACHE_BYTES)
        drop_task(plan, group);
}

/* A record of the task file: a task, and without a sample file an item too. */
static int read_task(struct batch_plan *plan, struct json_view record, const struct batch_place *place,
                     struct hutch_err *err)
{
    struct batch_hash hash = hutch_batch_hash_add(BATCH_HASH_START, &plan->salt, sizeof(plan->salt));
    struct batch_task task;
    struct batch_sample sample;
    char where[BATCH_WHERE_MAX], *text = strndup(record.text, record.len);
    size_t group;
    int rc;

    format_where(where, sizeof(where), &plan->tasks, place->line);
    if (!text)
        return hutch_err_set(err, ENOMEM, "%s", where);
    hash = hutch_batch_hash_add(hash, record.text, record.len);
    if (hutch_batch_task_read(&plan->options, where, text, (struct json_view){ text, record.len }, &task, err) < 0)
        return -1;
    group = hutch_batch_plan_find(plan, task.id);
    rc = 0;
    if (group == SIZE_MAX) {
        group = plan->n_groups;
        rc = add_group(plan, strdup(task.id), place, hash, task.prompt.text != NULL, err);
    } else if (plan->has_samples || plan->options.format != BATCH_GENERIC) {
        rc = hutch_err_set(err, 0, "%s: the task '%s' is there twice", where, task.id);
    }
    if (rc == 0 && !plan->has_samples) {
        rc = hutch_batch_sample_own(where, &task, &sample, err);
        if (rc == 0) {
            plan->wants_data = plan->wants_data || mentions_data(sample.program);
            rc = add_item(plan, group, place, hash, err);
        }
    }
    plan->wants_data = plan->wants_data || mentions_data(task.tests) || mentions_data(task.before);
    hutch_batch_task_done(&task);
    return rc;
}

static int read_sample(struct batch_plan *plan, struct json_view record, const struct batch_place *place,
                       struct hutch_err *err)
{
    auto_free char *id = NULL;
    struct batch_sample sample;
    struct batch_hash hash;
    char where[BATCH_WHERE_MAX];
    size_t group;

    format_where(where, sizeof(where), &plan->samples, place->line);
    if (hutch_batch_sample_id(where, plan->options.format, record, &id, err) < 0)
        return -1;
    group = hutch_batch_plan_find(plan, id);
    if (group == SIZE_MAX)
        return hutch_err_set(err, 0, "%s: there is no task '%s' in '%s'", where, id, plan->tasks.name);
    if (hutch_batch_sample_read(where, record, plan->groups[group].has_prompt, &sample, err) < 0)
        return -1;
    hash = hutch_batch_hash_add(plan->groups[group].hash, &sample.is_completion, sizeof(sample.is_completion));
    hash = hutch_batch_hash_add(hash, sample.program.text, sample.program.len);
    plan->wants_data = plan->wants_data || mentions_data(sample.program);
    return add_item(plan, group, place, hash, err);
}

static int read_tasks(struct batch_plan *plan, struct hutch_err *err)
{
    struct batch_place place;
    struct json_view record;
    int rc;

    while ((rc = hutch_batch_source_next(&plan->tasks, &record, &place, err)) > 0) {
        if (plan->options.format == BATCH_AUTO)
            plan->options.format = hutch_batch_format_guess(record);
        if (read_task(plan, record, &place, err) < 0)
            return -1;
    }
    if (rc == 0 && plan->n_groups == 0)
        return hutch_err_set(err, 0, "'%s' holds no tasks", plan->tasks.name);
    return rc;
}

static int read_samples(struct batch_plan *plan, bool is_partial, struct hutch_err *err)
{
    struct batch_place place;
    struct json_view record;
    size_t missing = 0, first = 0;
    int rc;

    while ((rc = hutch_batch_source_next(&plan->samples, &record, &place, err)) > 0)
        if (read_sample(plan, record, &place, err) < 0)
            return -1;
    if (rc < 0)
        return -1;
    for (size_t i = plan->n_groups; i-- > 0;)
        if (plan->groups[i].n_samples == 0) {
            missing++;
            first = i;
        }
    if (missing && !is_partial)
        return hutch_err_set(err, 0, "'%s' has no sample for %zu of the %zu tasks, '%s' among them (--partial scores "
                             "the others)", plan->samples.name, missing, plan->n_groups, plan->groups[first].id);
    if (plan->n_items == 0)
        return hutch_err_set(err, 0, "'%s' holds no samples", plan->samples.name);
    return 0;
}

int hutch_batch_plan_make(const char *tasks, const char *samples, const struct batch_task_options *options,
                          uint64_t salt, bool is_partial, struct batch_plan *ret, struct hutch_err *err)
{
    struct batch_plan plan = BATCH_PLAN_INIT;
    int rc;

    plan.options = *options;
    plan.has_samples = samples != NULL;
    plan.salt = salt;
    if (samples && strcmp(tasks, "-") == 0 && strcmp(samples, "-") == 0)
        return hutch_err_set(err, 0, "only one of tasks and samples can be read from standard input");
    rc = hutch_batch_source_open(tasks, &plan.tasks, err);
    if (rc == 0)
        rc = read_tasks(&plan, err);
    if (rc == 0 && samples)
        rc = hutch_batch_source_open(samples, &plan.samples, err);
    if (rc == 0 && samples)
        rc = read_samples(&plan, is_partial, err);
    if (rc < 0) {
        hutch_batch_plan_done(&plan);
        return -1;
    }
    *ret = plan;
    return 0;
}

void hutch_batch_plan_done(struct batch_plan *plan)
{
    for (size_t i = 0; i < plan->n_groups; i++) {
        drop_task(plan, &plan->groups[i]);
        free(plan->groups[i].id);
    }
    free(plan->groups);
    free(plan->items);
    free(plan->table);
    hutch_batch_source_done(&plan->tasks);
    hutch_batch_source_done(&plan->samples);
    *plan = (struct batch_plan)BATCH_PLAN_INIT;
}

/* A generic task that is there several times: each of its records is a program of its own. */
static int load_own_program(struct batch_plan *plan, const struct batch_item *item, struct batch_loaded *ret,
                            struct hutch_err *err)
{
    char where[BATCH_WHERE_MAX], *text;
    struct json_view record;

    ret->task = calloc(1, sizeof(*ret->task));
    if (!ret->task)
        return hutch_err_set(err, ENOMEM, "read the task '%s'", plan->groups[item->group].id);
    format_where(where, sizeof(where), &plan->tasks, item->place.line);
    if (hutch_batch_source_load(&plan->tasks, &item->place, &text, &record, err) == 0 &&
        hutch_batch_task_read(&plan->options, where, text, record, ret->task, err) == 0) {
        if (hutch_batch_sample_own(where, ret->task, &ret->sample, err) == 0)
            return 0;
        hutch_batch_task_done(ret->task);
    }
    free(ret->task);
    ret->task = NULL;
    return -1;
}

int hutch_batch_plan_load(struct batch_plan *plan, const struct batch_item *item, struct batch_loaded *ret,
                          struct hutch_err *err)
{
    struct batch_loaded loaded = { .task = NULL };
    char where[BATCH_WHERE_MAX];

    if (!plan->has_samples) {
        if (load_own_program(plan, item, &loaded, err) < 0)
            return -1;
        *ret = loaded;
        return 0;
    }
    if (acquire_task(plan, item->group, &loaded.task, err) < 0)
        return -1;
    format_where(where, sizeof(where), &plan->samples, item->place.line);
    if (hutch_batch_source_load(&plan->samples, &item->place, &loaded.text, &loaded.record, err) == 0 &&
        hutch_batch_sample_read(where, loaded.record, loaded.task->prompt.text != NULL, &loaded.sample, err) == 0) {
        *ret = loaded;
        return 0;
    }
    free(loaded.text);
    release_task(plan, item->group);
    return -1;
}

void hutch_batch_plan_release(struct batch_plan *plan, const struct batch_item *item, struct batch_loaded *loaded)
{
    if (!loaded->task)
        return;
    if (plan->has_samples) {
        release_task(plan, item->group);
    } else {
        hutch_batch_task_done(loaded->task);
        free(loaded->task);
    }
    free(loaded->text);
    *loaded = (struct batch_loaded){ .task = NULL };
}
