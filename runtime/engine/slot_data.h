/* slot_data.h - the data directory of one sandbox: a fresh one in memory (sandbox/volume.h) or on the host's disk, or
 * the caller's. runtime/run/data_place.h says where a fresh one is. */
#ifndef HUTCH_ENGINE_SLOT_DATA_H
#define HUTCH_ENGINE_SLOT_DATA_H

#include "runtime/engine/slot.h"

/* A new slot: chooses the place, and makes or opens what is on disk. */
int hutch_slot_make_data(struct slot *slot, struct hutch_err *err);
/* The caller's directory, by its path. */
int hutch_slot_open_data(struct slot *slot, struct hutch_err *err);
/* Whether the opener has to mount it before the sandbox can be built: hutch_slot_order_data(). */
bool hutch_slot_data_is_mounted_first(const struct slot *slot);
/* Has the opener mount it; the answer goes to the next function. */
int hutch_slot_order_data(struct slot *slot, struct hutch_err *err);
/* The answer. 1: it is there, and @fd is its mount; 0: ordered again in another way; -1 and @err. @base_fd is taken
 * where it is of use, and -1 then. */
int hutch_slot_take_data(struct slot *slot, int fd, int *base_fd, const struct hutch_err *why, struct hutch_err *err);
/* Whether its file system lets in what @limits say, and no more. */
bool hutch_slot_is_bounded_by(const struct slot *slot, const uint64_t limits[LIMIT_COUNT]);
/* It is over: a fresh directory goes, with all that lies in it. */
void hutch_slot_remove_data(struct slot *slot);

#endif
