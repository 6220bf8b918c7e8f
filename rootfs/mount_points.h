/* mount_points.h - what a sandbox needs in a root tree, whatever the image had there. */
#ifndef HUTCH_MOUNT_POINTS_H
#define HUTCH_MOUNT_POINTS_H

#include "sandbox/err.h"

/* Makes the mount points (real directories) and the user's entries in /etc/passwd and /etc/group of the tree at
 * @root_fd. */
int hutch_mount_points_make(int root_fd, struct hutch_err *err);

#endif
