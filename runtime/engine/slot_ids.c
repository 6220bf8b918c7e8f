#include "runtime/engine/slot_ids.h"

#include <errno.h>
#include <stdio.h>

/* Host paths that are mounted with their owner mapped, other than the data directory: the template has them opened
 * once, for the shared ids. */
static bool has_shared_maps(const struct sandbox_spec *spec)
{
    for (size_t i = 0; i < spec->n_mounts; i++)
        if ((spec->mounts[i].flags & MOUNT_IDMAP) && !(spec->mounts[i].flags & MOUNT_DATA))
            return true;
    return false;
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

    if (h->ids.count < 2) {
        hutch_ids_explain(h->is_mapped_away, why);
        return -1;
    }
    if (has_shared_maps(&slot->template->spec))
        return hutch_err_set(why, 0, "a path of the host is mounted for all sandboxes alike");
    if (follow_range(slots, why) < 0)
        return -1;
    offset = hutch_ids_lend(&slots->ids, why);
    if (offset == 0)
        return -1;
    slot->uid = slots->ids.range.uid + offset;
    slot->gid = slots->ids.range.gid + offset;
    return 0;
}

bool hutch_slot_choose_ids(struct slot *slot)
{
    enum sandbox_need need = slot->template->spec.layers[LAYER_OWN_UID];
    struct hutch_err why;

    slot->waits_for_id = false;
    if (need == NEED_OFF || borrow(slot, &why) == 0)
        return true;
    slot->waits_for_id = need == NEED_REQUIRE && why.errnum == EAGAIN; /* as long as the run waits: setup_ms */
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
