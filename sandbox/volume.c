#include "sandbox/volume.h"

#include "sandbox/fd.h"
#include "sandbox/mounts.h"

#include <fcntl.h>
#include <sys/mount.h>

#define PLACE "/tmp" /* where the base is attached for a moment: a directory that every host has */

static int copy_mount(int fd, int *ret_fd, struct hutch_err *err)
{
    *ret_fd = open_tree(fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    return *ret_fd < 0 ? hutch_err_set(err, errno, "copy the mount of a data directory") : 0;
}

static int copy_twice(int base_fd, int *ret_first, int *ret_second, struct hutch_err *err)
{
    auto_fd first = -1;

    if (copy_mount(base_fd, &first, err) < 0 || copy_mount(base_fd, ret_second, err) < 0)
        return -1;
    *ret_first = hutch_fd_take(&first);
    return 0;
}

/* Detached mounts are copied in the namespace that they come from only, and before Linux 6.15 not at all. */
static int copy_attached(int base_fd, int *ret_first, int *ret_second, struct hutch_err *err)
{
    int rc;

    if (move_mount(base_fd, "", AT_FDCWD, PLACE, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return hutch_err_set(err, errno, "attach a data directory to '%s'", PLACE);
    rc = copy_twice(base_fd, ret_first, ret_second, err);
    if (umount2(PLACE, MNT_DETACH) < 0)
        rc = hutch_err_set(err, errno, "detach a data directory from '%s'", PLACE);
    return rc;
}

int hutch_volume_open(int base_fd, const struct id_plan *plan, struct volume_mounts *ret, struct hutch_err *err)
{
    auto_fd mount = -1, base = -1;
    bool lacks_map = false;

    if (copy_twice(base_fd, &mount, &base, err) < 0 && copy_attached(base_fd, &mount, &base, err) < 0)
        return -1;
    if (hutch_mounts_map_owner(mount, "a data directory in memory", plan, &lacks_map, err) < 0)
        return -1;
    if (lacks_map)
        return hutch_err_set(err, EOPNOTSUPP, "map the owner of a data directory in memory (needs Linux 6.3)");
    ret->sandbox_fd = hutch_fd_take(&mount);
    ret->base_fd = hutch_fd_take(&base);
    return 0;
}

int hutch_volume_make(uint64_t bytes, uint64_t files, const struct id_plan *plan, struct volume_mounts *ret,
                      struct hutch_err *err)
{
    auto_fd base = -1;

    if (hutch_mounts_make_memory(bytes, files ? files + 1 : 0, 0755, &base, err) < 0)
        return -1;
    return hutch_volume_open(base, plan, ret, err);
}
