#include "sandbox/mounts.h"

#include "sandbox/bare_proc.h"
#include "sandbox/fd.h"
#include "sandbox/hosts.h"
#include "sandbox/hostroot.h"
#include "sandbox/log.h"
#include "sandbox/overlay.h"
#include "sandbox/procs.h"
#include "sandbox/spec.h"
#include "sandbox/userns.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>

#define EVERY_MOUNT         (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

#define SKELETON_MIN_BYTES  (1u << 20) /* room for mount points, links and the files of the host's /etc, */
#define SKELETON_MIN_INODES 1024u      /* however little the sandbox may write */

_Static_assert(SPEC_MAX_LAYERS + 2 <= OVERLAY_MAX, "a skeleton, all layers and the image are one overlay");

/* Where the new root hangs until pivot_root(2) moves it: any directory that every host has. */
static const char *const attach_points[] = { "/tmp", "/mnt", "/proc" };

static __u64 attributes(unsigned flags)
{
    return MOUNT_ATTR_NOSUID | (flags & MOUNT_DEVICE ? MOUNT_ATTR_NOEXEC : MOUNT_ATTR_NODEV) |
           (flags & MOUNT_RDONLY ? MOUNT_ATTR_RDONLY : 0) | (flags & MOUNT_NOEXEC ? MOUNT_ATTR_NOEXEC : 0);
}

static int restrict_mount(int fd, __u64 attrs, unsigned at_flags, const char *what, struct hutch_err *err)
{
    struct mount_attr attr = { .attr_set = attrs };

    if (mount_setattr(fd, "", AT_EMPTY_PATH | at_flags, &attr, sizeof(attr)) < 0)
        return hutch_err_set(err, errno, "restrict the mount '%s'", what);
    return 0;
}

/* A detached copy of what is mounted at @path, with all that is mounted below it: leaving that out would uncover what
 * the host hides, and the kernel refuses it to ordinary users. */
static int open_bind(const char *path, unsigned flags, int *ret_fd, struct hutch_err *err)
{
    /* The caller has resolved the path; a link that stands in it now was put there since, by code in another sandbox
     * maybe. */
    struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };
    auto_fd place = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
    auto_fd fd =
        place < 0 ? -1 : open_tree(place, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    /* Private: a copy made in the host's namespace stays a peer of its original else, and pivot_root(2) refuses
     * those. */
    struct mount_attr attr = { .attr_set = attributes(flags), .propagation = MS_PRIVATE };

    if (fd < 0)
        return hutch_err_set(err, errno, "open '%s'", path);
    if (mount_setattr(fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0)
        return hutch_err_set(err, errno, "restrict the mount '%s'", path);
    *ret_fd = hutch_fd_take(&fd);
    return 0;
}

int hutch_mounts_map_owner(int fd, const char *path, const struct id_plan *plan, bool *ret_lacks_map,
                           struct hutch_err *err)
{
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP };
    auto_fd userns = -1;
    struct stat st;

    if (fstat(fd, &st) < 0)
        return hutch_err_set(err, errno, "look at '%s'", path);
    if (st.st_uid == plan->host_uid)
        return 0;
    if (hutch_userns_open_idmap(st.st_uid, st.st_gid, plan, &userns, err) < 0)
        return -1;
    attr.userns_fd = (__u64)userns;
    if (mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0) {
        if (errno != EINVAL && errno != EOPNOTSUPP && errno != EPERM)
            return hutch_err_set(err, errno, "map the owner of '%s' (uid %u) to the sandbox's user", path, st.st_uid);
        /* Not every file system can; the directory's own permissions then decide. */
        hutch_log_debug("mounts: '%s' cannot be id-mapped: %s", path, strerrordesc_np(errno));
        *ret_lacks_map = true;
    }
    return 0;
}

int hutch_mounts_open(const char *path, unsigned flags, const struct id_plan *plan, int *ret_fd, bool *ret_lacks_map,
                      struct hutch_err *err)
{
    auto_fd fd = -1;

    if (open_bind(path, flags, &fd, err) < 0)
        return -1;
    if (plan->is_mapped_away && (flags & MOUNT_IDMAP) &&
        hutch_mounts_map_owner(fd, path, plan, ret_lacks_map, err) < 0)
        return -1;
    *ret_fd = hutch_fd_take(&fd);
    return 0;
}

/* An ordinary user can only mount what the child finds by path in a mount namespace of its own, so a directory that the
 * caller holds open already is held to be the same instead. */
static int check_identity(int fd, const struct sandbox_mount *m, struct hutch_err *err)
{
    struct stat st;

    if (m->ino == 0)
        return 0;
    if (fstat(fd, &st) < 0)
        return hutch_err_set(err, errno, "look at '%s'", m->source);
    if (st.st_dev != m->dev || st.st_ino != m->ino)
        return hutch_err_set(err, 0, "'%s' was replaced while the sandbox was made", m->source);
    return 0;
}

int hutch_mounts_open_sources(const struct sandbox_spec *spec, const struct id_plan *plan,
                              struct mount_sources *sources, struct hutch_err *err)
{
    /* Where the root can be written, the sandbox's user owns what is in it. */
    const unsigned map = hutch_spec_find_changes(spec) ? MOUNT_IDMAP : 0;

