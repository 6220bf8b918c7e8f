/* The mount tree: every call that sandbox/mounts.c makes, once. */
#include "runtime/doctor/probes.h"

#include "sandbox/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* A new, detached file system, or -1 with the failing call in *@ret_call. @options: NULL-terminated key, value. */
static int make_fs(const char *type, const char *const *options, const char **ret_call)
{
    int fs = fsopen(type, FSOPEN_CLOEXEC);

    *ret_call = "fsopen";
    if (fs < 0)
        return -1;
    *ret_call = "fsconfig";
    for (; options && options[0]; options += 2)
        if (fsconfig(fs, FSCONFIG_SET_STRING, options[0], options[1], 0) < 0)
            return -1;
    if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -1;
    *ret_call = "fsmount";
    return fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

static bool cut_off(void)
{
    struct mount_attr private = { .propagation = MS_PRIVATE };

    return mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &private, sizeof(private)) == 0;
}

void hutch_probe_mount_ns(const struct doctor_host *host, struct doctor_finding *ret)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        hutch_doctor_failed(host, ret, errno, "cut the mount tree off from the host's");
    else
        hutch_doctor_found(ret, DOCTOR_OK, "can be made");
}

void hutch_probe_mount_api(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct mount_attr rdonly = { .attr_set = MOUNT_ATTR_RDONLY };
    const char *call;
    int fs, tree;

    if (!cut_off()) {
        hutch_doctor_failed(host, ret, errno, "mount_setattr");
        return;
    }
    fs = make_fs("tmpfs", NULL, &call);
    if (fs < 0) {
        hutch_doctor_failed(host, ret, errno, "%s", call);
        return;
    }
    tree = open_tree(AT_FDCWD, "/usr", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (tree < 0)
        hutch_doctor_failed(host, ret, errno, "open_tree");
    else if (mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &rdonly, sizeof(rdonly)) < 0)
        hutch_doctor_failed(host, ret, errno, "mount_setattr");
    else if (move_mount(fs, "", AT_FDCWD, "/tmp", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        hutch_doctor_failed(host, ret, errno, "move_mount");
    else
        hutch_doctor_found(ret, DOCTOR_OK, "fsopen, fsmount, open_tree, move_mount and mount_setattr work");
}

void hutch_probe_readonly_root(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct mount_attr rdonly = { .attr_set = MOUNT_ATTR_RDONLY };
    const char *call;
    int fs = make_fs("tmpfs", NULL, &call);

    if (fs < 0)
        hutch_doctor_failed(host, ret, errno, "%s", call);
    else if (mkdirat(fs, "a", 0755) < 0 || mount_setattr(fs, "", AT_EMPTY_PATH, &rdonly, sizeof(rdonly)) < 0)
        hutch_doctor_failed(host, ret, errno, "make a mount read-only");
    else if (mkdirat(fs, "b", 0755) == 0 || errno != EROFS)
        hutch_doctor_found(ret, DOCTOR_MISSING, "a read-only mount can be written to");
    else
        hutch_doctor_found(ret, DOCTOR_OK, "a read-only mount takes no writes");
}

/* Mount points below /proc, as many as fit. */
static void list_covered(char *ret, size_t size)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    char line[4200], where[256];
    size_t len = 0;

    ret[0] = '\0';
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "%*s %*s %*s %*s %255s", where) == 1 && strncmp(where, "/proc/", 6) == 0 &&
            strcmp(where, "/proc/sys/fs/binfmt_misc") != 0 && len + strlen(where) + 3 < size)
            len += (size_t)snprintf(ret + len, size - len, "%s%s", len ? ", " : "", where);
    if (f)
        fclose(f);
}

void hutch_probe_fresh_proc(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct denial_cause cause;
    char covered[120];
    const char *call;

    if (make_fs("proc", NULL, &call) >= 0) {
        hutch_doctor_found(ret, DOCTOR_OK, "can be mounted");
        return;
    }
    if (errno != EPERM) {
        hutch_doctor_failed(host, ret, errno, "%s", call);
        return;
    }
    list_covered(covered, sizeof(covered));
    hutch_denial_explain_proc(&host->facts, covered, &cause);
    hutch_doctor_found(ret, DOCTOR_DEGRADED, "%s", cause.why); /* the level no_proc */
    hutch_doctor_fix(ret, "%s", cause.fix);
}

void hutch_probe_devices(const struct doctor_host *host, struct doctor_finding *ret)
{
    static const char *const devices[] = { "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom" };
    struct stat st;

    for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
        int fd = open_tree(AT_FDCWD, devices[i], OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

        if (fd < 0 || fstat(fd, &st) < 0) {
            hutch_doctor_failed(host, ret, errno, "take over '%s'", devices[i]);
            return;
        }
        if (!S_ISCHR(st.st_mode)) {
            hutch_doctor_found(ret, DOCTOR_MISSING, "'%s' of this host is not a device", devices[i]);
            return;
        }
    }
    hutch_doctor_found(ret, DOCTOR_OK, "null, zero, full, random and urandom can be taken over");
}

