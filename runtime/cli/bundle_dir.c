#include "runtime/cli/bundle_dir.h"

#include "runtime/config/oci_config.h"
#include "runtime/data/copier.h"
#include "sandbox/fd.h"
#include "sandbox/rmtree.h"
#include "sandbox/spec.h"
#include "sandbox/userns.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CONFIG_PART OCI_CONFIG_FILE ".part"

struct bundle {
    const char *path; /* not owned */
    int dirfd;        /* owned; -1: not open */
    bool is_made;     /* the directory itself is ours */
};

/* --- the directory ---------------------------------------------------------------------------------------------- */

static int require_empty(const struct bundle *bundle, struct hutch_err *err)
{
    int copy = openat(bundle->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    const struct dirent *entry;
    int rc = 0;

    if (!dir) {
        hutch_err_set(err, errno, "read the directory '%s'", bundle->path);
        hutch_fd_closep(&copy);
        return -1;
    }
    while (rc == 0 && (entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            rc = hutch_err_set(err, 0, "a bundle goes into a new or an empty directory, and '%s' has '%s'",
                               bundle->path, entry->d_name);
    closedir(dir);
    return rc;
}

/* 0700: a program that is brought along may be for its owner alone. The runtime is the same user. */
static int open_dir(struct bundle *bundle, struct hutch_err *err)
{
    bundle->is_made = mkdir(bundle->path, 0700) == 0;
    if (!bundle->is_made && errno != EEXIST)
        return hutch_err_set(err, errno, "make the directory '%s'", bundle->path);
    bundle->dirfd = open(bundle->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (bundle->dirfd < 0)
        return hutch_err_set(err, errno, "open the directory '%s'", bundle->path);
    return bundle->is_made ? 0 : require_empty(bundle, err);
}

/* What cannot be removed is not worth more words than what has failed. */
static void remove_parts(struct bundle *bundle)
{
    static const char *const parts[] = { CONFIG_PART, OCI_CONFIG_FILE, OCI_FILES_DIR, BUNDLE_ROOT_DIR };
    struct hutch_err ignored;

    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        hutch_rmtree(bundle->dirfd, parts[i], &ignored);
}

/* --- files and mount points ------------------------------------------------------------------------------------- */

static int open_beneath(int dirfd, const char *path, __u64 flags)
{
    struct open_how how = { .flags = flags | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };

    return (int)syscall(SYS_openat2, dirfd, *path ? path : ".", &how, sizeof(how));
}

/* Makes @path, relative and without links, with mode 0755 whatever the umask is; one that is there is fine. The
 * container's user, who is nobody here, goes through it. */
static int make_dirs(int dirfd, const char *path, struct hutch_err *err)
{
    char part[PATH_MAX];

    if (strlen(path) >= sizeof(part))
        return hutch_err_set(err, ENAMETOOLONG, "make the directory '%s'", path);
    for (size_t len = 1; *path && path[len - 1]; len++) {
        if (path[len] != '/' && path[len] != '\0')
            continue;
        memcpy(part, path, len);
        part[len] = '\0';
        if (mkdirat(dirfd, part, 0755) == 0 ? fchmodat(dirfd, part, 0755, 0) < 0 : errno != EEXIST)
            return hutch_err_set(err, errno, "make the directory '%s'", part);
    }
    return 0;
}

static int make_file(int dirfd, const char *path, const char *data, size_t len, mode_t mode, struct hutch_err *err)
{
    auto_free char *parent = strdup(path);
    char *slash = parent ? strrchr(parent, '/') : NULL;
    auto_fd fd = -1;

    if (!parent)
        return hutch_err_set(err, ENOMEM, "write '%s'", path);
    if (slash)
        *slash = '\0';
    if (slash && make_dirs(dirfd, parent, err) < 0)
        return -1;
    fd = openat(dirfd, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || hutch_fd_write_all(fd, data, len) < 0 || fchmod(fd, mode) < 0)
        return hutch_err_set(err, errno, "write '%s'", path);
    return 0;
}

/* The nearest earlier mount whose target @path is in; -1: none. */
static int find_mount_above(const struct sandbox_spec *spec, size_t before, const char *path)
{
    for (size_t i = before; i-- > 0;)
        if (hutch_spec_path_is_below(path, spec->mounts[i].target))
            return (int)i;
    return -1;
}

static int make_mount_point(int dirfd, const char *path, bool is_dir, struct hutch_err *err)
{
    auto_fd there = open_beneath(dirfd, path, O_PATH);

    if (there >= 0)
        return 0;
    return is_dir ? make_dirs(dirfd, path, err) : make_file(dirfd, path, "", 0, 0444, err);
}

static bool is_dir_mount(const struct sandbox_mount *m)
{
    struct stat st;

    return m->kind != MOUNT_BIND || stat(m->source, &st) < 0 || S_ISDIR(st.st_mode);
}

/* Directories for mounts with files of the spec, these files, and mount points in such a directory: it is read-only for
 * the runtime, too. */
static int write_files(const struct bundle *bundle, const struct sandbox_spec *spec, struct hutch_err *err)
{
    char path[PATH_MAX];

    for (size_t i = 0; i < spec->n_mounts; i++) {
        int above = find_mount_above(spec, i, spec->mounts[i].target);

        snprintf(path, sizeof(path), OCI_FILES_DIR "%s", spec->mounts[i].target);
        if (hutch_oci_config_has_files(spec, i) && make_dirs(bundle->dirfd, path, err) < 0)
            return -1;
        if (above >= 0 && hutch_oci_config_has_files(spec, (size_t)above) &&
            make_mount_point(bundle->dirfd, path, is_dir_mount(&spec->mounts[i]), err) < 0)
            return -1;
    }
    for (size_t f = 0; f < spec->n_files; f++) {
        const struct sandbox_file *file = &spec->files[f];

        snprintf(path, sizeof(path), OCI_FILES_DIR "%s", file->target);
        if (make_file(bundle->dirfd, path, file->data, file->len, file->mode, err) < 0)
            return -1;
    }
    return 0;
}

/* @tree: the root that the runtime gets; @is_ours: a copy of the bundle's own. */
static int check_mount_points(const struct sandbox_spec *spec, int tree, bool is_ours, struct hutch_err *err)
{
    for (size_t i = 0; i < spec->n_mounts; i++) {
        const char *target = spec->mounts[i].target, *relative = target + strspn(target, "/");
        auto_fd place = -1;
        int e;

        if (find_mount_above(spec, i, target) >= 0)
            continue;
        place = open_beneath(tree, relative, O_PATH);
        e = errno;
        if (place >= 0)
            continue;
        if (e == ELOOP)
            return hutch_err_set(err, 0, "a link is on the way to '%s' in the image, and a runtime may mount where it "
                                         "leads", target);
        if (e != ENOENT)
            return hutch_err_set(err, e, "look at '%s' of the image", target);
        if (!is_ours)
            return hutch_err_set(err, 0, "the image has no '%s' to mount on, and a runtime would make it in the store: "
                                         "option '--copy' makes a tree of the bundle's own", target);
        if (make_mount_point(tree, relative, is_dir_mount(&spec->mounts[i]), err) < 0)
            return -1;
    }
    return 0;
}

/* A runtime would make it, in the tree. */
static int check_cwd(const struct sandbox_spec *spec, int tree, struct hutch_err *err)
{
    struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                            .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
    auto_fd fd = -1;

    if (find_mount_above(spec, spec->n_mounts, spec->cwd) >= 0)
        return 0;
    fd = (int)syscall(SYS_openat2, tree, spec->cwd, &how, sizeof(how));
    if (fd < 0)
        return hutch_err_set(err, errno, "the working directory '%s' is not in the image", spec->cwd);
    return 0;
}

/* --- the root tree ---------------------------------------------------------------------------------------------- */

static bool is_interrupted(void)
{
    sigset_t pending;

    return sigpending(&pending) == 0 && (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1 ||
                                         sigismember(&pending, SIGHUP) == 1);
}

/* Directories of an image may be closed to their owner. In a user namespace of its own this process may read them all
 * the same, and changes nothing of them. Where there can be none, such a directory is an error of the copy. */
static void take_rights(void)
{
    struct id_plan plan;
    struct hutch_err ignored;

    if (hutch_userns_plan(&plan, &ignored) == 0 && !plan.is_mapped_away)
        hutch_userns_unshare(&plan, 0, &ignored, &ignored);
}

static int copy_tree(const struct bundle *bundle, int from, int *ret_fd, struct hutch_err *err)
{
    struct copier copier = COPIER_INIT;
    auto_fd to = -1;
    int rc;

    if (mkdirat(bundle->dirfd, BUNDLE_ROOT_DIR, 0755) < 0 ||
        (to = openat(bundle->dirfd, BUNDLE_ROOT_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return hutch_err_set(err, errno, "make the directory '%s'", BUNDLE_ROOT_DIR);
    take_rights();
    rc = hutch_copier_init(&copier, to, NULL, err);
    copier.is_interrupted = is_interrupted;
    copier.owns_all = true; /* a shared store's tree is another user's */
    if (rc == 0)
        rc = hutch_copier_copy_contents(&copier, from, err);
    hutch_copier_done(&copier);
    if (rc < 0)
        return hutch_err_wrap(err, "copy the image");
    *ret_fd = hutch_fd_take(&to);
    return 0;
}

static int write_config(const struct bundle *bundle, const char *json, struct hutch_err *err)
{
    if (make_file(bundle->dirfd, CONFIG_PART, json, strlen(json), 0644, err) < 0)
        return -1;
    if (is_interrupted())
        return hutch_err_set(err, EINTR, "write '%s'", OCI_CONFIG_FILE);
    if (renameat(bundle->dirfd, CONFIG_PART, bundle->dirfd, OCI_CONFIG_FILE) < 0)
        return hutch_err_set(err, errno, "write '%s'", OCI_CONFIG_FILE);
    return 0;
}

static int fill(const struct bundle *bundle, const struct sandbox_spec *spec, const char *json, bool copies,
                struct hutch_err *err)
{
    auto_fd image = open(spec->rootfs_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), copy = -1;

    if (image < 0)
        return hutch_err_set(err, errno, "open the image's tree '%s'", spec->rootfs_path);
    /* Before a copy that takes its time. */
    if (check_cwd(spec, image, err) < 0 || write_files(bundle, spec, err) < 0)
        return -1;
    if (copies && copy_tree(bundle, image, &copy, err) < 0)
        return -1;
    if (check_mount_points(spec, copies ? copy : image, copies, err) < 0)
        return -1;
    return write_config(bundle, json, err);
}

int hutch_bundle_dir_make(const char *path, const struct sandbox_spec *spec, const char *json, bool copies,
                          struct hutch_err *err)
{
    struct bundle bundle = { .path = path, .dirfd = -1 };
    int rc = open_dir(&bundle, err);

    if (rc == 0) {
        rc = fill(&bundle, spec, json, copies, err);
        if (rc < 0) {
            hutch_err_wrap(err, "bundle '%s'", path);
            remove_parts(&bundle);
        }
    }
    if (rc < 0 && bundle.is_made)
        rmdir(path);
    hutch_fd_closep(&bundle.dirfd);
    return rc;
}
