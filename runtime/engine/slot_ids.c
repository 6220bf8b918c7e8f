#include "runtime/engine/slot_ids.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

/* Host paths other than the data directory that take the ids that sandboxes share. For root: those that are mounted
 * with their owner mapped, as the template has them opened once. For an ordinary user, who can map no owners on disk,
 * all of them. */
static bool has_shared_paths(const struct slots *slots, const struct sandbox_spec *spec)
{
    return hutch_spec_binds(spec, slots->helper->is_mapped_away ? MOUNT_IDMAP : 0);
}

bool hutch_slots_map_in_memory(const struct slots *slots, const struct template *template)
{
    const struct helper *h = slots->helper;

    return template->spec.layers[LAYER_OWN_UID] != NEED_OFF && !has_shared_paths(slots, &template->spec) &&
           (h->has_hello ? !h->is_mapped_away && h->ids.count > 1 : geteuid() != 0);
}

static int follow_range(struct slots *slots, struct hutch_err *err)
{
    const struct id_range *now = &slots->helper->ids, *range = &slots->ids.range;

    if (slots->ids.fd >= 0 && (range->uid != now->uid || range->gid != now->gid || range->count != now->count))
        hutch_ids_close(&slots->ids); /* the next opener has read another table, and all sandboxes went with the last */
    return slots->ids.fd >= 0 ? 0 : hutch_ids_open(&slots->ids, now, err);
}

static int borrow(struct slot *slot, struct hutch_err *why)
{
    struct slots *slots = slot->slots;
    const struct helper *h = slots->helper;
    unsigned offset;

    if (h->ids.count < 2 && !h->is_mapped_away && geteuid() != 0)
        return hutch_err_set(why, 0, "%s", h->why_no_ids);
    if (h->ids.count < 2) {
        hutch_ids_explain(h->is_mapped_away, why);
        return -1;
    }
    if (has_shared_paths(slots, &slot->template->spec))
        return hutch_err_set(why, 0, "a path of the host is mounted for all sandboxes alike");
    if (!h->is_mapped_away && !hutch_ids_may_enter(&slot->template->spec))
        return hutch_err_set(why, 0, IDS_NO_ENTRY);
    if (!h->is_mapped_away && !slot->has_volume)
        return hutch_err_set(why, 0, IDS_ON_DISK);
    if (follow_range(slots, why) < 0)
        return -1;
    offset = hutch_ids_lend(&slots->ids, why);
    if (offset == 0)
        return -1;
    slot->uid = slots->ids.range.uid + offset;
    slot->gid = slots->ids.range.gid + offset;
    return 0;
}

static bool is_one_ending(const struct slots *slots)
{
    const struct slot *slot;

    TAILQ_FOREACH(slot, &slots->list, link)
        if (slot->uid && (slot->state == SLOT_DYING || slot->state == SLOT_DESTROYING))
            return true;
    return false;
}

bool hutch_slot_choose_ids(struct slot *slot)
{
    enum sandbox_need need = slot->template->spec.layers[LAYER_OWN_UID];
    struct hutch_err why;

    slot->waits_for_id = false;
    if (slot->shares_ids)
        hutch_err_set(&why, 0, IDS_ON_DISK);
    if (need == NEED_OFF || (!slot->shares_ids && borrow(slot, &why) == 0))
        return true;
    /* As long as the run waits, setup_ms; where it need not, for those that are on their way back. */
    slot->waits_for_id = why.errnum == EAGAIN && (need == NEED_REQUIRE || is_one_ending(slot->slots));
    if (!slot->waits_for_id)
        hutch_slot_share_ids(slot, why.msg);
    return !slot->waits_for_id;
}

void hutch_slot_share_ids(struct slot *slot, const char *why)
{
    hutch_slot_return_ids(slot);
    snprintf(slot->why_shared, sizeof(slot->why_shared), "%.90s", why);
}

void hutch_slot_return_ids(struct slot *slot)
{
    if (!slot->may_live)
        hutch_ids_return(&slot->slots->ids, slot->uid);
    slot->uid = 0;
    slot->gid = 0;
}
