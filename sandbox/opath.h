/* opath.h - change the mode of a file, or open a directory, whose permissions are in the way, without ever
 * following a link. For trees that hostile code wrote: it may take away every permission, and swap a name
 * for a link between two calls. */
#ifndef HUTCH_OPATH_H
#define HUTCH_OPATH_H

#include <sys/types.h>

/* chmod(2) of what @fd (O_PATH is fine) stands for. -1 with errno set; ENOSYS when the kernel has no
 * fchmodat2(2) (before Linux 6.6) and /proc is not mounted either. */
int hutch_opath_chmod(int fd, mode_t mode);

/* Opens the directory @name below @dirfd for reading ("." is @dirfd itself, which may be O_PATH); never through a link,
 * never blocking, and without a trace in its times where the caller owns it. When @unlock_bits (for instance 0700) is
 * not 0 and the directory belongs to the caller and lacks one of them, they are added first. -1 with errno set: ENOENT,
 * ENOTDIR (also for a link), EACCES. */
int hutch_opath_open_dir(int dirfd, const char *name, mode_t unlock_bits);

#endif