void hutch_probe_pivot_root(const struct doctor_host *host, struct doctor_finding *ret)
{
    static const char *const places[] = { "/tmp", "/mnt", "/proc" }; /* as in sandbox/mounts.c */
    const char *call;
    int fs, rc = -1;

    if (!cut_off()) {
        hutch_doctor_failed(host, ret, errno, "mount_setattr");
        return;
    }
    fs = make_fs("tmpfs", NULL, &call);
    if (fs < 0) {
        hutch_doctor_failed(host, ret, errno, "%s", call);
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(places) && rc < 0; i++)
        rc = move_mount(fs, "", AT_FDCWD, places[i], MOVE_MOUNT_F_EMPTY_PATH);
    if (rc < 0 || fchdir(fs) < 0)
        hutch_doctor_failed(host, ret, errno, "attach a new root");
    else if (syscall(SYS_pivot_root, ".", ".") < 0)
        hutch_doctor_failed(host, ret, errno, "pivot_root%s",
                            errno == EINVAL ? " (is the host's root a ramfs or initramfs?)" : "");
    else if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        hutch_doctor_failed(host, ret, errno, "detach the host's tree");
    else if (access("/usr", F_OK) == 0 || access("/proc", F_OK) == 0)
        hutch_doctor_found(ret, DOCTOR_MISSING, "the host's tree is still in sight after pivot_root");
    else
        hutch_doctor_found(ret, DOCTOR_OK, "works, and the host's tree is gone afterwards");
}

void hutch_probe_tmpfs_limits(const struct doctor_host *host, struct doctor_finding *ret)
{
    static const char *const options[] = { "size", "65536", "nr_inodes", "8", NULL };
    const char *call;
    static char block[1 << 17];
    int fs = make_fs("tmpfs", options, &call), fd, made = 0;
    ssize_t n;

    if (fs < 0) {
        hutch_doctor_failed(host, ret, errno, "%s", call);
        return;
    }
    fd = openat(fs, "file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) {
        hutch_doctor_failed(host, ret, errno, "write into a new tmpfs");
        return;
    }
    n = write(fd, block, sizeof(block));
    for (char name[] = "a"; made < 8 && mkdirat(fs, name, 0700) == 0; name[0]++)
        made++;
    if (n > 65536 || made >= 8)
        hutch_doctor_found(ret, DOCTOR_MISSING, "a tmpfs grows past its limits");
    else
        hutch_doctor_found(ret, DOCTOR_OK, "size and number of files of a tmpfs are bounded");
}

void hutch_probe_overlayfs(const struct doctor_host *host, struct doctor_finding *ret)
{
    const char *call, *options[3] = { "lowerdir", NULL, NULL };
    char lower[64];
    int top = make_fs("tmpfs", NULL, &call), bottom = make_fs("tmpfs", NULL, &call);

    if (top < 0 || bottom < 0) {
        hutch_doctor_failed(host, ret, errno, "%s", call);
        return;
    }
    /* Both have to hang somewhere: overlayfs takes no detached layers before Linux 6.15. */
    if (!cut_off() || move_mount(top, "", AT_FDCWD, "/tmp", MOVE_MOUNT_F_EMPTY_PATH) < 0 ||
        mkdirat(top, "bottom", 0755) < 0 || move_mount(bottom, "", top, "bottom", MOVE_MOUNT_F_EMPTY_PATH) < 0) {
        hutch_doctor_failed(host, ret, errno, "attach the layers");
        return;
    }
    snprintf(lower, sizeof(lower), "/proc/self/fd/%d:/proc/self/fd/%d", top, bottom);
    options[1] = lower;
    if (make_fs("overlay", options, &call) < 0)
        hutch_doctor_failed(host, ret, errno, "%s of an overlay%s", call,
                            errno == ENODEV ? " (not compiled in, or the module is not loaded)" : "");
    else
        hutch_doctor_found(ret, DOCTOR_OK, "can be mounted in a user namespace");
    if (ret->status == DOCTOR_MISSING)
        ret->status = DOCTOR_DEGRADED; /* images that hutch builds have every mount point */
}

/* The nearest directory that is there. */
static int open_existing(const char *path)
{
    char part[PATH_MAX];
    int fd;

    snprintf(part, sizeof(part), "%s", path);
    while ((fd = open(part, O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0 && errno == ENOENT) {
        char *slash = strrchr(part, '/');

        if (!slash || strcmp(part, "/") == 0)
            return -1;
        slash[slash == part] = '\0';
    }
    return fd;
}

void hutch_probe_idmapped(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP };
    int dir, tree, userns;
    struct hutch_err err;

    if (!host->has_plan || !host->plan.is_mapped_away) {
        hutch_doctor_found(ret, DOCTOR_NOT_NEEDED, "files belong to the caller anyway; only root's runs need it");
        return;
    }
    dir = open_existing(host->home ? host->home : "/");
    tree = dir < 0 ? -1 : open_tree(dir, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0) {
        hutch_doctor_failed(host, ret, errno, "take over hutch's home");
        return;
    }
    if (hutch_userns_open_idmap(0, 0, &host->plan, &userns, &err) < 0) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "%s", err.msg);
        return;
    }
    attr.userns_fd = (__u64)userns;
    if (mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) == 0) {
        hutch_doctor_found(ret, DOCTOR_OK, "work on the file system of hutch's home");
        return;
    }
    hutch_doctor_found(ret, DOCTOR_DEGRADED, "%s%s", strerrordesc_np(errno),
                       errno == EINVAL ? " (the file system of hutch's home cannot do it)" : "");
}
