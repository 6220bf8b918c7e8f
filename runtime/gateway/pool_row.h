/* pool_row.h - the engine's pools as they are shown: of each zygote its own, and those of other policies. */
#ifndef HUTCH_GATEWAY_POOL_ROW_H
#define HUTCH_GATEWAY_POOL_ROW_H

#include "runtime/hutch.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

struct pool_row {
    const char *zygote;        /* the engine's */
    char policy[NAME_MAX + 1]; /* "": the engine's own */
    unsigned prepared, building;
    uint64_t from_pool, on_demand;
};

/* In the order of the engine. Pools of one zygote whose policies have the same name are one row. The caller's to free;
 * NULL: memory was short, or there is none. */
struct pool_row *hutch_pool_rows(const struct hutch_engine_stats *stats, size_t *ret_n);

/* A policy that the operator has named by its path is known by its file's name: where it lies is nobody's business. */
void hutch_policy_name(const char *policy, char ret[NAME_MAX + 1]);

#endif
