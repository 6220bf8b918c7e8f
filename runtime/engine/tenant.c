#include "runtime/engine/tenant.h"

#include <stdlib.h>

static void init(struct tenant *tenant, uint64_t id)
{
    *tenant = (struct tenant){ .id = id, .weight = 1 };
    TAILQ_INIT(&tenant->queue);
}

void hutch_tenants_init(struct tenants *tenants)
{
    *tenants = (struct tenants){ .clock = 0 };
    TAILQ_INIT(&tenants->list);
    init(&tenants->nobody, 0);
    TAILQ_INSERT_HEAD(&tenants->list, &tenants->nobody, link);
}

static void forget(struct tenants *tenants, struct tenant *tenant)
{
    if (tenant == &tenants->nobody)
        return;
    TAILQ_REMOVE(&tenants->list, tenant, link);
    free(tenant);
}

void hutch_tenants_done(struct tenants *tenants)
{
    struct tenant *tenant, *next;

    for (tenant = TAILQ_FIRST(&tenants->list); tenant; tenant = next) {
        next = TAILQ_NEXT(tenant, link);
        forget(tenants, tenant);
    }
}

/* One that is forgotten would come back at the clock of the others, so it must not be ahead of it. */
static bool may_be_forgotten(const struct tenants *tenants, const struct tenant *tenant)
{
    return tenant->n_refs == 0 && tenant->clock <= tenants->clock;
}

struct tenant *hutch_tenant_join(struct tenants *tenants, uint64_t id, unsigned weight)
{
    struct tenant *tenant, *next, *found = NULL;

    for (tenant = TAILQ_FIRST(&tenants->list); tenant && !found; tenant = next) {
        next = TAILQ_NEXT(tenant, link);
        if (tenant->id == id)
            found = tenant;
        else if (may_be_forgotten(tenants, tenant))
            forget(tenants, tenant);
    }
    if (!found) {
        found = malloc(sizeof(*found));
        if (!found)
            return NULL;
        init(found, id);
        TAILQ_INSERT_TAIL(&tenants->list, found, link);
    }
    found->weight = weight ? weight : 1;
    found->n_refs++;
    return found;
}

void hutch_tenant_leave(struct tenant *tenant)
{
    if (tenant)
        tenant->n_refs--; /* hutch_tenant_join() of another one forgets it */
}

const struct tenant *hutch_tenant_find(const struct tenants *tenants, uint64_t id)
{
    const struct tenant *tenant;

    TAILQ_FOREACH(tenant, &tenants->list, link)
        if (tenant->id == id)
            return tenant;
    return NULL;
}

void hutch_tenant_wait(struct tenants *tenants, struct tenant *tenant)
{
    if (tenant->clock < tenants->clock)
        tenant->clock = tenants->clock;
}

void hutch_tenant_take(struct tenants *tenants, struct tenant *tenant, bool is_contended)
{
    double begin = tenant->clock;

    tenant->n_active++;
    tenant->clock += 1.0 / tenant->weight;
    if (!is_contended) /* nobody was kept waiting by it */
        begin = tenant->clock;
    if (tenants->clock < begin)
        tenants->clock = begin;
}

bool hutch_tenant_is_before(const struct tenant *a, const struct tenant *b, unsigned most)
{
    unsigned half = most > 1 ? most / 2 : 1;
    bool a_has_half = a->n_active >= half, b_has_half = b->n_active >= half;

    return a_has_half == b_has_half ? a->clock < b->clock : b_has_half;
}
