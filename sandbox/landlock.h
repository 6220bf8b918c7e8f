/* landlock.h - a second opinion on file access: writes only below the directories that the spec makes writable.
 * Also cuts signals and abstract sockets that would leave the sandbox. Source: landlock(7); ABI 1 is Linux 5.13,
 * 2 adds renames between directories (5.19), 3 truncate (6.2), 5 device ioctls (6.10), 6 scopes (6.12). */
#ifndef HUTCH_LANDLOCK_H
#define HUTCH_LANDLOCK_H

#include "sandbox/err.h"

#include <stdbool.h>

struct sandbox_spec;

/* The kernel's ABI version; 0 where Landlock is not compiled in or switched off. */
int hutch_landlock_abi(void);

/* Makes the ruleset, in a process that sees the finished mount tree; the caller owns *ret_fd. With @data_comes_later
 * the data directory is going to be mounted afterwards. No allocation. */
int hutch_landlock_make(const struct sandbox_spec *spec, int abi, bool data_comes_later, int *ret_fd,
                        struct hutch_err *err);

/* Restricts the calling process, which has no_new_privs, and those that it makes. */
int hutch_landlock_enforce(int ruleset_fd, struct hutch_err *err);

#endif
