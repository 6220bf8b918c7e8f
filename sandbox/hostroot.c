#include "sandbox/hostroot.h"

#include "sandbox/fd.h"
#include "sandbox/inside.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* A listed path that this host does not have is left out. Links of the host are copied as links. */
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

static int bring_in(int root, const char *path, struct hutch_err *err)
{
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };
    char host[64], text[PATH_MAX];
    auto_fd fd = -1, place = -1;
    struct stat st;
    ssize_t n;

    snprintf(host, sizeof(host), "/%s", path);
    if (lstat(host, &st) < 0)
        return errno == ENOENT ? 0 : hutch_err_set(err, errno, "look at '%s'", host);
    if (make_parents(root, path, err) < 0)
        return -1;
    if (S_ISLNK(st.st_mode)) {
        n = readlink(host, text, sizeof(text) - 1);
        if (n < 0)
            return hutch_err_set(err, errno, "read the link '%s'", host);
        text[n] = '\0';
        if (symlinkat(text, root, path) < 0)
            return hutch_err_set(err, errno, "copy the link '%s'", host);
        return 0;
    }
    fd = open_tree(AT_FDCWD, host, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | AT_SYMLINK_NOFOLLOW);
    if (fd < 0)
        return hutch_err_set(err, errno, "open '%s'", host);
    if (mount_setattr(fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0)
        return hutch_err_set(err, errno, "restrict '%s'", host);
    if (S_ISDIR(st.st_mode)) {
        if (mkdirat(root, path, 0755) < 0)
            return hutch_err_set(err, errno, "make '%s'", host);
    } else {
        auto_fd made = openat(root, path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);

        if (made < 0)
            return hutch_err_set(err, errno, "make '%s'", host);
    }
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

int hutch_hostroot_build(int root_fd, uid_t uid_inside, gid_t gid_inside, struct hutch_err *err)
{
    char passwd[128], group[64];

    for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
        if (mkdirat(root_fd, directories[i], 0755) < 0)
            return hutch_err_set(err, errno, "make '/%s'", directories[i]);
    for (size_t i = 0; i < ARRAY_SIZE(trees); i++)
        if (bring_in(root_fd, trees[i], err) < 0)
            return -1;
    if (make_parents(root_fd, "etc/passwd", err) < 0)
        return -1;
    snprintf(passwd, sizeof(passwd), "user:x:%u:%u:user:/tmp:/bin/sh\n", uid_inside, gid_inside);
    snprintf(group, sizeof(group), "user:x:%u:\n", gid_inside);
    if (write_text(root_fd, "etc/passwd", passwd, err) < 0 || write_text(root_fd, "etc/group", group, err) < 0 ||
        write_text(root_fd, "etc/hosts", "127.0.0.1 localhost\n", err) < 0 ||
        write_text(root_fd, "etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n", err) < 0)
        return -1;
    return 0;
}
