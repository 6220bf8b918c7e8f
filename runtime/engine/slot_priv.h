/* slot_priv.h - what happens to one slot, for slots.c, which knows to which. */
#ifndef HUTCH_ENGINE_SLOT_PRIV_H
#define HUTCH_ENGINE_SLOT_PRIV_H

#include "runtime/engine/slot.h"

/* Where it is new; or was to be destroyed, as that order was lost. */
void hutch_slot_ask_launcher(struct slot *slot);
/* Where it waits for a zygote that is ready. */
void hutch_slot_ask_zygote(struct slot *slot);
void hutch_slot_take_built(struct slot *slot, const struct launcher_reply *reply, const char *text, int *fds,
                           size_t n_fds);
void hutch_slot_take_forked(struct slot *slot, pid_t pid);
/* @fd stays the caller's, as in the next; -1: @why. @base_fd of a volume likewise, unless it is -1 after that. */
void hutch_slot_take_source(struct slot *slot, int fd, int *base_fd, const struct hutch_err *why);
void hutch_slot_take_opened(struct slot *slot, int fd, int *base_fd);
void hutch_slot_take_attached(struct slot *slot);
/* @usage NULL: not known. */
void hutch_slot_take_destroyed(struct slot *slot, const struct rusage *usage);
/* SLOT_DYING: on_dead comes when its init is gone. */
void hutch_slot_await_death(struct slot *slot);
/* Discards it: on_refused. */
void hutch_slot_refuse(struct slot *slot, const struct hutch_err *why);
/* Memory and descriptors; in the way of struct doomed. */
void hutch_slot_free(void *slot);

#endif
