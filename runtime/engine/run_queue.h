/* run_queue.h - which runs wait and which have a place: at most max_running have one at a time, and tenants take turns
 * for what becomes free (tenant.h). */
#ifndef HUTCH_ENGINE_RUN_QUEUE_H
#define HUTCH_ENGINE_RUN_QUEUE_H

#include "runtime/engine/run.h"

#include <stdbool.h>
#include <stdint.h>

/* Gives @run its number and has it wait for a place, which it may have got when this returns. The run may be gone. */
uint64_t hutch_run_enqueue(struct engine_run *run);
/* Gives the places that are free to runs that wait. */
void hutch_runs_start_queued(struct runs *runs);
/* Whether one more run of @tenant may wait. The last eighth of the queue is for tenants that have nothing in it. */
bool hutch_runs_have_room(const struct runs *runs, uint64_t tenant);

/* @run waits, or has a place, no more. */
void hutch_run_leave_queue(struct engine_run *run);
void hutch_run_leave_place(struct engine_run *run);

#endif
