/* cgroup.h - one cgroup v2 directory and the processes in it.
 * Source: Documentation/admin-guide/cgroup-v2.rst. cgroup.kill needs Linux 5.14; without it the pid namespace ends
 * the processes. */
#ifndef HUTCH_CGROUP_H
#define HUTCH_CGROUP_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sandbox_spec;

#define CGROUP_MEMORY (1u << 0)
#define CGROUP_PIDS   (1u << 1)
#define CGROUP_CPU    (1u << 2)

/* The directory below which this process may make groups. */
struct cgroup_base {
    char *mount;          /* owned; where the v2 hierarchy is mounted, e.g. "/sys/fs/cgroup" */
    char *path;           /* owned; of the base below it, "/" or "/a/b" */
    int   dirfd;          /* owned; -1 when there is none */
    unsigned controllers; /* CGROUP_* that groups below it can have */
    char  why_not[160];   /* in words: what keeps the missing controllers away; "" when none is missing */
};
#define CGROUP_BASE_INIT { .mount = NULL, .path = NULL, .dirfd = -1 }

/* Finds it (libcgroup finds the hierarchy): for an ordinary user a delegated directory, the parent of the caller's own
 * group or, when hutch is alone in it, that group; for root the top. Never fails: dirfd stays -1 and why_not tells. May
 * move the calling process into a child group, when only that frees its group for controllers. */
void hutch_cgroup_find_base(struct cgroup_base *ret);
/* Makes the directory @path for a tree of groups of its own, owned by @uid and @gid, below which each controller that
 * can be enabled is, and opens it as a base. @path may be there already. */
int hutch_cgroup_make_base(const char *path, uid_t uid, gid_t gid, struct cgroup_base *ret, struct hutch_err *err);

void hutch_cgroup_base_done(struct cgroup_base *base);

struct sandbox_cgroup {
    char *name;           /* owned; below the base */
    int   base_dirfd;     /* owned */
    int   dirfd;          /* owned; every access goes through it, -1 when unset */
    unsigned controllers; /* CGROUP_* that bound something here */
};
#define CGROUP_INIT { .name = NULL, .base_dirfd = -1, .dirfd = -1 }

/* Makes <base>/@name with the limits of @spec. @ret is untouched on failure.
 * Errors: EEXIST, EACCES (not delegated), EAGAIN (cgroup.max.descendants). */
int hutch_cgroup_create(const struct cgroup_base *base, const char *name, const struct sandbox_spec *spec,
                        struct sandbox_cgroup *ret, struct hutch_err *err);

/* Lowers the limits that the group was made with, @from by enum sandbox_limit, to @to where that is less. @more_pids:
 * processes that do not count against the limit, beside init. */
int hutch_cgroup_lower(const struct sandbox_cgroup *cg, const uint64_t *from, const uint64_t *to, unsigned more_pids,
                       struct hutch_err *err);

/* What was used so far; a number the kernel does not offer is UINT64_MAX. */
struct cgroup_usage {
    uint64_t memory_peak_bytes;
    uint64_t pids_peak;
    uint64_t cpu_user_us;
    uint64_t cpu_system_us;
    uint64_t oom_kills;  /* 0 when unknown */
};
void hutch_cgroup_read_usage(const struct sandbox_cgroup *cg, struct cgroup_usage *ret);
/* The CPU time alone, in microseconds, from one file instead of five: all of it, or its two parts. */
uint64_t hutch_cgroup_read_cpu(const struct sandbox_cgroup *cg);
void hutch_cgroup_read_cpu_times(const struct sandbox_cgroup *cg, uint64_t *ret_user_us, uint64_t *ret_system_us);

/* What is in use now, and the CPU time so far, without the peaks; a number the kernel does not offer is UINT64_MAX. */
struct cgroup_now {
    uint64_t memory_bytes, pids, cpu_us;
};
void hutch_cgroup_read_now(const struct sandbox_cgroup *cg, struct cgroup_now *ret);

/* Everything inside stands still from here on, or goes on. The kernel takes a moment for it; SIGKILL reaches what is
 * frozen. -1 with errno: there is no group, or it may not be. */
int hutch_cgroup_freeze(const struct sandbox_cgroup *cg, bool is_frozen);
/* It does stand still. */
bool hutch_cgroup_is_frozen(const struct sandbox_cgroup *cg);

/* Opens the files memory.current and memory.stat for reading, for a process that may not look for them. -1, and nothing
 * is open, where the group does not count memory. */
int hutch_cgroup_open_memory(const struct sandbox_cgroup *cg, int *ret_current_fd, int *ret_stat_fd);

/* Kills everything inside and removes the directory, waiting at most @timeout_ms until it is empty.
 * Errors: ETIMEDOUT (a process sits in uninterruptible sleep); calling again is safe. */
int hutch_cgroup_destroy(struct sandbox_cgroup *cg, unsigned timeout_ms, struct hutch_err *err);

/* The same for a group that an earlier process left below @base, and the groups in it: the sweep at start. A missing
 * one is fine. */
int hutch_cgroup_destroy_named(const struct cgroup_base *base, const char *name, unsigned timeout_ms,
                               struct hutch_err *err);

void hutch_cgroup_done(struct sandbox_cgroup *cg); /* closes only; fine on CGROUP_INIT, half-made, or twice */

#endif