    if (spec->root_kind == ROOT_DIR && hutch_mounts_open(spec->rootfs_path, MOUNT_RDONLY | map, plan, &sources->root_fd,
                                                         &sources->lacks_map, err) < 0)
        return hutch_err_wrap(err, "use the root tree");
    for (size_t i = 0; i < spec->n_mounts; i++) {
        const struct sandbox_mount *m = &spec->mounts[i];

        if (m->kind != MOUNT_BIND)
            continue;
        if (m->tree_fd >= 0) {
            if (check_identity(m->tree_fd, m, err) < 0)
                return -1;
            continue;
        }
        if (hutch_mounts_open(m->source, m->flags | (m->flags & MOUNT_LAYER ? map : 0), plan, &sources->bind_fds[i],
                              &sources->lacks_map, err) < 0) {
            if ((m->flags & MOUNT_OPTIONAL) && err->errnum == ENOENT)
                continue;
            return -1;
        }
        if (check_identity(sources->bind_fds[i], m, err) < 0)
            return -1;
    }
    sources->are_open = true;
    return 0;
}

int hutch_mounts_sources_init(const struct sandbox_spec *spec, struct mount_sources *ret, struct hutch_err *err)
{
    *ret = (struct mount_sources)MOUNT_SOURCES_INIT;
    ret->bind_fds = malloc((spec->n_mounts + 1) * sizeof(*ret->bind_fds));
    if (!ret->bind_fds)
        return hutch_err_set(err, ENOMEM, "list the mounts");
    ret->n = spec->n_mounts;
    for (size_t i = 0; i < ret->n; i++)
        ret->bind_fds[i] = -1;
    return 0;
}

void hutch_mounts_sources_done(struct mount_sources *sources)
{
    for (size_t i = 0; sources->bind_fds && i < sources->n; i++)
        hutch_fd_closep(&sources->bind_fds[i]);
    free(sources->bind_fds);
    hutch_fd_closep(&sources->root_fd);
    hutch_fd_closep(&sources->outer_proc_fd);
    *sources = (struct mount_sources)MOUNT_SOURCES_INIT;
}

/* A new, detached file system. @options: NULL-terminated key, value, key, value. @attrs: all that it gets. */
static int make_fs(const char *type, const char *const *options, __u64 attrs, int *ret_fd, struct hutch_err *err)
{
    auto_fd fs = fsopen(type, FSOPEN_CLOEXEC);
    auto_fd fd = -1;

    if (fs < 0)
        return hutch_err_set(err, errno, "open the file system type '%s'", type);
    for (; options && options[0]; options += 2)
        if (fsconfig(fs, FSCONFIG_SET_STRING, options[0], options[1], 0) < 0)
            return hutch_err_set(err, errno, "set %s=%s on a new %s", options[0], options[1], type);
    if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return hutch_err_set(err, errno, "create a %s", type);
    fd = fsmount(fs, FSMOUNT_CLOEXEC, (unsigned)attrs);
    if (fd < 0)
        return hutch_err_set(err, errno, "make a mount of a new %s%s", type,
                             strcmp(type, "proc") == 0 && errno == EPERM
                                 ? " (the host's /proc is partly covered, as inside a container: the kernel then "
                                   "refuses a fresh one)" : "");
    *ret_fd = hutch_fd_take(&fd);
    return 0;
}

static int make_tmpfs(uint64_t bytes, uint64_t inodes, mode_t mode, __u64 attrs, int *ret_fd, struct hutch_err *err)
{
    char size_text[32], inodes_text[32], mode_text[16];
    const char *options[] = { "size", size_text, "nr_inodes", inodes_text, "mode", mode_text, NULL };

    if (!bytes)
        bytes = MOUNTS_DEFAULT_TMPFS_BYTES;
    if (!inodes)
        inodes = bytes / 4096 + 16;
    snprintf(size_text, sizeof(size_text), "%" PRIu64, bytes);
    snprintf(inodes_text, sizeof(inodes_text), "%" PRIu64, inodes);
    snprintf(mode_text, sizeof(mode_text), "%o", mode ? mode : 0755);
    return make_fs("tmpfs", options, EVERY_MOUNT | attrs, ret_fd, err);
}

int hutch_mounts_make_memory(uint64_t bytes, uint64_t inodes, mode_t mode, int *ret_fd, struct hutch_err *err)
{
    return make_tmpfs(bytes, inodes, mode, 0, ret_fd, err);
}

