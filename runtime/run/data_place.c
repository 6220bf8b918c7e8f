#include "runtime/run/data_place.h"

#include "sandbox/cgroup.h"

#include <unistd.h>

#define SHARE 4 /* a quarter of the host's memory */

uint64_t hutch_data_memory(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) / SHARE * (uint64_t)sysconf(_SC_PAGESIZE);
}

bool hutch_data_belongs_in_memory(const struct sandbox_spec *spec, unsigned controllers, bool maps_owner)
{
    uint64_t size = spec->limits[LIMIT_DATA_SIZE], memory = spec->limits[LIMIT_MEMORY];

    if (size == 0 || spec->data_place == DATA_DISK)
        return false;
    if (spec->data_place == DATA_MEMORY)
        return true;
    if (size > hutch_data_memory())
        return false;
    return maps_owner || !(controllers & CGROUP_MEMORY) || memory == 0 || size <= memory / 2;
}
