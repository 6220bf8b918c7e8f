/* bare_proc.h - what stands at /proc where the kernel gives no procfs: mount_namespaces(7), "a less privileged mount
 * namespace": a fresh one would show what is covered in the one around it, as inside a container.
 *
 * It is a small tree of plain files with what programs and libraries read when they start, copied once. No process is
 * in it, not even the reader's own. */
#ifndef HUTCH_BARE_PROC_H
#define HUTCH_BARE_PROC_H

#include "sandbox/err.h"

#define BARE_PROC_BYTES  (2u << 20) /* of the file system that it fits in … */
#define BARE_PROC_INODES 64         /* … files, directories and names */

/* @fd: an empty directory that is to become it. @proc_fd: the procfs around it. What that has not, or covers, is left
 * out. Allocates nothing. */
int hutch_bare_proc_fill(int fd, int proc_fd, struct hutch_err *err);

#endif
