/* usual_mounts.h - the mounts that every sandbox has: /proc, /dev, /tmp, /run, /sys and the place for /mnt/data. */
#ifndef HUTCH_CONFIG_USUAL_MOUNTS_H
#define HUTCH_CONFIG_USUAL_MOUNTS_H

#include "sandbox/err.h"

#include <stdbool.h>

struct sandbox_spec;

/* Adds them to a spec without mounts; what a policy and the caller mount comes on top, in that order. */
int hutch_usual_mounts_add(struct sandbox_spec *spec, struct hutch_err *err);

/* Gives them their sizes, once the limits are known; /run can be written where the root can. */
void hutch_usual_mounts_size(struct sandbox_spec *spec);

/* Has the sandbox count as many processors as its limit allows, once the limits are known: files in /sys, which has
 * nothing else. Errors: ENOMEM. */
int hutch_usual_mounts_count_cpus(struct sandbox_spec *spec, struct hutch_err *err);

/* Whether a mount on @target, an absolute path inside, would hide one of them or what the masks and limits
 * are about. */
bool hutch_usual_mounts_are_hidden_by(const char *target);

#endif
