/* denial.h - why this host denies a user namespace, or what is done in one: the settings that are known to do it.
 *
 * The kernel answers EPERM for a dozen different reasons. The facts are read once; which of them is the cause is
 * decided by a pure function, so that every host we have never seen can be tested as a row of a table. */
#ifndef HUTCH_DOCTOR_DENIAL_H
#define HUTCH_DOCTOR_DENIAL_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct denial_facts {
    int64_t max_user_namespaces; /* -1: the kernel has no such setting */
    int userns_clone;            /* kernel.unprivileged_userns_clone (Debian's patch); -1: none */
    int apparmor_restricts;      /* kernel.apparmor_restrict_unprivileged_userns (Ubuntu 23.10 and later); -1: none */
    bool is_selinux_enforcing;
    bool is_privileged;          /* CAP_SYS_ADMIN: the settings for ordinary users do not apply */
    bool is_chrooted;
    bool is_unmapped;            /* our own ids have no mapping in the user namespace around us */
    bool is_filtered;            /* a seccomp filter answers in the kernel's place; see hutch_denial_is_filtered() */
    bool is_nested;              /* the user namespace around us is not the first one */
    char container[32];          /* "docker", "podman", "lxc", …; "" outside */
    char program[PATH_MAX];      /* our own, for a profile */
};

/* @root is put before each path: "" for this host. */
void hutch_denial_read_facts(const char *root, struct denial_facts *ret);

/* Whether unshare(2) or clone(2) with CLONE_NEWUSER are stopped before the kernel looks at them: flags that it refuses
 * with EINVAL come back with another answer. A filter that kills instead kills the caller: ask in a child. */
bool hutch_denial_is_filtered(void);

struct denial_cause {
    char why[200];
    char fix[1024]; /* "" when it is not ours to say */
};

/* @errnum is what clone(2) with CLONE_NEWUSER said. Always finds words. */
void hutch_denial_explain_userns(const struct denial_facts *facts, int errnum, struct denial_cause *ret);

/* @errnum is what a call inside a user namespace said, where the sandbox has every capability. False when no setting of
 * the host explains it. */
bool hutch_denial_explain_inside(const struct denial_facts *facts, int errnum, struct denial_cause *ret);

/* The kernel refuses a fresh proc where the visible one is partly covered (mount_too_revealing, Linux 4.2). */
void hutch_denial_explain_proc(const struct denial_facts *facts, const char *covered, struct denial_cause *ret);

#endif