static int attach(int fd, int target_fd, const char *target, struct hutch_err *err)
{
    if (move_mount(fd, "", target_fd, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return hutch_err_set(err, errno, "mount on '%s'%s", target,
                             errno == ENOSPC   ? " (the limit is fs.mount-max, not the disk)"
                             : errno == EINVAL ? " (a file covers only a file, a directory only a directory)" : "");
    return 0;
}

/* Resolves @path as the code inside will: never out of @root, whatever links the image holds. */
static int open_in_root(int root, const char *path, __u64 flags)
{
    struct open_how how = { .flags = flags | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };

    return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

/* Opens the place @path for mounting, making directories (and with @is_dir false an empty file at the end) as
 * needed. */
static int open_target(int root, const char *path, bool is_dir, int *ret_fd, struct hutch_err *err)
{
    char part[PATH_MAX];
    int fd = open_in_root(root, path, O_PATH);

    if (fd < 0 && errno == ENOENT && strlen(path) < sizeof(part)) {
        for (size_t len = 1; path[len - 1]; len++) {
            auto_fd parent = -1, made = -1;
            bool is_last = path[len] == '\0';
            char *name;

            if (path[len] != '/' && !is_last)
                continue;
            memcpy(part, path, len);
            part[len] = '\0';
            made = open_in_root(root, part, O_PATH);
            if (made >= 0)
                continue;
            name = strrchr(part, '/');
            *name++ = '\0';
            parent = open_in_root(root, part[0] ? part : "/", O_PATH | O_DIRECTORY);
            if (parent < 0)
                return hutch_err_set(err, errno, "make the mount point '%s'", path);
            if (is_last && !is_dir) {
                made = openat(parent, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0644);
                if (made < 0)
                    return hutch_err_set(err, errno, "make the mount point '%s'", path);
            } else if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST) {
                return hutch_err_set(err, errno, "make the mount point '%s'%s", path,
                                     errno == EROFS ? " (the image has no such directory)" : "");
            }
        }
        fd = open_in_root(root, path, O_PATH);
    }
    if (fd < 0)
        return hutch_err_set(err, errno, "open the mount point '%s'", path);
    *ret_fd = fd;
    return 0;
}

static int attach_at(int root, int fd, const char *path, bool is_dir, struct hutch_err *err)
{
    auto_fd target = -1;

    if (open_target(root, path, is_dir, &target, err) < 0)
        return -1;
    return attach(fd, target, path, err);
}

/* Pseudo-terminals of the sandbox's own, MOUNTS_MAX_PTYS at most: IPython's "!command" runs in one. Nothing outside can
 * open them, and none of the host's is here. The one file system whose devices work: the kernel makes nothing else in
 * it, devpts(5). */
static int mount_pts(int dev, struct hutch_err *err)
{
    static const char *const options[] = { "mode", "0620", "ptmxmode", "0666", "max", MOUNTS_MAX_PTYS, NULL };
    auto_fd pts = -1, place = -1;

    if (mkdirat(dev, "pts", 0755) < 0 || symlinkat("pts/ptmx", dev, "ptmx") < 0)
        return hutch_err_set(err, errno, "make '/dev/pts'");
    if (make_fs("devpts", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, &pts, err) < 0)
        return -1;
    place = openat(dev, "pts", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (place < 0)
        return hutch_err_set(err, errno, "open '/dev/pts'");
    return attach(pts, place, "/dev/pts", err);
}

static bool is_device_below(const struct sandbox_mount *m, const char *dev)
{
    return m->kind == MOUNT_BIND && (m->flags & MOUNT_DEVICE) && hutch_spec_path_is_below(m->target, dev);
}

/* The places of the host's nodes that are to be in @dev, which is mounted at @target: they come later, when nothing can
 * be made there any more. */
static int make_device_places(const struct sandbox_spec *spec, const char *target, int dev, struct hutch_err *err)
{
    for (size_t i = 0; i < spec->n_mounts; i++) {
        auto_fd place = -1;

        if (is_device_below(&spec->mounts[i], target) &&
            open_target(dev, spec->mounts[i].target + strlen(target), false, &place, err) < 0)
            return -1;
    }
    return 0;
}

static uint64_t count_device_places(const struct sandbox_spec *spec, const char *target)
{
    uint64_t n = 0;

    for (size_t i = 0; i < spec->n_mounts; i++)
        if (is_device_below(&spec->mounts[i], target))
            n += 2; /* it, and a directory for it */
    return n;
}

/* /dev: what a program needs and no driver behind it, but for what the spec names. No tty, which would be the terminal
 * that hutch was started on. */
static int build_dev(const struct sandbox_spec *spec, int root, const struct sandbox_mount *m, struct hutch_err *err)
{
    static const char *const devices[] = { "null", "zero", "full", "random", "urandom" };
    static const struct { const char *name, *text; } links[] = {
        { "fd", "/proc/self/fd" },       { "stdin", "/proc/self/fd/0" },
        { "stdout", "/proc/self/fd/1" }, { "stderr", "/proc/self/fd/2" },
    };
    auto_fd dev = -1, shm = -1;

    if (make_tmpfs(65536, 64 + count_device_places(spec, m->target), 0755, MOUNT_ATTR_NOEXEC, &dev, err) < 0 ||
        attach_at(root, dev, m->target, true, err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
        char host[32];
        auto_fd place = openat(dev, devices[i], O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
        auto_fd node = -1, place_path = -1;
        /* Read-only is the inode, which is the host's; the device behind it can be written all the same. */
        struct mount_attr attr = { .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_RDONLY };
        struct stat st;

        snprintf(host, sizeof(host), "/dev/%s", devices[i]);
        node = open_tree(AT_FDCWD, host, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        if (place < 0 || node < 0 || fstat(node, &st) < 0)
            return hutch_err_set(err, errno, "open '%s'", host);
        if (!S_ISCHR(st.st_mode))
            return hutch_err_set(err, 0, "'%s' of this host is not a device", host);
        if (mount_setattr(node, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
            return hutch_err_set(err, errno, "restrict '%s'", host);
        place_path = openat(dev, devices[i], O_PATH | O_CLOEXEC | O_NOFOLLOW);
        if (place_path < 0 || attach(node, place_path, host, err) < 0)
            return place_path < 0 ? hutch_err_set(err, errno, "open '%s'", host) : -1;
    }
    for (size_t i = 0; i < ARRAY_SIZE(links); i++)
        if (symlinkat(links[i].text, dev, links[i].name) < 0)
            return hutch_err_set(err, errno, "link '/dev/%s'", links[i].name);
    if (mkdirat(dev, "shm", 0755) < 0)
        return hutch_err_set(err, errno, "make '/dev/shm'");
    if (make_tmpfs(m->size_bytes, m->inodes, 01777, MOUNT_ATTR_NOEXEC, &shm, err) < 0)
        return -1;
    {
        auto_fd place = openat(dev, "shm", O_PATH | O_DIRECTORY | O_CLOEXEC);

        if (place < 0)
            return hutch_err_set(err, errno, "open '/dev/shm'");
        if (attach(shm, place, "/dev/shm", err) < 0)
            return -1;
    }
    if (mount_pts(dev, err) < 0 || make_device_places(spec, m->target, dev, err) < 0)
        return -1;
    return restrict_mount(dev, MOUNT_ATTR_RDONLY, 0, m->target, err);
}

/* The same link already there is fine: add_missing_targets() may have made it. */
static int make_link(int root, const struct sandbox_mount *m, struct hutch_err *err)
{
    char parent[PATH_MAX], text[PATH_MAX];
    const char *slash = strrchr(m->target, '/');
    auto_fd dir = -1;
    ssize_t n;

    if (!slash[1] || (size_t)(slash - m->target) >= sizeof(parent))
        return hutch_err_set(err, 0, "'%s' is no place for a link", m->target);
    snprintf(parent, sizeof(parent), "%.*s", slash == m->target ? 1 : (int)(slash - m->target), m->target);
    if (open_target(root, parent, true, &dir, err) < 0)
        return -1;
    if (symlinkat(m->source, dir, slash + 1) == 0)
        return 0;
    if (errno == EEXIST) {
        n = readlinkat(dir, slash + 1, text, sizeof(text));
        if (n == (ssize_t)strlen(m->source) && memcmp(text, m->source, (size_t)n) == 0)
            return 0;
        errno = EEXIST;
    }
    return hutch_err_set(err, errno, "link '%s' to '%s'", m->target, m->source);
}

bool hutch_mounts_has_place(const struct sandbox_spec *spec, const char *path)
{
    for (size_t i = 0; i < spec->n_mounts; i++)
        if (spec->mounts[i].kind == MOUNT_TMPFS && hutch_spec_path_is_below(path, spec->mounts[i].target))
            return true;
    return false;
}

/* Puts the spec's files that belong below @m into it, by its own descriptor: by path, a link in the image could lead to
 * some other mount, on the host. */
static int write_files(const struct sandbox_spec *spec, const struct sandbox_mount *m, int mount_fd,
                       struct hutch_err *err)
{
    for (size_t i = 0; i < spec->n_files; i++) {
        const struct sandbox_file *f = &spec->files[i];
        auto_fd made = -1, fd = -1;
        char self[32];

        if (!hutch_spec_path_is_below(f->target, m->target))
            continue;
        if (open_target(mount_fd, f->target + strlen(m->target), false, &made, err) < 0)
            return hutch_err_wrap(err, "write '%s'", f->target);
        snprintf(self, sizeof(self), "/proc/self/fd/%d", made);
        fd = open(self, O_WRONLY | O_TRUNC | O_CLOEXEC);
        if (fd < 0 || hutch_fd_write_all(fd, f->data, f->len) < 0 || fchmod(fd, f->mode) < 0)
            return hutch_err_set(err, errno, "write '%s'", f->target);
    }
    return 0;
}

/* A procfs of the sandbox's own pid namespace or, where the kernel refuses and the policy takes it, what bare_proc.h
 * has. The procfs around the sandbox never comes inside: init alone holds it, to count what runs. */
static int build_proc(const struct sandbox_spec *spec, int root, const struct sandbox_mount *m,
                      struct mount_sources *sources, struct hutch_err *err)
{
    auto_fd fd = -1;

    /* While the host's own proc is in sight, or the kernel refuses (mount_too_revealing). */
    if (make_fs("proc", NULL, EVERY_MOUNT | MOUNT_ATTR_NOEXEC, &fd, err) == 0)
        return attach_at(root, fd, m->target, true, err);
    if (err->errnum != EPERM)
        return -1;
    if (spec->layers[LAYER_OWN_PROC] == NEED_REQUIRE)
        return hutch_err_wrap(err, "the policy requires it ('own_proc')");
    sources->proc_errnum = err->errnum;
    sources->outer_proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (sources->outer_proc_fd < 0)
        return hutch_err_set(err, errno, "open '/proc'");
    if (hutch_procs_check_mount(sources->outer_proc_fd, err) < 0)
        return -1;
    if (make_tmpfs(BARE_PROC_BYTES, BARE_PROC_INODES, 0555, 0, &fd, err) < 0 ||
        hutch_bare_proc_fill(fd, sources->outer_proc_fd, err) < 0 ||
        restrict_mount(fd, EVERY_MOUNT | MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC, 0, m->target, err) < 0)
        return -1;
    return attach_at(root, fd, m->target, true, err);
}

/* @slot: the mount's source, or -1; a tmpfs leaves its own descriptor there. */
static int build_one(const struct sandbox_spec *spec, int root, const struct sandbox_mount *m, int given_fd, int *slot,
                     struct mount_sources *sources, struct hutch_err *err)
{
    auto_fd fd = -1;
    struct stat st;

    switch (m->kind) {
    case MOUNT_DEV:
        return build_dev(spec, root, m, err);
    case MOUNT_SYMLINK:
        return make_link(root, m, err);
    case MOUNT_PROC:
        return build_proc(spec, root, m, sources, err);
    case MOUNT_TMPFS:
        /* Read-only comes at the end, when our own files are in it. */
        if (make_tmpfs(m->size_bytes, m->inodes, m->mode, attributes(m->flags & ~MOUNT_RDONLY), &fd, err) < 0 ||
            attach_at(root, fd, m->target, true, err) < 0 || write_files(spec, m, fd, err) < 0)
            return -1;
        *slot = hutch_fd_take(&fd);
        return 0;
    case MOUNT_BIND:
        if (given_fd < 0)
            return 0; /* optional, and not there */
        if (m->tree_fd >= 0 && restrict_mount(given_fd, attributes(m->flags), AT_RECURSIVE, m->target, err) < 0)
            return -1;
        if (fstat(given_fd, &st) < 0)
            return hutch_err_set(err, errno, "look at '%s'", m->source);
        return attach_at(root, given_fd, m->target, S_ISDIR(st.st_mode), err);
    }
    return hutch_err_set(err, 0, "mount kind %d is unknown", (int)m->kind);
}

static int attach_root(int root, struct hutch_err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(attach_points); i++)
        if (move_mount(root, "", AT_FDCWD, attach_points[i], MOVE_MOUNT_F_EMPTY_PATH) == 0)
            return 0;
    return hutch_err_set(err, errno, "attach the new root to '%s'", attach_points[0]);
}

/* The detached mount to attach for mount @i, or -1. */
static int source_of(const struct sandbox_spec *spec, const struct mount_sources *sources, size_t i)
{
    return spec->mounts[i].tree_fd >= 0 ? spec->mounts[i].tree_fd : sources->bind_fds[i];
}

/* Whether the image lacks the place for mount @i, and no earlier mount brings a directory where it can be made. */
static bool lacks_target(const struct sandbox_spec *spec, int root, size_t i)
{
    auto_fd fd = -1;

    for (size_t j = 0; j < i; j++)
        if (!(spec->mounts[j].flags & MOUNT_OF_ROOT) &&
            hutch_spec_path_is_below(spec->mounts[i].target, spec->mounts[j].target))
            return false;
    fd = open_in_root(root, spec->mounts[i].target, O_PATH | (spec->mounts[i].kind == MOUNT_SYMLINK ? O_NOFOLLOW : 0));
    return fd < 0 && errno == ENOENT;
}

/* Makes in @skeleton the mount points that the image lacks. */
static int add_missing_targets(const struct sandbox_spec *spec, const struct mount_sources *sources, int root,
                               int skeleton, bool *ret_any, struct hutch_err *err)
{
    for (size_t i = 0; i < spec->n_mounts; i++) {
        const struct sandbox_mount *m = &spec->mounts[i];
        auto_fd place = -1;
        struct stat st;
        bool is_dir = true;

        if ((m->flags & MOUNT_OF_ROOT) || !lacks_target(spec, root, i))
            continue;
        *ret_any = true;
        if (m->kind == MOUNT_SYMLINK) {
            if (make_link(skeleton, m, err) < 0)
                return -1;
            continue;
        }
        if (m->kind == MOUNT_BIND && fstat(source_of(spec, sources, i), &st) == 0)
            is_dir = S_ISDIR(st.st_mode);
        if (open_target(skeleton, m->target, is_dir, &place, err) < 0)
            return -1;
    }
    return 0;
}

/* What df(1) and statfs(2) say of "/": as much as the sandbox may write, below /mnt/data; where that has no limit, what
 * the image's disk has left. Programs refuse to work where they see less than they want. Nothing is ever written there,
 * because the root is read-only when the first foreign code runs, so the size of the file system bounds nothing. */
static int make_skeleton(const struct sandbox_spec *spec, int image, int *ret_fd, struct hutch_err *err)
{
    uint64_t bytes = spec->limits[LIMIT_DATA_SIZE], inodes = spec->limits[LIMIT_DATA_FILES];
    struct statfs disk;

    if (!bytes && (image >= 0 ? fstatfs(image, &disk) : statfs("/usr", &disk)) == 0)
        bytes = (uint64_t)disk.f_bavail * (uint64_t)disk.f_bsize;
    if (bytes < SKELETON_MIN_BYTES)
        bytes = SKELETON_MIN_BYTES;
    if (inodes < SKELETON_MIN_INODES)
        inodes = inodes ? SKELETON_MIN_INODES : bytes / 4096;
    return make_tmpfs(bytes, inodes, 0755, 0, ret_fd, err);
}

/* Reads what one tree of the image has as /etc/hosts. False: look into the one below. *@ret_len is -1 where its /etc is
 * no directory, so that nothing may be laid over it. A link, a device or what not everybody may read has no
 * text. */
static bool read_hosts(int tree, char *buf, ssize_t *ret_len)
{
    auto_fd etc = openat(tree, "etc", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), fd = -1;
    struct stat st;

    if (etc < 0) {
        *ret_len = errno == ENOENT ? 0 : -1;
        return errno != ENOENT;
    }
    fd = openat(etc, "hosts", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno != ENOENT;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & S_IROTH))
        *ret_len = hutch_fd_read_full(fd, buf, HOSTS_MAX_GIVEN + 1);
    if (*ret_len < 0)
        *ret_len = 0;
    return true;
}

/* Makes @dir's /etc/hosts, where the image can have one. @trees: those of the image, the topmost first. */
static int write_hosts(const int *trees, size_t n_trees, int dir, bool *ret_made, struct hutch_err *err)
{
    char given[HOSTS_MAX_GIVEN + 1], text[HOSTS_MAX];
    struct utsname names;
    ssize_t len = 0;
    bool has_ipv6;
    auto_fd fd = -1;

    *ret_made = false;
    for (size_t i = 0; i < n_trees; i++)
        if (read_hosts(trees[i], given, &len))
            break;
    if (len < 0)
        return 0;
    /* The name that programs see: what is around hutch may have forbidden to set the policy's. */
    if (uname(&names) < 0)
        return hutch_err_set(err, errno, "read the host name");
    if (mkdirat(dir, "etc", 0755) < 0 && errno != EEXIST)
        return hutch_err_set(err, errno, "make '/etc'");
    fd = openat(dir, "etc/hosts", O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 && errno == EEXIST) /* the place for a mount of the policy's */
        return 0;
    /* A kernel without IPv6 has no ::1. That is looked up where it matters: it takes as long as making the file. */
    has_ipv6 = !hutch_hosts_lack_ipv6(given, (size_t)len) || access("/proc/net/if_inet6", F_OK) == 0;
    len = (ssize_t)hutch_hosts_format(given, (size_t)len, names.nodename, has_ipv6, text);
    if (fd < 0 || hutch_fd_write_all(fd, text, (size_t)len) < 0)
        return hutch_err_set(err, errno, "write '/etc/hosts'");
    *ret_made = true;
    return 0;
}

/* Without an overlay, where the image has such a file. */
static int cover_hosts(int skeleton, int root, struct hutch_err *err)
{
    auto_fd etc = openat(root, "etc", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    auto_fd place = etc < 0 ? -1 : openat(etc, "hosts", O_PATH | O_NOFOLLOW | O_CLOEXEC);
    auto_fd fd = -1;
    struct stat st;

    if (place < 0 || fstat(place, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    fd = open_tree(skeleton, "etc/hosts", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (fd < 0)
        return hutch_err_set(err, errno, "open the sandbox's '/etc/hosts'");
    if (restrict_mount(fd, EVERY_MOUNT | MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC, 0, "/etc/hosts", err) < 0)
        return -1;
    return attach(fd, place, "/etc/hosts", err);
}

/* Attaches the layers of the image and adds them to @dirs, the topmost first; they stay the sources'. Returns how many,
 * or -1. */
static int attach_layers(const struct sandbox_spec *spec, const struct mount_sources *sources, bool are_given,
                         int dirs[SPEC_MAX_LAYERS], struct hutch_err *err)
{
    int n = 0;

    for (size_t i = spec->n_mounts; i-- > 0;) {
        if (!(spec->mounts[i].flags & MOUNT_LAYER))
            continue;
        if (n == SPEC_MAX_LAYERS)
            return hutch_err_set(err, E2BIG, "lay more than %d layers over an image", SPEC_MAX_LAYERS);
        dirs[n] = source_of(spec, sources, i);
        if (attach_root(dirs[n], err) < 0 || (are_given && hutch_overlay_check(dirs[n], err) < 0))
            return hutch_err_wrap(err, "lay '%s' over the image", spec->mounts[i].source);
        n++;
    }
    return n;
}

/* Attaches the directory that gets the changes of the root. *@ret_fd stays the sources'; -1: there is none. */
static int attach_changes(const struct sandbox_spec *spec, const struct mount_sources *sources, int *ret_fd,
                          struct hutch_err *err)
{
    const struct sandbox_mount *m = hutch_spec_find_changes(spec);

    *ret_fd = m ? source_of(spec, sources, (size_t)(m - spec->mounts)) : -1;
    return m && attach_root(*ret_fd, err) < 0
               ? hutch_err_wrap(err, "use '%s' for the changes of the root", m->source) : 0;
}

/* What it takes an overlay for. */
static const char *why_overlay(bool is_written, bool has_layers, bool lacks_any)
{
    return is_written  ? "keep what is written to the root apart from it"
           : has_layers ? "lay the layers of an extended image over it"
           : lacks_any ? "add mount points that the image lacks"
                       : "give the image's files inodes of the sandbox's own, as the policy requires";
}

/* The image as the new root, attached: in a read-only overlay below its layers, which are below a small tree with
 * the mount points that the image lacks. Where there can be no overlay, an image that has no layers and lacks no
 * mount point is used as it is. @are_given: the sources are the host's own mounts, opened by root. */
static int lay_image(const struct sandbox_spec *spec, struct mount_sources *sources, bool are_given, int *ret_root,
                     struct hutch_err *err)
{
    enum sandbox_need need = spec->layers[LAYER_OWN_INODES];
    auto_fd skeleton = -1, overlay = -1, image = hutch_fd_take(&sources->root_fd);
    int dirs[SPEC_MAX_LAYERS + 2], n_layers, changes;
    struct hutch_err why;
    bool lacks_any = false, has_hosts = false;
    int checked;

    if (make_skeleton(spec, image, &skeleton, err) < 0 ||
        add_missing_targets(spec, sources, image, skeleton, &lacks_any, err) < 0)
        return -1;
    /* overlayfs takes attached layers only, overlay.h. A mount that root's hutch opened in the host's namespace becomes
     * ours by it. */
    if (attach_root(skeleton, err) < 0 || attach_root(image, err) < 0)
        return -1;
    /* Before the next one is attached, on top of it. */
    checked = are_given ? hutch_overlay_check(image, &why) : 0;
    n_layers = attach_layers(spec, sources, are_given, dirs + 1, err);
    if (n_layers < 0)
        return -1;
    if (attach_changes(spec, sources, &changes, err) < 0)
        return -1;
    dirs[0] = skeleton;
    dirs[n_layers + 1] = image;
    /* What installs programs finds the image's own file: a change of it would be taken into the layer. */
    if (changes < 0 && write_hosts(dirs + 1, (size_t)n_layers + 1, skeleton, &has_hosts, err) < 0)
        return -1;
    if (lacks_any || n_layers > 0 || changes >= 0 || need != NEED_OFF) {
        if (checked < 0)
            *err = why;
        if (checked == 0 && hutch_overlay_make(dirs, (size_t)n_layers + 2, changes, &overlay, err) == 0) {
            *ret_root = hutch_fd_take(&overlay);
            return attach_root(*ret_root, err);
        }
        if (n_layers > 0 || lacks_any || changes >= 0 || need == NEED_REQUIRE)
            return hutch_err_wrap(err, "%s (needs overlayfs in user namespaces, Linux 5.11%s)",
                                  why_overlay(changes >= 0, n_layers > 0, lacks_any),
                                  changes >= 0 ? ", and a disk that can be its upper layer: no other overlay" : "");
        hutch_log_debug("mounts: the image's inodes are shared: %s", err->msg);
    }
    sources->shares_inodes = true;
    sources->overlay_errnum = need == NEED_OFF ? 0 : err->errnum;
    if (has_hosts && cover_hosts(skeleton, image, err) < 0)
        return -1;
    *ret_root = hutch_fd_take(&image);
    return 0;
}

/* A new root of chosen trees of the host, each with inodes of the sandbox's own where there can be overlays. */
static int lay_host(const struct sandbox_spec *spec, struct mount_sources *sources, int *ret_root,
                    struct hutch_err *err)
{
    bool wants_overlay = spec->layers[LAYER_OWN_INODES] != NEED_OFF, has_hosts;
    auto_fd root = -1, empty = -1;

    if (hutch_spec_find_changes(spec))
        return hutch_err_set(err, 0, "the root is of the host's directories, which take no changes: use an image");
    if (make_skeleton(spec, -1, &root, err) < 0)
        return -1;
    if (wants_overlay &&
        (make_tmpfs(4096, 2, 0755, MOUNT_ATTR_RDONLY, &empty, err) < 0 || attach_root(empty, err) < 0))
        return -1;
    if (attach_root(root, err) < 0 ||
        hutch_hostroot_build(root, spec->uid_inside, spec->gid_inside, empty, &sources->overlay_errnum, err) < 0 ||
        write_hosts(NULL, 0, root, &has_hosts, err) < 0)
        return -1;
    if (sources->overlay_errnum && spec->layers[LAYER_OWN_INODES] == NEED_REQUIRE)
        return hutch_err_set(err, sources->overlay_errnum, "give the host's files inodes of the sandbox's own, as the "
                                                           "policy requires: create an overlay");
    sources->shares_inodes = !wants_overlay || sources->overlay_errnum;
    *ret_root = hutch_fd_take(&root);
    return 0;
}

/* What init cannot reach, the worker with its uid and no capabilities cannot either; what is not there needs no
 * cover. */
static bool is_out_of_reach(int errnum)
{
    return errnum == ENOENT || errnum == ENOTDIR || errnum == EACCES;
}

static int protect(int root, const char *path, struct hutch_err *err)
{
    auto_fd target = open_in_root(root, path, O_PATH);
    auto_fd fd = -1;

    if (target < 0)
        return is_out_of_reach(errno) ? 0 : hutch_err_set(err, errno, "open '%s'", path);
    fd = open_tree(target, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (fd < 0)
        return hutch_err_set(err, errno, "open '%s'", path);
    if (restrict_mount(fd, EVERY_MOUNT | MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC, AT_RECURSIVE, path, err) < 0)
        return -1;
    return attach(fd, target, path, err);
}

/* The two things that masked paths are covered with: once made and attached, further covers are copies. */
struct covers {
    int dir_fd, file_fd; /* owned */
};

static int make_cover(bool is_dir, int *ret_fd, struct hutch_err *err)
{
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_RDONLY };
    auto_fd fd = -1;

    if (is_dir)
        return make_tmpfs(4096, 2, 0555, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC, ret_fd, err);
    fd = open_tree(AT_FDCWD, "/dev/null", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
        return hutch_err_set(err, errno, "open '/dev/null'");
    *ret_fd = hutch_fd_take(&fd);
    return 0;
}

static int mask(int root, const char *path, struct covers *covers, struct hutch_err *err)
{
    auto_fd target = open_in_root(root, path, O_PATH);
    auto_fd copy = -1;
    struct stat st;
    int *cover;

    if (target < 0)
        return is_out_of_reach(errno) ? 0 : hutch_err_set(err, errno, "open '%s'", path);
    if (fstat(target, &st) < 0)
        return hutch_err_set(err, errno, "look at '%s'", path);
    cover = S_ISDIR(st.st_mode) ? &covers->dir_fd : &covers->file_fd;
    if (*cover < 0) {
        if (make_cover(S_ISDIR(st.st_mode), cover, err) < 0)
            return -1;
        return attach(*cover, target, path, err);
    }
    copy = open_tree(*cover, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (copy < 0)
        return hutch_err_set(err, errno, "copy a cover");
    return attach(copy, target, path, err);
}

static int cover_paths(const struct sandbox_spec *spec, int root, struct hutch_err *err)
{
    struct covers covers = { -1, -1 };
    int rc = 0;

    for (char **p = spec->readonly_paths; rc == 0 && p && *p; p++)
        if (protect(root, *p, err) < 0)
            rc = hutch_err_wrap(err, "make '%s' read-only", *p);
    for (char **p = spec->masked_paths; rc == 0 && p && *p; p++)
        if (mask(root, *p, &covers, err) < 0)
            rc = hutch_err_wrap(err, "mask '%s'", *p);
    hutch_fd_closep(&covers.dir_fd);
    hutch_fd_closep(&covers.file_fd);
    return rc;
}

static int seal_tmpfs(const struct sandbox_spec *spec, const struct mount_sources *sources, struct hutch_err *err)
{
    for (size_t i = 0; i < spec->n_mounts; i++) {
        const struct sandbox_mount *m = &spec->mounts[i];

        if (m->kind == MOUNT_TMPFS && (m->flags & MOUNT_RDONLY) &&
            restrict_mount(sources->bind_fds[i], MOUNT_ATTR_RDONLY, 0, m->target, err) < 0)
            return -1;
    }
    return 0;
}

static int enter_root(int root, struct hutch_err *err)
{
    /* pivot_root(".", ".") puts the old root on top of the new one, from where it is taken off: pivot_root(2). A chroot
     * would leave the host's tree mounted, and forbids user namespaces inside. */
    if (fchdir(root) < 0)
        return hutch_err_set(err, errno, "enter the new root");
    if (syscall(SYS_pivot_root, ".", ".") < 0)
        return hutch_err_set(err, errno, "pivot to the new root");
    if (umount2(".", MNT_DETACH) < 0)
        return hutch_err_set(err, errno, "detach the host's tree");
    if (chdir("/") < 0)
        return hutch_err_set(err, errno, "enter '/'");
    return 0;
}

int hutch_mounts_cut_off(struct hutch_err *err)
{
    struct mount_attr private = { .propagation = MS_PRIVATE };

    if (mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &private, sizeof(private)) < 0)
        return hutch_err_set(err, errno, "cut the mount tree off from the host's (needs Linux 5.12)");
    return 0;
}

int hutch_mounts_enter_namespaces(struct id_plan *plan, struct hutch_err *why_no_range, struct hutch_err *err)
{
    if (!plan->is_mapped_away) {
        if (hutch_userns_unshare(plan, CLONE_NEWNS, why_no_range, err) < 0)
            return -1;
    } else if (unshare(CLONE_NEWNS) < 0) {
        return hutch_err_set(err, errno, "make a mount namespace");
    }
    return hutch_mounts_cut_off(err);
}

int hutch_mounts_build(const struct sandbox_spec *spec, const struct id_plan *plan, struct mount_sources *sources,
                       struct hutch_err *err)
{
    bool are_given = sources->are_open;
    int root = -1, rc = -1;

    if (hutch_mounts_cut_off(err) < 0)
        return -1;
    umask(0);
    /* All sources before the new root covers a directory of the host that may hold one. */
    if (!are_given && hutch_mounts_open_sources(spec, plan, sources, err) < 0)
        return -1;
    if ((spec->root_kind == ROOT_HOST ? lay_host(spec, sources, &root, err)
                                      : lay_image(spec, sources, are_given, &root, err)) < 0)
        goto out;
    for (size_t i = 0; i < spec->n_mounts; i++)
        if (!(spec->mounts[i].flags & MOUNT_OF_ROOT) &&
            build_one(spec, root, &spec->mounts[i], source_of(spec, sources, i), &sources->bind_fds[i], sources,
                      err) < 0)
            goto out;
    if (cover_paths(spec, root, err) < 0 || seal_tmpfs(spec, sources, err) < 0)
        goto out;
    if (restrict_mount(root, EVERY_MOUNT | (hutch_spec_find_changes(spec) ? 0 : MOUNT_ATTR_RDONLY), 0, "/", err) < 0)
        goto out;
    rc = enter_root(root, err);
    umask(022);
out:
    hutch_fd_closep(&root);
    return rc;
}

int hutch_mounts_attach_data(const struct sandbox_spec *spec, int mount_fd, struct hutch_err *err)
{
    for (size_t i = 0; i < spec->n_mounts; i++) {
        const struct sandbox_mount *m = &spec->mounts[i];
        auto_fd root = -1, place = -1;

        if (!(m->flags & MOUNT_DATA))
            continue;
        root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        place = root < 0 ? -1 : open_in_root(root, m->target, O_PATH | O_DIRECTORY);
        if (place < 0)
            return hutch_err_set(err, errno, "open the mount point '%s'", m->target);
        if (attach(mount_fd, place, m->target, err) < 0)
            return -1;
        return restrict_mount(mount_fd, EVERY_MOUNT, AT_RECURSIVE, m->target, err); /* whatever the opener has set */
    }
    return hutch_err_set(err, 0, "the sandbox has no data directory");
}
