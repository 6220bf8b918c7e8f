/* rlimits.h - resource limits of the process that runs foreign code: the second net where a cgroup counts too, and
 * the only one besides the supervisor where none does. Source: setrlimit(2), sched_setaffinity(2). */
#ifndef HUTCH_RLIMITS_H
#define HUTCH_RLIMITS_H

#include "sandbox/err.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

struct sandbox_spec;

/* The soft limit on descriptors where the spec has none: that of most systems. The hard one stays. */
#define RLIMIT_NOFILE_USUAL 1024

struct rlimit_plan {
    rlim_t max[RLIMIT_NLIMITS]; /* RLIM_INFINITY: leave alone, but for the soft one on descriptors */
    bool pin;                   /* restrict to @cpus */
    cpu_set_t cpus;
};

/* Decides in the parent. @cgroup_cpus: a cgroup already enforces that limit for the whole sandbox, so that the coarser
 * CPU pinning is not needed. */
void hutch_rlimits_plan(const struct sandbox_spec *spec, bool cgroup_cpus, struct rlimit_plan *ret);

/* Pins to others than those that were chosen: as many, from the @nth allowed one on. For who makes many sandboxes: they
 * are spread. */
void hutch_rlimits_spread(struct rlimit_plan *plan, unsigned nth);

/* What a plan for the limits @from (by enum sandbox_limit) has to be for @to, some of which are less. As many CPUs. */
void hutch_rlimits_lower(struct rlimit_plan *plan, const uint64_t *from, const uint64_t *to);

/* Applies in the child: soft and hard limit alike (of CPU time, the soft one a second less), never above the hard limit
 * that it has. No allocation. */
int hutch_rlimits_apply(const struct rlimit_plan *plan, struct hutch_err *err);

/* Raises this process's soft limit on descriptors to the hard one: an engine and its sessions hold many. What runs in a
 * sandbox has a limit of its own; other programs of the host inherit this one, and so it is raised when none of them is
 * executed any more: some use select(2), some close every descriptor there can be. Not for a library: its host's limits
 * are the host's. */
void hutch_rlimits_raise_open_files(void);

#endif
