/* profile.h - what is asked of a sandbox, apart from the program: a root tree, a policy, and what is set beyond it.
 * Compiles to a struct sandbox_spec. The command line fills one, and so does an engine for its pool. */
#ifndef HUTCH_CONFIG_PROFILE_H
#define HUTCH_CONFIG_PROFILE_H

#include "sandbox/err.h"
#include "sandbox/spec.h"

#include <stddef.h>
#include <stdint.h>

struct image_root;

#define PROFILE_NO_LIMIT UINT64_MAX
#define PROFILE_IMAGE "python" /* where none is named */

/* Texts as the command line has them; NULL for what is not asked for. Lists end with NULL. Nothing is owned, unless
 * hutch_profile_copy() made it. */
struct profile {
    const char *home;       /* hutch's own directory */
    const char *policy;     /* name or file; NULL: "default" */
    const char *policy_dir; /* NULL: hutch_policy_dir() */
    const char *image;      /* NULL: PROFILE_IMAGE, unless there is a rootfs */
    const char *rootfs;     /* "host", or a root tree */
    const char *workdir, *network;
    const char *gpu; /* "compute"; NULL: the policy's */
    uint64_t limits[LIMIT_COUNT]; /* instead of the policy's; 0: that one, PROFILE_NO_LIMIT: none */
    const char *const *env, *const *volumes, *const *tmpfs;
    const char *const *data_targets; /* absolute paths inside that lead to /mnt/data: those of all sandboxes; */
    const char *const *own_data_targets; /* and those of one, beside volumes */
    const char *data;       /* host directory for /mnt/data, its real path: only to be looked at here */
};

/* A copy with texts of its own, for hutch_profile_done(). Errors: ENOMEM. */
int hutch_profile_copy(const struct profile *from, struct profile *ret, struct hutch_err *err);
void hutch_profile_done(struct profile *profile); /* fine on one that is all zeroes */

/* Fills @spec, which hutch_spec_init() has filled, with everything but the root tree, the program and /mnt/data. */
int hutch_profile_build(const struct profile *profile, struct sandbox_spec *spec, struct hutch_err *err);

/* Where the root tree comes from, and the layers over it; of an image, also its environment (image_env.h). @ret_image
 * keeps an image from being removed while it is in use, and is freed with hutch_image_root_done(); otherwise it is
 * untouched. */
int hutch_profile_set_root(const struct profile *profile, struct sandbox_spec *spec, struct image_root *ret_image,
                           struct hutch_err *err);

/* What code inside may write must not hold hutch's own files: the images that later runs execute, the slots, the
 * policies. @source is a real path. */
int hutch_profile_refuse_own(const struct profile *profile, const char *source, struct hutch_err *err);

#endif
