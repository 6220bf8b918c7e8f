/* data_place.h - whether a fresh data directory is in memory or on the host's disk. */
#ifndef HUTCH_RUN_DATA_PLACE_H
#define HUTCH_RUN_DATA_PLACE_H

#include "sandbox/spec.h"

#include <stdbool.h>
#include <stdint.h>

/* Bytes: how much of this host's memory the files of all sandboxes together may take, and so those of one. */
uint64_t hutch_data_memory(void);

/* In memory (sandbox/volume.h) the kernel bounds its size, exactly; and only there can an ordinary user map its owner:
 * @maps_owner says that the policy cannot do without that. But where one of @controllers counts memory, files there
 * count as the program's: with a data_size that is no small part of the memory limit, a program that writes what it
 * may would be killed for it. The policy's data_place comes first. */
bool hutch_data_belongs_in_memory(const struct sandbox_spec *spec, unsigned controllers, bool maps_owner);

#endif
