#include "runtime/session/info.h"

#include "runtime/session/session_priv.h"
#include "runtime/text/json_write.h"
#include "runtime/text/nbjson.h"
#include "sandbox/clock.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <time.h>

static enum hutch_session_state state_of(const struct session *s)
{
    if (s->pause.is_on)
        return HUTCH_SESSION_PAUSED;
    switch (s->state) {
    case SESSION_SEEKING:
    case SESSION_SEATING:
        return HUTCH_SESSION_OPENING;
    case SESSION_IDLE:
        return HUTCH_SESSION_IDLE;
    case SESSION_BUSY:
        return HUTCH_SESSION_BUSY;
    case SESSION_LOST:
    case SESSION_PARKED:
        break;
    }
    return HUTCH_SESSION_LOST;
}

static const char *name_of(enum hutch_session_state state)
{
    switch (state) {
    case HUTCH_SESSION_OPENING: return "opening";
    case HUTCH_SESSION_IDLE: return "idle";
    case HUTCH_SESSION_BUSY: return "busy";
    case HUTCH_SESSION_PAUSED: return "paused";
    case HUTCH_SESSION_LOST: break;
    }
    return "lost";
}

/* Seconds since 1970 of a moment of the engine's clock; 0: never. */
static double real_time_of(double at)
{
    return at >= LOOP_NEVER ? 0 : hutch_clock_unix() + (at - hutch_clock_ms()) / 1000;
}

static uint64_t or_sampled(uint64_t counted, bool has_sample, uint64_t sampled)
{
    return counted != UINT64_MAX ? counted : has_sample ? sampled : HUTCH_UNKNOWN;
}

static void describe_use(struct session *s, struct hutch_session_info *ret)
{
    const struct supervisor *sup = hutch_session_supervisor(s);
    struct cgroup_now now;
    bool has_sample;

    ret->memory_bytes = ret->cpu_ms = ret->pids = HUTCH_UNKNOWN;
    if (!sup || s->run->slot->state != SLOT_RUNNING)
        return;
    has_sample = sup->n_samples > 0;
    hutch_cgroup_read_now(&s->run->slot->sb.cgroup, &now);
    ret->memory_bytes = or_sampled(now.memory_bytes, has_sample, sup->last.memory_bytes);
    ret->cpu_ms = or_sampled(now.cpu_us == UINT64_MAX ? UINT64_MAX : now.cpu_us / 1000, has_sample, sup->last.cpu_ms);
    ret->pids = or_sampled(now.pids, has_sample, sup->last.pids);
}

