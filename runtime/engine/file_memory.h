/* file_memory.h - how much of the host's memory the files of an engine's sandboxes take together, and who is ended when
 * that is too much.
 *
 * Each may have what its limits say, and all together more than there is, as with the limits of memory. */
#ifndef HUTCH_ENGINE_FILE_MEMORY_H
#define HUTCH_ENGINE_FILE_MEMORY_H

#include "runtime/engine/slot.h"

/* Code is about to write to files in memory: from here on they are looked at, ten times a second or, where all that
 * have some are idle, once. */
void hutch_file_memory_watch(struct slots *slots);
/* @volume outlives its sandboxes: it is looked at until it is let go. on_greedy is called when it has the most. */
void hutch_file_memory_hold(struct slots *slots, struct slot_volume *volume, void (*on_greedy)(void *owner),
                            void *owner);
void hutch_file_memory_let_go(struct slot_volume *volume); /* fine twice */
/* Bytes that a volume takes: contents, and what the kernel keeps for each name. */
uint64_t hutch_file_memory_of(int dirfd);

#endif
