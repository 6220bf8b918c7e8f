#include "sandbox/rlimits.h"

#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <inttypes.h>
#include <string.h>

/* @want of the allowed CPUs, from @first on and round. */
static void choose(const cpu_set_t *allowed, int first, int want, cpu_set_t *ret)
{
    CPU_ZERO(ret);
    for (int i = 0; i < CPU_SETSIZE && want > 0; i++) {
        int cpu = (first + i) % CPU_SETSIZE;

        if (CPU_ISSET(cpu, allowed)) {
            CPU_SET(cpu, ret);
            want--;
        }
    }
}

/* Pins to as many CPUs as the limit rounds up to, starting with the one that the scheduler has just found best for us:
 * so that sandboxes do not all end up on the first CPU, nor on a busy one. */
static void plan_cpus(uint64_t thousandths, struct rlimit_plan *plan)
{
    int have, want = (int)((thousandths + 999) / 1000), here = sched_getcpu();
    cpu_set_t allowed;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
        return;
    have = CPU_COUNT(&allowed);
    plan->pin = have > 0;
    if (want >= have) { /* nothing to take away, but the number holds */
        plan->cpus = allowed;
        return;
    }
    choose(&allowed, here < 0 ? 0 : here, want, &plan->cpus);
}

void hutch_rlimits_spread(struct rlimit_plan *plan, unsigned nth)
{
    cpu_set_t allowed;
    int first = 0;

    if (!plan->pin || sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
        return;
    for (nth %= (unsigned)CPU_COUNT(&allowed); first < CPU_SETSIZE; first++)
        if (CPU_ISSET(first, &allowed) && nth-- == 0)
            break;
    choose(&allowed, first, CPU_COUNT(&plan->cpus), &plan->cpus);
}

void hutch_rlimits_plan(const struct sandbox_spec *spec, bool cgroup_cpus, struct rlimit_plan *ret)
{
    const uint64_t *limits = spec->limits;

    memset(ret, 0, sizeof(*ret)); /* it goes to a zygote as it is: no byte of this process's stack with it */
    for (int i = 0; i < RLIMIT_NLIMITS; i++)
        ret->max[i] = RLIM_INFINITY;
    ret->max[RLIMIT_CORE] = 0; /* a core file would land wherever the host's core_pattern says */
    ret->max[RLIMIT_MEMLOCK] = 64 << 10;
    ret->max[RLIMIT_MSGQUEUE] = 16 << 10;
    ret->max[RLIMIT_SIGPENDING] = 1024; /* counted in the caller's own quota too, all user namespaces up */
    ret->max[RLIMIT_RTPRIO] = 0;
    ret->max[RLIMIT_NICE] = 0;
    /* Nothing for LIMIT_MEMORY: RLIMIT_DATA and RLIMIT_AS count what is reserved and never touched, and the address and
     * thread sanitizers reserve terabytes. A cgroup or init counts what is in use; each sandbox has one of the two. */
    /* Counted per user and user namespace since Linux 5.14, so only this sandbox's processes; init is one of them. */
    if (limits[LIMIT_PIDS])
        ret->max[RLIMIT_NPROC] = limits[LIMIT_PIDS] + 1;
    /* Whole seconds per process, one second later than the supervisor, who counts milliseconds of all together. */
    if (limits[LIMIT_CPU_TIME])
        ret->max[RLIMIT_CPU] = limits[LIMIT_CPU_TIME] / 1000 + 2;
    if (limits[LIMIT_FILE_SIZE])
        ret->max[RLIMIT_FSIZE] = limits[LIMIT_FILE_SIZE];
    if (limits[LIMIT_OPEN_FILES])
        ret->max[RLIMIT_NOFILE] = limits[LIMIT_OPEN_FILES];
    if (limits[LIMIT_CPUS] && !cgroup_cpus)
        plan_cpus(limits[LIMIT_CPUS], ret);
}

void hutch_rlimits_lower(struct rlimit_plan *plan, const uint64_t *from, const uint64_t *to)
{
    if (to[LIMIT_PIDS] < from[LIMIT_PIDS] && plan->max[RLIMIT_NPROC] != RLIM_INFINITY)
        plan->max[RLIMIT_NPROC] -= from[LIMIT_PIDS] - to[LIMIT_PIDS]; /* what is beside the limit stays */
}

/* hutch and its launcher raise their own soft limit, which is not for a program to inherit: many close or allocate as
 * many descriptors as they may have, and select(2) fails with one above 1023. */
static int set_usual_open_files(struct hutch_err *err)
{
    struct rlimit now;

    if (getrlimit(RLIMIT_NOFILE, &now) < 0)
        return hutch_err_set(err, errno, "read the limit on descriptors");
    now.rlim_cur = now.rlim_max < RLIMIT_NOFILE_USUAL ? now.rlim_max : RLIMIT_NOFILE_USUAL;
    if (setrlimit(RLIMIT_NOFILE, &now) < 0)
        return hutch_err_set(err, errno, "set the soft limit on descriptors to %ju", (uintmax_t)now.rlim_cur);
    return 0;
}

void hutch_rlimits_raise_open_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int hutch_rlimits_apply(const struct rlimit_plan *plan, struct hutch_err *err)
{
    if (plan->pin && sched_setaffinity(0, sizeof(plan->cpus), &plan->cpus) < 0)
        return hutch_err_set(err, errno, "pin to %d CPUs", CPU_COUNT(&plan->cpus));
    if (plan->max[RLIMIT_NOFILE] == RLIM_INFINITY && set_usual_open_files(err) < 0)
        return -1;
    for (int i = 0; i < RLIMIT_NLIMITS; i++) {
        struct rlimit now;

        if (plan->max[i] == RLIM_INFINITY)
            continue;
        if (getrlimit(i, &now) < 0)
            return hutch_err_set(err, errno, "read resource limit %d", i);
        if (now.rlim_max == RLIM_INFINITY || now.rlim_max > plan->max[i])
            now.rlim_max = plan->max[i];
        now.rlim_cur = now.rlim_max;
        if (i == RLIMIT_CPU && now.rlim_cur > 1)
            now.rlim_cur--; /* SIGXCPU, which says why; SIGKILL a second later */
        if (setrlimit(i, &now) < 0)
            return hutch_err_set(err, errno, "set resource limit %d to %ju", i, (uintmax_t)now.rlim_max);
    }
    return 0;
}
