/* attach.h - gives a sandbox that is built its data directory. Its init has no capability left, so a process from
 * outside joins the namespaces and mounts. */
#ifndef HUTCH_ATTACH_H
#define HUTCH_ATTACH_H

#include "sandbox/err.h"

#include <sys/types.h>

struct sandbox_spec;

/* A descriptor of the mount namespace of init @pid, a child of the caller's; the caller owns it. Before INIT_GO: when
 * init has changed its user, its /proc entries are not the caller's. */
int hutch_attach_open(pid_t pid, int *ret_fd, struct hutch_err *err);

/* The calling process has made the sandbox, and no foreign code has run in it. @ns_fd: from above. @mount_fd: a
 * detached mount; both stay the caller's. Waits for the process that does it. */
int hutch_attach_data(const struct sandbox_spec *spec, int ns_fd, int mount_fd, struct hutch_err *err);

#endif