static void describe_data(struct session *s, struct hutch_session_info *ret)
{
    const struct supervisor *sup = hutch_session_supervisor(s);
    struct statvfs fs;

    ret->data_bytes = ret->data_files = HUTCH_UNKNOWN;
    if (s->data.dirfd >= 0 && hutch_session_data_is_in_memory(&s->data) && fstatvfs(s->data.dirfd, &fs) == 0) {
        ret->data_bytes = (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
        ret->data_files = fs.f_files - fs.f_ffree;
        ret->data_files -= ret->data_files > 0; /* the directory itself */
    } else if (sup && sup->data_watch.is_known) {
        ret->data_bytes = sup->data_watch.bytes;
        ret->data_files = sup->data_watch.entries;
    }
}

void hutch_session_describe(struct session *s, struct hutch_session_info *ret)
{
    bool has_work = s->state == SESSION_BUSY || s->n_orders > 0 || hutch_processes_are_alive(s) || s->paths.n > 0;

    *ret = (struct hutch_session_info){
        .size = sizeof(*ret),
        .state = state_of(s),
        .t_opened = real_time_of(s->t_opened),
        .t_used = real_time_of(s->t_used),
        .t_idle_end = has_work || s->pause.is_on ? 0 : real_time_of(s->t_used + s->idle_ms),
        .t_end = real_time_of(s->ends_at),
        .idle_ms = s->idle_ms >= LOOP_NEVER ? HUTCH_NO_LIMIT : (uint64_t)s->idle_ms,
        .waiting = s->n_orders - (hutch_session_at_work(s) ? 1 : 0),
        .cell = hutch_session_at_work(s) ? hutch_session_at_work(s)->id : 0,
        .branch = s->checkpoints.branch,
        .checkpoint_bytes = s->checkpoints.held_bytes,
        .contexts = s->contexts.n > 0 ? s->contexts.n : 1,
        .processes = s->processes.n,
    };
    ret->paused_by = !s->pause.is_on                         ? HUTCH_PAUSED_BY_NOTHING
                     : s->pause.by == PAUSED_BY_CGROUP  ? HUTCH_PAUSED_BY_CGROUP
                     : s->pause.by == PAUSED_BY_SIGNALS ? HUTCH_PAUSED_BY_SIGNALS
                                                        : HUTCH_PAUSED_BY_NOTHING;
    ret->is_still = s->pause.is_on && hutch_session_stands_still(s);
    hutch_checkpoints_count(s, &ret->checkpoints, &ret->branches);
    describe_use(s, ret);
    describe_data(s, ret);
}

/* --- as JSON ---------------------------------------------------------------------------------------------------- */

static bool add_known(struct cJSON *o, const char *key, uint64_t value)
{
    return value == HUTCH_UNKNOWN ? hutch_json_add(o, key, cJSON_CreateNull()) : hutch_json_add_u64(o, key, value);
}

static bool add_time(struct cJSON *o, const char *key, double seconds)
{
    return seconds == 0 ? hutch_json_add(o, key, cJSON_CreateNull()) : hutch_json_add_ms(o, key, seconds);
}

static bool add_waiting_cells(const struct session *s, struct cJSON *o)
{
    struct cJSON *list = hutch_json_add_new(o, "cells", cJSON_CreateArray());
    const struct order *order;

    TAILQ_FOREACH(order, &s->orders, link) {
        char digits[24];
        struct cJSON *entry;

        if (order->kind != ORDER_CELL || order == hutch_session_at_work(s))
            continue;
        snprintf(digits, sizeof(digits), "%" PRIu64, order->id);
        entry = cJSON_CreateRaw(digits);
        if (!list || !entry) {
            cJSON_Delete(entry);
            return false;
        }
        cJSON_AddItemToArray(list, entry);
    }
    return list;
}

static bool add_contexts(const struct session *s, struct cJSON *o)
{
    static const struct contexts only_main = { .list = { { .name = CONTEXTS_MAIN } }, .n = 1 };
    const struct contexts *contexts = s->contexts.n > 0 ? &s->contexts : &only_main;
    struct cJSON *list = hutch_json_add_new(o, "contexts", cJSON_CreateArray());

    for (unsigned i = 0; i < contexts->n; i++) {
        const struct context *context = &contexts->list[i];
        struct cJSON *entry = cJSON_CreateObject();

        if (!list || !entry) {
            cJSON_Delete(entry);
            return false;
        }
        cJSON_AddItemToArray(list, entry);
        if (!hutch_json_add_string(entry, "name", context->name) ||
            !hutch_json_add_u64(entry, "count", (uint64_t)context->count) ||
            !hutch_json_add_string(entry, "directory", context->directory))
            return false;
    }
    return list;
}

static bool add_pause(struct cJSON *o, const struct hutch_session_info *info)
{
    static const char *const names[] = {
        [HUTCH_PAUSED_BY_NOTHING] = NULL, [HUTCH_PAUSED_BY_CGROUP] = "cgroup", [HUTCH_PAUSED_BY_SIGNALS] = "signals",
    };

    return hutch_json_add_string(o, "paused_by", names[info->paused_by]) &&
           hutch_json_add_bool(o, "still", info->is_still);
}

char *hutch_session_info_json(const struct session *s, const struct hutch_session_info *info)
{
    struct cJSON *o = cJSON_CreateObject();
    char *json = NULL;

    if (hutch_json_add_string(o, "state", name_of(info->state)) && add_time(o, "opened", info->t_opened) &&
        add_time(o, "used", info->t_used) && add_time(o, "idle_end", info->t_idle_end) &&
        add_time(o, "end", info->t_end) && add_known(o, "idle_ms", info->idle_ms) &&
        hutch_json_add_u64(o, "waiting", info->waiting) && add_waiting_cells(s, o) &&
        (info->cell ? hutch_json_add_u64(o, "cell", info->cell) : hutch_json_add_string(o, "cell", NULL)) &&
        hutch_json_add_u64(o, "branch", info->branch) &&
        add_known(o, "memory_bytes", info->memory_bytes) && add_known(o, "cpu_ms", info->cpu_ms) &&
        add_known(o, "pids", info->pids) && add_known(o, "data_bytes", info->data_bytes) &&
        add_known(o, "data_files", info->data_files) &&
        hutch_json_add_u64(o, "checkpoint_bytes", info->checkpoint_bytes) &&
        hutch_json_add_u64(o, "processes", info->processes) && add_pause(o, info) && add_contexts(s, o) &&
        hutch_checkpoints_add_lists(s, o))
        json = hutch_nbjson_print(o, NBJSON_COMPACT, NULL);
    cJSON_Delete(o);
    return json;
}
