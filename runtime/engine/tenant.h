/* tenant.h - for whom an engine works: each tenant has a queue of its own for its runs, and tenants take turns.
 *
 * A place that becomes free goes to the waiting tenant that has had the least, in relation to its weight. A tenant that
 * has half of the places already comes after those that have less. This is start-time fair queueing: each place that a
 * tenant gets moves the tenant's own clock by 1 / weight, the lowest clock is next, and a tenant that comes back after
 * a rest begins at the clock of the others, so nobody saves up turns.
 *
 * Source: P. Goyal, H. M. Vin, H. Cheng, "Start-time Fair Queuing", SIGCOMM 1996. */
#ifndef HUTCH_ENGINE_TENANT_H
#define HUTCH_ENGINE_TENANT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct engine_run;

TAILQ_HEAD(run_list, engine_run);

struct tenant {
    TAILQ_ENTRY(tenant) link;
    uint64_t id;
    unsigned weight;
    unsigned n_refs;       /* runs that belong to it */
    unsigned n_active;     /* of these, how many have a place */
    double clock;
    struct run_list queue; /* its runs that wait, the first that came first */
    unsigned n_queued;
};

/* All of one engine. */
struct tenants {
    TAILQ_HEAD(, tenant) list;
    struct tenant nobody; /* tenant 0, which is always in the list */
    double clock;         /* where a tenant begins that has waited for nothing yet */
};

void hutch_tenants_init(struct tenants *tenants);
/* All runs are gone. */
void hutch_tenants_done(struct tenants *tenants);

/* The tenant @id with a reference for the caller, and from now on with @weight; 0 is 1. NULL on ENOMEM. */
struct tenant *hutch_tenant_join(struct tenants *tenants, uint64_t id, unsigned weight);
/* Gives a reference back. NULL is fine. */
void hutch_tenant_leave(struct tenant *tenant);
/* NULL: nothing belongs to it. */
const struct tenant *hutch_tenant_find(const struct tenants *tenants, uint64_t id);

/* @tenant, of which no run waited, begins to wait. */
void hutch_tenant_wait(struct tenants *tenants, struct tenant *tenant);
/* A run of @tenant gets a place. @is_contended: others wait for one, or more of its own do. */
void hutch_tenant_take(struct tenants *tenants, struct tenant *tenant, bool is_contended);
/* Whether @a, which waits, comes before @b, which waits too, where there are @most places in all. */
bool hutch_tenant_is_before(const struct tenant *a, const struct tenant *b, unsigned most);

#endif
