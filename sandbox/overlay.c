#include "sandbox/overlay.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* @option is set to the path of the open directory @fd. */
static int set_directory(int fs, const char *option, int fd)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return fsconfig(fs, FSCONFIG_SET_STRING, option, path, 0);
}

static int set_lower(int fs, const int *dirs, size_t n)
{
    char lower[256];
    size_t len = 0;

    for (size_t i = 0; i < n && len < sizeof(lower); i++)
        len += (size_t)snprintf(lower + len, sizeof(lower) - len, "%s/proc/self/fd/%d", i ? ":" : "", dirs[i]);
    if (len >= sizeof(lower)) {
        errno = E2BIG;
        return -1;
    }
    return fsconfig(fs, FSCONFIG_SET_STRING, "lowerdir", lower, 0);
}

static int set_upper(int fs, int upper, int work, struct hutch_err *err)
{
    if (set_directory(fs, "upperdir", upper) < 0 || set_directory(fs, "workdir", work) < 0 ||
        fsconfig(fs, FSCONFIG_SET_FLAG, "userxattr", NULL, 0) < 0)
        return hutch_err_set(err, errno, "create an overlay that can be written");
    return 0;
}

int hutch_overlay_make(const int *dirs, size_t n, int changes, int *ret_fd, struct hutch_err *err)
{
    auto_fd fs = fsopen("overlay", FSOPEN_CLOEXEC);
    auto_fd upper = -1, work = -1; /* open until the end: before Linux 6.5, only FSCONFIG_CMD_CREATE looks paths up */
    auto_fd fd = -1;

    if (fs < 0 || set_lower(fs, dirs, n) < 0)
        return hutch_err_set(err, errno, "create an overlay of %zu directories", n);
    if (changes >= 0) {
        upper = openat(changes, "upper", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        work = upper < 0 ? -1 : openat(changes, "work", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (work < 0)
            return hutch_err_set(err, errno, "open 'upper' and 'work' of the directory for changes");
        if (set_upper(fs, upper, work, err) < 0)
            return -1;
    }
    /* Not "xino", which would give files the device number of their directories: the kernel writes a line into the
     * host's log for each such overlay. */
    if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return hutch_err_set(err, errno, "create an overlay%s",
                             errno == EINVAL ? " (is something mounted below the tree?)" : "");
    fd = fsmount(fs, FSMOUNT_CLOEXEC,
                 MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (changes < 0 ? MOUNT_ATTR_RDONLY : 0));
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
