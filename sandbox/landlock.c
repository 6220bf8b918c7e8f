#include "sandbox/landlock.h"

#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Newer than the headers of the oldest distribution that hutch builds on; uapi/linux/landlock.h of Linux 6.12. */
#ifndef LANDLOCK_ACCESS_FS_TRUNCATE
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)
#endif
#ifndef LANDLOCK_ACCESS_FS_IOCTL_DEV
#define LANDLOCK_ACCESS_FS_IOCTL_DEV (1ULL << 15)
#endif
#define SCOPE_ABSTRACT_UNIX_SOCKET (1ULL << 0)
#define SCOPE_SIGNAL               (1ULL << 1)

struct ruleset_attr {
    __u64 handled_access_fs;
    __u64 handled_access_net;
    __u64 scoped;
};

#define WRITE_FILE_ACCESS (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_TRUNCATE)
#define WRITE_ACCESS                                                                                                  \
    (WRITE_FILE_ACCESS | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |                             \
     LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |                       \
     LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_REFER)
/* Handled, and given to no directory but one: ioctl(2) to the devices of /dev, which are null, zero, full, random,
 * urandom and pseudo-terminals, and to a MOUNT_DEVICE. The seccomp filter says which requests a program may make there,
 * and a device answers one that it does not know with ENOTTY, as callers expect. */
#define NEVER_ACCESS (LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_IOCTL_DEV)

int hutch_landlock_abi(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

    return abi < 0 ? 0 : (int)abi;
}

static __u64 known_access(int abi)
{
    __u64 access = WRITE_ACCESS | NEVER_ACCESS;

    if (abi < 2)
        access &= ~(__u64)LANDLOCK_ACCESS_FS_REFER;
    if (abi < 3)
        access &= ~(__u64)LANDLOCK_ACCESS_FS_TRUNCATE;
    if (abi < 5)
        access &= ~(__u64)LANDLOCK_ACCESS_FS_IOCTL_DEV;
    return access;
}

static int allow_below(int ruleset, const char *path, __u64 access, struct hutch_err *err)
{
    auto_fd fd = open(path, O_PATH | O_CLOEXEC);
    struct landlock_path_beneath_attr rule = { .allowed_access = access, .parent_fd = fd };
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return hutch_err_set(err, errno, "open '%s' to allow writing there", path);
    if (!S_ISDIR(st.st_mode)) /* rights that only make sense for a directory are refused on a file */
        rule.allowed_access &= WRITE_FILE_ACCESS;
    if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
        return hutch_err_set(err, errno, "allow writing below '%s'", path);
    return 0;
}

/* Writing is allowed for all of /dev. The node's driver is the one that code inside is to reach: its ioctls, all of
 * them, as Landlock knows no numbers. */
static int allow_device(int ruleset, const char *path, __u64 access, struct hutch_err *err)
{
    auto_fd fd = open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW);
    struct landlock_path_beneath_attr rule = { .allowed_access = access, .parent_fd = fd };

    if (fd < 0)
        return hutch_err_set(err, errno, "open '%s' to allow its use", path);
    if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
        return hutch_err_set(err, errno, "allow the use of '%s'", path);
    return 0;
}

/* A rule is about an inode, and that of a directory that is mounted later is not known yet; what the mount covers does
 * not count either (landlock(7): hidden mount points are ignored). So it goes to the directory above, of which all else
 * is read-only by its mounts. */
static int allow_above(int ruleset, const char *path, __u64 access, struct hutch_err *err)
{
    char above[PATH_MAX];
    const char *slash = strrchr(path, '/');

    snprintf(above, sizeof(above), "%.*s", slash == path ? 1 : (int)(slash - path), path);
    return allow_below(ruleset, above, access, err);
}

int hutch_landlock_make(const struct sandbox_spec *spec, int abi, bool data_comes_later, int *ret_fd,
                        struct hutch_err *err)
{
    struct ruleset_attr attr = { .handled_access_fs = known_access(abi) };
    size_t attr_size = sizeof(attr.handled_access_fs);
    auto_fd ruleset = -1;

    if (abi >= 6) {
        attr.scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL;
        attr_size = sizeof(attr);
    }
    ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, attr_size, 0);
    if (ruleset < 0)
        return hutch_err_set(err, errno, "create a Landlock ruleset (ABI %d)", abi);
    for (size_t i = 0; i < spec->n_mounts; i++) {
        const struct sandbox_mount *m = &spec->mounts[i];

        if (m->flags & MOUNT_LAYER)
            continue;
        if (m->flags & MOUNT_CHANGES) {
            if (allow_below(ruleset, "/", attr.handled_access_fs & WRITE_ACCESS, err) < 0)
                return -1;
        } else if (m->kind == MOUNT_DEV) {
            if (allow_below(ruleset, m->target,
                            attr.handled_access_fs & (WRITE_FILE_ACCESS | LANDLOCK_ACCESS_FS_IOCTL_DEV), err) < 0 ||
                allow_below(ruleset, "/dev/shm", attr.handled_access_fs & WRITE_ACCESS, err) < 0)
                return -1;
        } else if (m->kind == MOUNT_BIND && (m->flags & MOUNT_DEVICE)) {
            if (allow_device(ruleset, m->target,
                             attr.handled_access_fs & (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_IOCTL_DEV),
                             err) < 0)
                return -1;
        } else if ((m->kind == MOUNT_TMPFS || m->kind == MOUNT_BIND) && !(m->flags & MOUNT_RDONLY)) {
            if ((m->flags & MOUNT_OPTIONAL) && access(m->target, F_OK) < 0)
                continue; /* its source was not there, so nothing was mounted */
            if (data_comes_later && (m->flags & MOUNT_DATA)
                    ? allow_above(ruleset, m->target, attr.handled_access_fs & WRITE_ACCESS, err) < 0
                    : allow_below(ruleset, m->target, attr.handled_access_fs & WRITE_ACCESS, err) < 0)
                return -1;
        }
    }
    *ret_fd = hutch_fd_take(&ruleset);
    return 0;
}

int hutch_landlock_enforce(int ruleset_fd, struct hutch_err *err)
{
    if (syscall(SYS_landlock_restrict_self, ruleset_fd, 0) < 0)
        return hutch_err_set(err, errno, "enforce the Landlock ruleset");
    return 0;
}
