/* slot_ids.h - the host ids of one slot: borrowed for it alone where that can be, see sandbox/ids.h. */
#ifndef HUTCH_ENGINE_SLOT_IDS_H
#define HUTCH_ENGINE_SLOT_IDS_H

#include "runtime/engine/slot.h"

/* Whether sandboxes of @template have ids of their own, and only where the data directory is in memory, as with an
 * ordinary user's range. A directory of the caller's then takes a sandbox that shares ids. */
bool hutch_slots_map_in_memory(const struct slots *slots, const struct template *template);
/* Before it is built: borrows some, or notes why it shares those of others; whether it may share is decided where it is
 * built. False when it has to have its own, and all are in use: then it waits_for_id, and is asked again. */
bool hutch_slot_choose_ids(struct slot *slot);
/* It cannot have its own after all, for the reason @why. */
void hutch_slot_share_ids(struct slot *slot, const char *why);
/* It is over. */
void hutch_slot_return_ids(struct slot *slot);

#endif
