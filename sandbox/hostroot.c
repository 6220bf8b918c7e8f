#include "sandbox/hostroot.h"

#include "sandbox/fd.h"
#include "sandbox/inside.h"
#include "sandbox/log.h"
#include "sandbox/overlay.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* A listed path that this host does not have is left out. Links of the host are copied as links, files by what is in
 * them. */
static const char *const trees[] = {
    "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32",
    /* how the dynamic linker and Debian's alternatives (BLAS among them) find libraries */
    "etc/alternatives", "etc/ld.so.cache", "etc/ld.so.conf", "etc/ld.so.conf.d",
    /* settings of interpreters and libraries, the same on every machine with the package */
    "etc/python3", "etc/python3.8", "etc/python3.9", "etc/python3.10", "etc/python3.11", "etc/python3.12",
    "etc/python3.13",
    "etc/matplotlibrc", "etc/fonts", "etc/mime.types", "etc/magic", "etc/perl", "etc/os-release",
    "etc/ssl/certs", "etc/ssl/openssl.cnf", "etc/protocols", "etc/services", "etc/localtime",
};

static const char *const directories[] = { "proc", "dev", "tmp", "run", "mnt", &INSIDE_DATA_DIR[1] };

static int make_parents(int root, const char *path, struct hutch_err *err)
{
    char part[64];

    for (size_t i = 0; i < sizeof(part) && path[i]; i++) {
        if (path[i] != '/')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdirat(root, part, 0755) < 0 && errno != EEXIST)
            return hutch_err_set(err, errno, "make '/%s'", part);
    }
    return 0;
}

/* @host, with inodes of its own where there can be an overlay. */
static int open_directory(const char *host, int empty, int *ret_fd, int *ret_overlay_errnum, struct hutch_err *err)
{
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };
    auto_fd dir = open(host, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), fd = -1;
    struct hutch_err why;

    if (dir < 0)
        return hutch_err_set(err, errno, "open '%s'", host);
    if (empty >= 0) {
        if (hutch_overlay_make((const int[]){ empty, dir }, 2, -1, ret_fd, &why) == 0)
            return 0;
        hutch_log_debug("mounts: the inodes of '%s' are shared: %s", host, why.msg);
        *ret_overlay_errnum = why.errnum;
    }
    fd = open_tree(dir, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (fd < 0)
        return hutch_err_set(err, errno, "open '%s'", host);
    if (mount_setattr(fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0)
        return hutch_err_set(err, errno, "restrict '%s'", host);
    *ret_fd = hutch_fd_take(&fd);
    return 0;
}

static int copy_link(int root, const char *path, const char *host, struct hutch_err *err)
{
    char text[PATH_MAX];
    ssize_t n = readlink(host, text, sizeof(text) - 1);

    if (n < 0)
        return hutch_err_set(err, errno, "read the link '%s'", host);
    text[n] = '\0';
    if (symlinkat(text, root, path) < 0)
        return hutch_err_set(err, errno, "copy the link '%s'", host);
    return 0;
}

/* Single files cannot be in an overlay. These are small. */
static int copy_file(int root, const char *path, const char *host, struct hutch_err *err)
{
    auto_fd from = open(host, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), to = -1;
    char block[16384];
    ssize_t n;

    if (from < 0) /* one that the caller may not read says nothing to the code inside either */
        return errno == EACCES ? 0 : hutch_err_set(err, errno, "open '%s'", host);
    to = openat(root, path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (to < 0)
        return hutch_err_set(err, errno, "make '%s'", host);
    while ((n = TEMP_FAILURE_RETRY(read(from, block, sizeof(block)))) > 0)
        if (hutch_fd_write_all(to, block, (size_t)n) < 0)
            return hutch_err_set(err, errno, "copy '%s'", host);
    return n < 0 ? hutch_err_set(err, errno, "read '%s'", host) : 0;
}

static int bring_in(int root, const char *path, int empty, int *ret_overlay_errnum, struct hutch_err *err)
{
    auto_fd fd = -1, place = -1;
    struct stat st;
    char host[64];

    snprintf(host, sizeof(host), "/%s", path);
    if (lstat(host, &st) < 0)
        return errno == ENOENT ? 0 : hutch_err_set(err, errno, "look at '%s'", host);
    if (make_parents(root, path, err) < 0)
        return -1;
    if (S_ISLNK(st.st_mode))
        return copy_link(root, path, host, err);
    if (!S_ISDIR(st.st_mode))
        return copy_file(root, path, host, err);
    if (open_directory(host, empty, &fd, ret_overlay_errnum, err) < 0)
        return -1;
    if (mkdirat(root, path, 0755) < 0)
        return hutch_err_set(err, errno, "make '%s'", host);
    place = openat(root, path, O_PATH | O_CLOEXEC | O_NOFOLLOW);
    if (place < 0 || move_mount(fd, "", place, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return hutch_err_set(err, errno, "mount '%s'", host);
    return 0;
}

static int write_text(int root, const char *path, const char *text, struct hutch_err *err)
{
    auto_fd fd = openat(root, path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);

    if (fd < 0 || hutch_fd_write_all(fd, text, strlen(text)) < 0)
        return hutch_err_set(err, errno, "write '/%s'", path);
    return 0;
}

int hutch_hostroot_build(int root_fd, uid_t uid_inside, gid_t gid_inside, int empty_fd, int *ret_overlay_errnum,
                         struct hutch_err *err)
{
    char passwd[128], group[64];

    for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
        if (mkdirat(root_fd, directories[i], 0755) < 0)
            return hutch_err_set(err, errno, "make '/%s'", directories[i]);
    for (size_t i = 0; i < ARRAY_SIZE(trees); i++)
        if (bring_in(root_fd, trees[i], empty_fd, ret_overlay_errnum, err) < 0)
            return -1;
    if (make_parents(root_fd, "etc/passwd", err) < 0)
        return -1;
    snprintf(passwd, sizeof(passwd), "user:x:%u:%u:user:/tmp:/bin/sh\n", uid_inside, gid_inside);
    snprintf(group, sizeof(group), "user:x:%u:\n", gid_inside);
    if (write_text(root_fd, "etc/passwd", passwd, err) < 0 || write_text(root_fd, "etc/group", group, err) < 0 ||
        write_text(root_fd, "etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n", err) < 0)
        return -1;
    return 0;
}
