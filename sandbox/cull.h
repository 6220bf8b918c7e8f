/* cull.h - ends all processes of a sandbox but some; for its init. */
#ifndef HUTCH_CULL_H
#define HUTCH_CULL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Kills all that /proc shows except process 1 and @spared, again and again until nobody else is alive, for what is killed may have forked
 * meanwhile; children of the caller's that die are left for it to reap. False when there is still somebody after a fifth of a second. */
bool hutch_cull(const pid_t *spared, size_t n);

#endif
