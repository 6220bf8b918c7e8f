#include "runtime/engine/run_limits.h"

#include "sandbox/fd.h"

#include <inttypes.h>

/* What a sandbox is built with, and can be given another value of. */
static const enum sandbox_limit built_in[] = { LIMIT_MEMORY, LIMIT_PIDS, LIMIT_CPUS };

/* 1: some are tighter; 0: all are the same. */
static int compare(const uint64_t *built, const uint64_t *limits, struct hutch_err *err)
{
    int are_tighter = 0;

    for (size_t i = 0; i < ARRAY_SIZE(built_in); i++) {
        enum sandbox_limit limit = built_in[i];

        if (limits[limit] == built[limit])
            continue;
        if (limits[limit] == 0 || limits[limit] > built[limit])
            return hutch_err_set(err, EINVAL, "a sandbox with the limit '%s' of %" PRIu64 " for a run with %" PRIu64,
                                 hutch_limit_name(limit), built[limit], limits[limit]);
        are_tighter = 1;
    }
    return are_tighter;
}

int hutch_run_lower_limits(struct engine_run *run, struct hutch_err *err)
{
    struct slot *slot = run->slot;
    const struct rlimit_plan built = slot->sb.plan.rlimits;
    struct job_rlimits rlimits = run->rlimits;
    int rc = compare(slot->template->spec.limits, run->limits, err);

    if (rc <= 0)
        return rc;
    rc = hutch_slot_lower(slot, run->limits, err);
    if (rc < 0)
        return -1;
    if (slot->sb.plan.rlimits.max[RLIMIT_NPROC] != built.max[RLIMIT_NPROC])
        hutch_job_add_rlimit(&rlimits, RLIMIT_NPROC, slot->sb.plan.rlimits.max[RLIMIT_NPROC],
                             slot->sb.plan.rlimits.max[RLIMIT_NPROC]);
    return hutch_job_set_rlimits(&run->job, &run->job_len, &rlimits, err) < 0 ? -1 : rc;
}
