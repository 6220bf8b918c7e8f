/* hostroot.h - a root made of the host's own programs: its /usr, read-only, and the few files of /etc that programs
 * need and that tell nothing about the host's users. Without /etc/hosts, which is made elsewhere.
 * Lets hutch run without any image. */
#ifndef HUTCH_HOSTROOT_H
#define HUTCH_HOSTROOT_H

#include "sandbox/err.h"

#include <sys/types.h>

/* Fills the empty, attached tmpfs @root_fd. @empty_fd: another empty mount, attached in this mount namespace, with
 * which overlays of the host's directories are made so that their files have inodes of their own (overlay.h); -1: none
 * are wanted. *@ret_overlay_errnum is set where there could be no overlay, and that directory is the host's. */
int hutch_hostroot_build(int root_fd, uid_t uid_inside, gid_t gid_inside, int empty_fd, int *ret_overlay_errnum,
                         struct hutch_err *err);

#endif
