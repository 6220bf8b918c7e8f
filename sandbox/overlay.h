/* overlay.h - overlays: a tree that others have too, with inodes of its own.
 *
 * A lock, a lease or a watch is on an inode. That of an overlay's file is the overlay's (Linux 4.19), so what another
 * sandbox does to the same file is not seen here. What belongs to the file's pages is shared as before: futex(2) in a
 * map of the file, and what is in the page cache.
 * Source: Documentation/filesystems/overlayfs.rst. Needs Linux 5.11 in a user namespace. */
#ifndef HUTCH_OVERLAY_H
#define HUTCH_OVERLAY_H

#include "sandbox/err.h"

#include <stddef.h>

#define OVERLAY_MAX 14 /* the kernel takes 255 bytes for one option, fsconfig(2), and each takes at most 18 here */

/* The directories @dirs, the topmost first, two of them or more, as a mount that is not attached. Only what is attached
 * in the caller's mount namespace can be a layer, before Linux 6.15.
 *
 * It is read-only where @changes is -1. Otherwise what is changed goes into the directory `upper` of @changes, and
 * `work` is the kernel's for moving it there. Attributes that the kernel keeps with files are of the kind that a user
 * may set, so its file system has to have those; ordinary ones do.
 * Errors: EINVAL (there are mounts below one that the caller may not take away, and they would not be in it), E2BIG,
 * EBUSY (another overlay uses @changes). */
int hutch_overlay_make(const int *dirs, size_t n, int changes, int *ret_fd, struct hutch_err *err);

/* The same error for mounts that the caller might take away, which the kernel leaves out without a word. */
int hutch_overlay_check(int bottom, struct hutch_err *err);

#endif
