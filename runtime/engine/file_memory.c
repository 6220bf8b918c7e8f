#include "runtime/engine/file_memory.h"

#include "runtime/run/data_place.h"
#include "sandbox/clock.h"

#include <sys/statvfs.h>

#define LOOK_MS      100
#define IDLE_LOOK_MS 1000
#define AFTER_END_MS 1000 /* what was ended takes its time to free what it has */
#define NAME_BYTES   1536 /* an inode and a name of middling length, measured on Linux 6.18 */

uint64_t hutch_file_memory_of(int dirfd)
{
    struct statvfs st;

    if (fstatvfs(dirfd, &st) < 0)
        return 0;
    return (uint64_t)(st.f_blocks - st.f_bfree) * st.f_frsize + (uint64_t)(st.f_files - st.f_ffree) * NAME_BYTES;
}

struct look_at_all {
    uint64_t sum, most;
    struct slot *slot;          /* that has the most … */
    struct slot_volume *volume; /* … or this one */
    bool has_any, has_busy;
};

/* Those that are being ended have been judged. */
static void look_at_slots(struct slots *slots, struct look_at_all *all)
{
    struct slot *slot;

    TAILQ_FOREACH(slot, &slots->list, link) {
        uint64_t bytes;

        if (slot->state != SLOT_RUNNING || slot->supervisor->reason != END_OWN || (slot->volume_fd < 0 && !slot->given))
            continue;
        all->has_any = true;
        all->has_busy |= slot->supervisor->idle_ms == 0;
        if (slot->volume_fd < 0)
            continue; /* it is a session's, which holds it */
        bytes = hutch_file_memory_of(slot->volume_fd); /* a directory of the caller's may be mounted over it */
        all->sum += bytes;
        if (bytes > all->most) {
            all->most = bytes;
            all->slot = slot;
        }
    }
}

static void look_at_volumes(struct slots *slots, struct look_at_all *all)
{
    struct slot_volume *volume;

    LIST_FOREACH(volume, &slots->held, link) {
        uint64_t bytes = volume->is_greedy ? 0 : hutch_file_memory_of(volume->dirfd);

        all->has_any = true;
        all->sum += bytes;
        if (bytes > all->most) {
            all->most = bytes;
            all->slot = NULL;
            all->volume = volume;
        }
    }
}

static void on_due(void *owner, double now)
{
    struct slots *slots = owner;
    struct look_at_all all = { .sum = 0 };
    double next;

    look_at_slots(slots, &all);
    look_at_volumes(slots, &all);
    next = all.has_busy ? LOOK_MS : IDLE_LOOK_MS;
    if (all.sum > hutch_data_memory()) {
        next = AFTER_END_MS;
        if (all.slot) {
            hutch_slot_stop(all.slot, END_FILES_IN_MEMORY);
        } else if (all.volume) {
            all.volume->is_greedy = true;
            all.volume->on_greedy(all.volume->owner);
        }
    }
    hutch_loop_set_deadline(&slots->core->loop, &slots->memory_clock, all.has_any ? now + next : LOOP_NEVER);
}

void hutch_file_memory_watch(struct slots *slots)
{
    slots->memory_clock.on_due = on_due;
    slots->memory_clock.owner = slots;
    hutch_loop_advance_deadline(&slots->core->loop, &slots->memory_clock, hutch_clock_ms() + LOOK_MS);
}

void hutch_file_memory_hold(struct slots *slots, struct slot_volume *volume, void (*on_greedy)(void *owner),
                            void *owner)
{
    volume->on_greedy = on_greedy;
    volume->owner = owner;
    volume->is_held = true;
    LIST_INSERT_HEAD(&slots->held, volume, link);
    hutch_file_memory_watch(slots);
}

void hutch_file_memory_let_go(struct slot_volume *volume)
{
    if (volume->is_held)
        LIST_REMOVE(volume, link);
    volume->is_held = false;
}
