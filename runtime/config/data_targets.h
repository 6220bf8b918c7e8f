/* data_targets.h - further names of /mnt/data inside: links in the sandbox's root, of an engine's or of one request's
 * own. A program that goes through one is in /mnt/data, whatever is mounted there. */
#ifndef HUTCH_CONFIG_DATA_TARGETS_H
#define HUTCH_CONFIG_DATA_TARGETS_H

#include "sandbox/err.h"
#include "sandbox/spec.h"

#include <stdbool.h>

/* Of a list. Each part of each name may be a directory that the image lacks, of which a sandbox makes some 1000. */
#define DATA_TARGETS_MAX      16
#define DATA_TARGET_MAX_BYTES 255
#define DATA_TARGET_MAX_PARTS 16

/* Whether these can be names of it at all, in any sandbox. A list ends with NULL, and NULL is an empty one. Errors:
 * EINVAL. */
int hutch_data_targets_check(const char *const *targets, struct hutch_err *err);

/* Whether every one of @targets is in @among. */
bool hutch_data_targets_are_among(const char *const *targets, const char *const *among);

/* Adds those that are not in @but, which the spec has had by an earlier call. A name that is, holds or lies in what is
 * mounted by then is refused, but for one in a tmpfs: a link would hide it, or be made in a directory of the host's.
 * Errors: EINVAL, ENOMEM. */
int hutch_data_targets_add(struct sandbox_spec *spec, const char *const *targets, const char *const *but,
                           struct hutch_err *err);

/* Refuses what the spec has of them where the root tree, which is named in it, has something else, or leads elsewhere
 * by a link. What cannot be looked at is left to the sandbox. Errors: EINVAL. */
int hutch_data_targets_check_image(const struct sandbox_spec *spec, struct hutch_err *err);

#endif
