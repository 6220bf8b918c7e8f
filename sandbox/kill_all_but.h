/* kill_all_but.h - ends all processes of a sandbox but some; for its init. */
#ifndef HUTCH_KILL_ALL_BUT_H
#define HUTCH_KILL_ALL_BUT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Kills all that /proc shows except process 1 and @spared, again and again until no other process is alive, as what is
 * killed may have forked meanwhile. Children of the caller's that die are left for it to reap. False when some process
 * is still alive after a fifth of a second. */
bool hutch_kill_all_but(const pid_t *spared, size_t n);

#endif
