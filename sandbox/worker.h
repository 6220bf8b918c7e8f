/* worker.h - the last steps of a process that is about to be foreign code: it gives up everything.
 *
 * They are the same for a program that init executes and for an interpreter that a zygote forks into a sandbox, so this
 * code is also part of the zygote's helper, which runs inside whatever libc an image has: it asks for nothing but
 * POSIX. */
#ifndef HUTCH_WORKER_H
#define HUTCH_WORKER_H

#include "sandbox/err.h"
#include "sandbox/rlimits.h"
#include "sandbox/seccomp.h"

#include <stdbool.h>
#include <stdint.h>

/* What stands before the code, as data that can cross a socket. */
struct worker_plan {
    struct rlimit_plan rlimits;
    uint32_t has_landlock; /* a ruleset comes with it */
    uint32_t has_seccomp;  /* a program comes with it */
    uint32_t has_cgroup;   /* a cgroup comes with it, to be born in */
    uint32_t uid, gid;     /* inside: what a worker from outside becomes; 0: what it is already */
    uint32_t namespaces;   /* CLONE_NEW... that the sandbox has of its own: what a worker from outside joins */
};

struct worker_gear {
    struct worker_plan plan;
    int stdio[3];     /* what becomes 0, 1, 2 */
    int report_fd;    /* what becomes 3, or -1 */
    int landlock_fd;  /* the ruleset, see hutch_landlock_make(); -1 without */
    const char *cwd;
    bool will_exec;   /* execve(2) comes next and closes all other descriptors; else that is done here */
    int (*before_filter)(struct hutch_err *err); /* NULL, or the last step that may make any system call */
    const struct seccomp_program *seccomp; /* plan.has_seccomp */
};

/* In a fresh child inside the finished sandbox, with no other thread. On failure it is half confined and must end. */
int hutch_worker_confine(const struct worker_gear *gear, struct hutch_err *err);

#endif
