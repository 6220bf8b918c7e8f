/* userns.h - which host identity a sandbox has, and the id maps that say so.
 * Source: user_namespaces(7), mount_setattr(2) "ID-mapped mounts". */
#ifndef HUTCH_USERNS_H
#define HUTCH_USERNS_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <sys/types.h>

struct sandbox_spec;

#define ID_RANGE_MAX 65536 /* what a user has as a rule; of a longer range the rest is not used */

/* Host uids from @uid on, and gids from @gid on. The first is for those who share, so with fewer than two no sandbox
 * has one of its own. An ordinary user's range does not have the user's own ids in it: those who share have these, and
 * no sandbox has the first. Source: subuid(5), subgid(5). */
struct id_range {
    uid_t uid;
    gid_t gid;
    unsigned count; /* of each */
};

/* The host ids behind uid_inside and gid_inside: the caller's own, except that host uid 0 never runs a
 * sandbox. Root maps it to a subordinate id of a user named "hutch", else to 65534. */
struct id_plan {
    uid_t host_uid; /* with a range its first, until a sandbox has one of its own: ids.h */
    gid_t host_gid;
    struct id_range range; /* the ids that sandboxes may borrow; an ordinary user's: hutch_userns_find_range() */
    bool  is_mapped_away; /* host ids are not the caller's: files need handing over, see idmaps */
    bool  can_mount;      /* the caller has CAP_SYS_ADMIN here and can open mounts for the sandbox itself */
};

/* Errors: a sentence when uid 0 of the host would be the only choice. */
int hutch_userns_plan(struct id_plan *ret, struct hutch_err *err);

/* Parent side, once, after clone(2): writes /proc/@pid/{setgroups,uid_map,gid_map}. */
int hutch_userns_write_maps(pid_t pid, const struct sandbox_spec *spec, const struct id_plan *plan,
                            struct hutch_err *err);

/* The same for a namespace in which the plan's host ids, and all of its range, keep their numbers: that of @pid, or of
 * the calling process with 0, which only an ordinary user's own can need, and without a range. */
int hutch_userns_write_identity(pid_t pid, const struct id_plan *plan, struct hutch_err *err);

/* An ordinary user's range. False when there is none, or the kernel could not map owners to it: @why. It may read the
 * user database. */
bool hutch_userns_find_range(struct id_range *ret, struct hutch_err *why);

/* The same, whatever the kernel can do with it. */
bool hutch_userns_read_range(struct id_range *ret);

/* Makes the calling process, which is an ordinary user's and has one thread, the owner of a new user namespace, with
 * other new namespaces by @flags. In it the plan's host ids keep their numbers, and so do those of its range, which
 * newuidmap(1) and newgidmap(1) map; where they do not the range is empty from here on, and @why_not says why. */
int hutch_userns_unshare(struct id_plan *plan, int flags, struct hutch_err *why_not, struct hutch_err *err);

/* What an errno of clone(2) or unshare(2) with CLONE_NEW... means and what to do about it, in brackets; "" when it says
 * all. */
const char *hutch_userns_hint(int errnum);

/* Child side, once the maps are there: takes on uid_inside and gid_inside and drops foreign groups, while keeping
 * the capabilities over the new namespaces that building the sandbox needs. */
int hutch_userns_enter(const struct sandbox_spec *spec, const struct id_plan *plan, struct hutch_err *err);

/* A user namespace that maps @disk_uid:@disk_gid to the plan's host ids, for MOUNT_ATTR_IDMAP: what the sandbox
 * writes through such a mount belongs to the disk ids on disk. The caller owns *ret_fd. */
int hutch_userns_open_idmap(uid_t disk_uid, gid_t disk_gid, const struct id_plan *plan, int *ret_fd,
                            struct hutch_err *err);

#endif
