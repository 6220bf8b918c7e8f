/* delegation.h - the one command with which a user gets a cgroup of its own, by who manages the cgroups of this host.
 *
 * Sources: systemd.resource-control(5) about Delegate=; Documentation/admin-guide/cgroup-v2.rst, "Delegation". */
#ifndef HUTCH_DOCTOR_DELEGATION_H
#define HUTCH_DOCTOR_DELEGATION_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum init_system {
    INIT_SYSTEMD,
    INIT_OPENRC,
    INIT_OTHER,
};

struct delegation_facts {
    enum init_system init;
    uid_t uid;
    bool is_in_container;
    bool has_user_manager; /* systemd runs for this user: there is a session, or the user lingers */
    bool has_runtime_dir;  /* XDG_RUNTIME_DIR is set, by which systemd-run(1) finds that manager */
    const char *mount;     /* of cgroup v2 */
};

/* What is the case here and now for @uid. */
void hutch_delegation_look(uid_t uid, bool is_in_container, const char *mount, struct delegation_facts *ret);

/* A group for the user, with the controllers that the host has. */
void hutch_delegation_command(const struct delegation_facts *facts, char *ret, size_t size);

/* Controllers are of v1 hierarchies, and can only be had by starting the host otherwise. */
void hutch_delegation_leave_v1(const struct delegation_facts *facts, char *ret, size_t size);

#endif
