/* landlock.h - a second opinion on file access: writes only below the directories that the spec makes writable.
 * Also cuts signals and abstract sockets that would leave the sandbox. Source: landlock(7); ABI 1 is Linux 5.13,
 * 2 adds renames between directories (5.19), 3 truncate (6.2), 5 device ioctls (6.10), 6 scopes (6.12). */
#ifndef HUTCH_LANDLOCK_H
#define HUTCH_LANDLOCK_H

#include "err.h"

struct sandbox_spec;

/* The kernel's ABI version; 0 where Landlock is not compiled in or switched off. */
int hutch_landlock_abi(void);

/* Restricts the calling process, which has no_new_privs and sees the finished mount tree. No allocation. */
int hutch_landlock_apply(const struct sandbox_spec *spec, int abi, struct hutch_err *err);

#endif
