/* slots.c - all slots of an engine: what its owner hears of helpers, templates and zygotes goes to those that wait. */
#include "runtime/engine/slot_priv.h"

#include "sandbox/fd.h"

struct slot *hutch_slot_find(struct slots *slots, uint32_t id)
{
    struct slot *slot;

    TAILQ_FOREACH(slot, &slots->list, link)
        if (slot->id == id)
            return slot;
    return NULL;
}

void hutch_slots_init(struct slots *slots, struct helper *helper, struct zygotes *zygotes, void (*on_room)(void *owner),
                      void *owner)
{
    *slots = (struct slots){
        .core = helper->core, .helper = helper, .zygotes = zygotes, .on_room = on_room, .owner = owner
    };
    slots->ids.fd = -1;
    hutch_looks_init(&slots->looks, helper);
    TAILQ_INIT(&slots->list);
    LIST_INIT(&slots->held);
    slots->memory_clock.at = LOOP_NEVER;
}

void hutch_slots_done(struct slots *slots)
{
    struct slot *slot;

    while ((slot = TAILQ_FIRST(&slots->list))) {
        TAILQ_REMOVE(&slots->list, slot, link);
        hutch_slot_free(slot);
    }
    while (slots->n_spare_supervisors > 0)
        hutch_supervisor_free(slots->spare_supervisors[--slots->n_spare_supervisors]);
    hutch_loop_set_deadline(&slots->core->loop, &slots->memory_clock, LOOP_NEVER);
    hutch_ids_close(&slots->ids);
}

/* Calls @tell for each; one that is discarded meanwhile stays in memory until the turn ends. */
static void tell_all(struct slots *slots, void (*tell)(struct slot *slot))
{
    struct slot *slot, *next;

    for (slot = TAILQ_FIRST(&slots->list); slot; slot = next) {
        next = TAILQ_NEXT(slot, link);
        tell(slot);
    }
}

void hutch_slots_on_launcher(struct slots *slots)
{
    tell_all(slots, hutch_slot_ask_launcher);
}

/* Only the launcher that built a sandbox attaches a directory to it, so one that no run has yet is of no use either. */
static void lose_untaken(struct slot *slot)
{
    if (slot->state > SLOT_NEW && slot->state < SLOT_OPENING)
        hutch_slot_fail(slot, NULL);
}

static void lose_taken(struct slot *slot)
{
    if (slot->state == SLOT_OPENING || slot->state == SLOT_ATTACHING) {
        hutch_slot_fail(slot, NULL);
    } else if (slot->state == SLOT_DYING && slot->is_reaping) {
        slot->is_reaping = false;
        hutch_slot_await_death(slot);
    }
}

void hutch_slots_on_lost_launcher(struct slots *slots)
{
    tell_all(slots, lose_untaken); /* first, or a run that begins again takes one of them */
    tell_all(slots, lose_taken);
}

static void lose_opener(struct slot *slot)
{
    if (slot->state < SLOT_RUNNING)
        hutch_slot_fail(slot, NULL);
    else if (slot->state == SLOT_DESTROYING)
        hutch_slot_take_destroyed(slot, NULL);
}

void hutch_slots_on_lost_opener(struct slots *slots)
{
    slots->has_no_volumes = false; /* the next one tries */
    tell_all(slots, lose_opener);
}

void hutch_slots_on_template(struct slots *slots, const struct template *template)
{
    struct slot *slot, *next;

    for (slot = TAILQ_FIRST(&slots->list); slot; slot = next) {
        next = TAILQ_NEXT(slot, link);
        if (slot->template == template && slot->state == SLOT_NEW)
            hutch_slot_ask_launcher(slot);
    }
}

void hutch_slots_on_no_template(struct slots *slots, const struct template *template, const struct hutch_err *why)
{
    struct slot *slot, *next;

    for (slot = TAILQ_FIRST(&slots->list); slot; slot = next) {
        next = TAILQ_NEXT(slot, link);
        if (slot->template == template && slot->state <= SLOT_FORKING)
            hutch_slot_refuse(slot, why);
    }
}

void hutch_slots_on_zygote(struct slots *slots)
{
    tell_all(slots, hutch_slot_ask_zygote);
}

void hutch_slots_on_lost_zygote(struct slots *slots, const struct zygote *zygote)
{
    struct slot *slot, *next;

    for (slot = TAILQ_FIRST(&slots->list); slot; slot = next) {
        next = TAILQ_NEXT(slot, link);
        if (slot->zygote == zygote)
            hutch_slot_fail(slot, NULL);
    }
}

bool hutch_slots_on_forked(struct slots *slots, const struct zygote *zygote, uint32_t id, pid_t pid)
{
    struct slot *slot = hutch_slot_find(slots, id);

    if (!slot || slot->zygote != zygote)
        return false;
    hutch_slot_take_forked(slot, pid);
    return true;
}

bool hutch_slots_on_fork_failed(struct slots *slots, const struct zygote *zygote, uint32_t id,
                                const struct hutch_err *why)
{
    struct slot *slot = hutch_slot_find(slots, id);

    if (!slot || slot->zygote != zygote)
        return false;
    hutch_slot_fail(slot, why);
    return true;
}

bool hutch_slots_on_opened(struct slots *slots, uint32_t id, int fd, int base_fd, const struct hutch_err *why)
{
    auto_fd mount = -1, base = -1;
    struct slot *slot = hutch_slot_find(slots, id);

    if (!slot)
        return false;
    mount = fd;
    base = base_fd;
    if (slot->state != SLOT_OPENING && slot->state != SLOT_SOURCING)
        return true;
    if (slot->state == SLOT_SOURCING) {
        hutch_slot_take_source(slot, fd, &base, why);
    } else if (fd < 0) {
        if (slot->given)
            slot->given->is_lost = true; /* its base went with the order */
        hutch_slot_refuse(slot, why);
    } else {
        hutch_slot_take_opened(slot, fd, &base);
    }
    return true;
}

void hutch_slots_on_reply(struct slots *slots, const struct launcher_reply *reply, const char *text, int *fds,
                          size_t n_fds)
{
    struct slot *slot = hutch_slot_find(slots, reply->id);

    if (!slot)
        return;
    switch ((enum launcher_says)reply->what) {
    case LAUNCHER_STARTED:
    case LAUNCHER_PONG:
        break;
    case LAUNCHER_BUILT:
        hutch_slot_take_built(slot, reply, text, fds, n_fds);
        break;
    case LAUNCHER_ATTACHED:
        hutch_slot_take_attached(slot);
        break;
    case LAUNCHER_DESTROYED:
        hutch_slot_take_destroyed(slot, &reply->usage);
        break;
    case LAUNCHER_FAILED:
        slot->may_live = slot->state == SLOT_DESTROYING || slot->state == SLOT_DYING;
        if (slot->may_live)
            hutch_slot_take_destroyed(slot, NULL);
        else
            hutch_slot_fail(slot, &reply->err);
        break;
    }
}
