#include "runtime/engine/run_queue.h"

void hutch_run_leave_queue(struct engine_run *run)
{
    TAILQ_REMOVE(&run->tenant->queue, run, link);
    run->tenant->n_queued--;
    run->runs->n_queued--;
}

void hutch_run_leave_place(struct engine_run *run)
{
    TAILQ_REMOVE(&run->runs->active, run, link);
    run->runs->n_active--;
    run->tenant->n_active--;
}

/* Something waits. */
static struct engine_run *choose(const struct runs *runs)
{
    const struct tenant *tenant, *next = NULL;

    TAILQ_FOREACH(tenant, &runs->tenants.list, link)
        if (tenant->n_queued > 0 && (!next || hutch_tenant_is_before(tenant, next, runs->max_running)))
            next = tenant;
    return TAILQ_FIRST(&next->queue);
}

void hutch_runs_start_queued(struct runs *runs)
{
    while (runs->n_active < runs->max_running && runs->n_queued > 0) {
        struct engine_run *run = choose(runs);

        hutch_run_leave_queue(run);
        hutch_tenant_take(&runs->tenants, run->tenant, runs->n_queued > 0);
        TAILQ_INSERT_TAIL(&runs->active, run, link);
        runs->n_active++;
        hutch_run_activate(run);
    }
}

uint64_t hutch_run_enqueue(struct engine_run *run)
{
    struct runs *runs = run->runs;
    uint64_t id;

    id = run->id = ++runs->next_id;
    runs->submitted++;
    run->stage = RUN_QUEUED;
    if (run->tenant->n_queued++ == 0)
        hutch_tenant_wait(&runs->tenants, run->tenant);
    TAILQ_INSERT_TAIL(&run->tenant->queue, run, link);
    runs->n_queued++;
    hutch_runs_start_queued(runs);
    return id;
}

bool hutch_runs_have_room(const struct runs *runs, uint64_t tenant)
{
    const struct tenant *own = hutch_tenant_find(&runs->tenants, tenant);
    unsigned kept = tenant && own && own->n_queued > 0 ? runs->max_queued / 8 : 0;

    return runs->n_active < runs->max_running || runs->n_queued + kept < runs->max_queued;
}
