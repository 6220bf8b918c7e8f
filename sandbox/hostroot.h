/* hostroot.h - a root made of the host's own programs: its /usr, read-only, and the few files of /etc that programs
 * need and that tell nothing about the host's users. Lets hutch run without any image. */
#ifndef HUTCH_HOSTROOT_H
#define HUTCH_HOSTROOT_H

#include "sandbox/err.h"

#include <sys/types.h>

/* Fills the empty, attached tmpfs @root_fd. */
int hutch_hostroot_build(int root_fd, uid_t uid_inside, gid_t gid_inside, struct hutch_err *err);

#endif
