/* init_filter.h - the system calls that init needs once its sandbox is built: to count, to tell what was counted, to
 * reap, to kill, to talk to the supervisor. It opens nothing for writing, executes nothing, makes no process and no
 * socket. */
#ifndef HUTCH_INIT_FILTER_H
#define HUTCH_INIT_FILTER_H

#include "sandbox/err.h"

/* Loads the filter for the calling process, which has no_new_privs: all other calls answer EPERM from here on. No
 * allocation, and no look-up: it may be called after clone(2). Errors: as hutch_seccomp_load(). */
int hutch_init_filter_load(struct hutch_err *err);

#endif
