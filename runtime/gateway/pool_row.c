#include "runtime/gateway/pool_row.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hutch_policy_name(const char *policy, char ret[NAME_MAX + 1])
{
    static const char ending[] = ".json";
    const char *slash = strrchr(policy, '/'), *name = slash ? slash + 1 : policy;
    size_t len = strlen(name), cut = sizeof(ending) - 1;

    if (slash && len > cut && strcmp(name + len - cut, ending) == 0)
        len -= cut;
    snprintf(ret, NAME_MAX + 1, "%.*s", (int)(len > NAME_MAX ? NAME_MAX : len), name);
}

static struct pool_row *find_row(struct pool_row *rows, size_t n, const struct pool_row *wanted)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].zygote, wanted->zygote) == 0 && strcmp(rows[i].policy, wanted->policy) == 0)
            return &rows[i];
    return NULL;
}

struct pool_row *hutch_pool_rows(const struct hutch_engine_stats *stats, size_t *ret_n)
{
    struct pool_row *rows = calloc(stats->n_pools, sizeof(*rows));
    size_t n = 0;

    for (size_t i = 0; i < stats->n_pools && rows; i++) {
        const struct hutch_pool_stats *pool = &stats->pools[i];
        struct pool_row named = { .zygote = pool->zygote }, *row;

        if (pool->policy)
            hutch_policy_name(pool->policy, named.policy);
        row = find_row(rows, n, &named);
        if (!row) {
            row = &rows[n++];
            *row = named;
        }
        row->prepared += pool->prepared;
        row->building += pool->building;
        row->from_pool += pool->from_pool;
        row->on_demand += pool->on_demand;
    }
    *ret_n = n;
    return rows;
}
