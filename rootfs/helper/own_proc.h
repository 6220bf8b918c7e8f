/* own_proc.h - what procfs says of a zygote. Where its /proc is one of its own it looks there. Inside a container there
 * may be none (sandbox/bare_proc.h): then the engine, which has the container's, sends a few of the zygote's own files
 * from there, as open descriptors. Nothing else can be reached by them. */
#ifndef HUTCH_HELPER_OWN_PROC_H
#define HUTCH_HELPER_OWN_PROC_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the engine has to be asked; forgets what was received before. */
bool hutch_own_proc_is_missing(void);
/* @fds: as ZYGOTE_PROC has them, the callee's from here on. */
void hutch_own_proc_take(const int *fds, unsigned n_fds);

/* A new descriptor of /proc/self/@name, at its begin, which the caller owns; -1: there is none. Such a file may share
 * its position with others of the same name. */
int hutch_own_proc_open(const char *name);

/* The number that follows @word in the file "status", at the begin of a line, as "Threads:". False: not known. */
bool hutch_own_proc_status(const char *word, uint64_t *ret);

#endif
