#include "sandbox/overlay.h"

#include "sandbox/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>

int hutch_overlay_make(const int *dirs, size_t n, int *ret_fd, struct hutch_err *err)
{
    auto_fd fs = fsopen("overlay", FSOPEN_CLOEXEC);
    auto_fd fd = -1;
    char lower[256];
    size_t len = 0;

    for (size_t i = 0; i < n && len < sizeof(lower); i++)
        len += (size_t)snprintf(lower + len, sizeof(lower) - len, "%s/proc/self/fd/%d", i ? ":" : "", dirs[i]);
    if (len >= sizeof(lower))
        return hutch_err_set(err, E2BIG, "create an overlay of %zu directories", n);
    if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "lowerdir", lower, 0) < 0 ||
        fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return hutch_err_set(err, errno, "create an overlay%s",
                             errno == EINVAL ? " (is something mounted below the tree?)" : "");
    fd = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    if (fd < 0)
        return hutch_err_set(err, errno, "make a mount of an overlay");
    *ret_fd = hutch_fd_take(&fd);
    return 0;
}

/* By the first two fields of each line, proc_pid_mountinfo(5): a mount's number, and that of the mount it is on.
 * Without memory or a buffered file, as a child of clone(2) has to. */
int hutch_overlay_check(int bottom, struct hutch_err *err)
{
    auto_fd fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    uint64_t number = 0;
    struct statx about;
    char block[4096];
    int field = 0;
    ssize_t n;

    if (fd < 0 || statx(bottom, "", AT_EMPTY_PATH, STATX_MNT_ID, &about) < 0)
        return hutch_err_set(err, errno, "look for mounts below the tree");
    while ((n = read(fd, block, sizeof(block))) > 0)
        for (ssize_t i = 0; i < n; i++) {
            if (block[i] == '\n') {
                field = 0;
                number = 0;
            } else if (field < 2 && block[i] == ' ') {
                if (field == 1 && number == about.stx_mnt_id)
                    return hutch_err_set(err, EINVAL, "create an overlay of a tree with mounts below it");
                field++;
                number = 0;
            } else if (field < 2) {
                number = number * 10 + (uint64_t)(block[i] - '0');
            }
        }
    return n < 0 ? hutch_err_set(err, errno, "read '/proc/self/mountinfo'") : 0;
}
