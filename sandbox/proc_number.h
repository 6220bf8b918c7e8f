/* proc_number.h - what the procfs at /proc calls a process. Inside a container the launcher has no procfs of its pid
 * namespace: the one that is there has other numbers for its children. Source: pidfd_open(2), proc_pid_fdinfo(5). */
#ifndef HUTCH_PROC_NUMBER_H
#define HUTCH_PROC_NUMBER_H

#include "sandbox/err.h"

#include <sys/types.h>

/* The number of the process behind @pidfd, which the caller has not reaped: it stays its own. Errors: ESRCH
 * where that procfs does not show the process, as one of another pid namespace. Allocates nothing. */
int hutch_proc_number(int pidfd, pid_t *ret, struct hutch_err *err);

#endif
