/* rmtree.h - remove a directory tree, whatever hostile code made of it: directories without permissions, any
 * depth, any byte in a name. Follows no link, crosses no mount, recurses nowhere. */
#ifndef HUTCH_RMTREE_H
#define HUTCH_RMTREE_H

#include "sandbox/err.h"

/* Removes @name (one component, no '/') below @dirfd, be it a file or a tree. Nothing there is success, so
 * two removals may meet. Stops at the first thing that it cannot remove.
 * Errors: EINVAL (not one component); EBUSY (something is mounted inside: it and what is below are left
 * alone); EACCES, EPERM (another user's directory); ENOTEMPTY (a process keeps writing into the tree). */
int hutch_rmtree(int dirfd, const char *name, struct hutch_err *err);
/* The same, no further than until the moment @until of hutch_clock_ms(): ETIMEDOUT, and a part of it is left. */
int hutch_rmtree_until(int dirfd, const char *name, double until, struct hutch_err *err);

#endif
