#include "rootfs/mount_points.h"

#include "rootfs/tree.h"
#include "sandbox/fd.h"
#include "sandbox/rmtree.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_PASSWD (1u << 20)

/* Opens the directory @name below @dirfd; whatever else has that name is replaced. */
static int real_dir(int dirfd, const char *name, int *ret_fd, struct hutch_err *err)
{
    struct stat st;
    auto_fd fd = -1;

    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode) && unlinkat(dirfd, name, 0) < 0)
        return hutch_err_set(err, errno, "replace '%s' by a directory", name);
    if (mkdirat(dirfd, name, 0700) < 0 && errno != EEXIST)
        return hutch_err_set(err, errno, "create directory '%s'", name);
    fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fchmod(fd, 0755) < 0)
        return hutch_err_set(err, errno, "open directory '%s'", name);
    *ret_fd = hutch_fd_take(&fd);
    return 0;
}

/* Does a line of passwd(5) or group(5) give the sandbox's id? It is the third field in both. */
static bool has_user(const char *text)
{
    while (*text) {
        size_t line = strcspn(text, "\n");
        const char *first = memchr(text, ':', line);
        const char *second = first ? memchr(first + 1, ':', line - (size_t)(first + 1 - text)) : NULL;
        char *end;

        if (second && strtoul(second + 1, &end, 10) == TREE_USER && *end == ':')
            return true;
        text += line + (text[line] == '\n');
    }
    return false;
}

/* Adds @line to the file @name of /etc unless it names the user already. What is no ordinary file is replaced. */
static int add_user(int etc_fd, const char *name, const char *line, struct hutch_err *err)
{
    auto_fd old = openat(etc_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    auto_fd fresh = -1;
    auto_free char *text = NULL;
    struct timespec times[2] = { { 0 }, { 0 } };
    struct stat st;
    size_t len = 0;

    if (old >= 0 && fstat(old, &st) == 0 && S_ISREG(st.st_mode)) {
        if (hutch_fd_slurp(old, MAX_PASSWD, name, &text, &len, err) < 0)
            return -1;
        if (has_user(text))
            return 0;
        times[0] = times[1] = st.st_mtim;
    }
    if (hutch_rmtree(etc_fd, name, err) < 0)
        return -1;
    fresh = openat(etc_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fresh < 0 || (len > 0 && hutch_fd_write_all(fresh, text, len) < 0) ||
        (len > 0 && text[len - 1] != '\n' && hutch_fd_write_all(fresh, "\n", 1) < 0) ||
        hutch_fd_write_all(fresh, line, strlen(line)) < 0 || fchmod(fresh, 0644) < 0 || futimens(fresh, times) < 0)
        return hutch_err_set(err, errno, "add the user to '/etc/%s'", name);
    return 0;
}

static const char *const mount_points[] = { "proc", "dev", "tmp", "run", "sys", "mnt" };

int hutch_mount_points_make(int root_fd, struct hutch_err *err)
{
    auto_fd etc = -1;

    for (size_t i = 0; i < ARRAY_SIZE(mount_points); i++) {
        auto_fd dir = -1, data = -1;

        if (real_dir(root_fd, mount_points[i], &dir, err) < 0)
            return -1;
        if (strcmp(mount_points[i], "mnt") == 0 && real_dir(dir, "data", &data, err) < 0)
            return hutch_err_wrap(err, "in '/mnt'");
    }
    if (real_dir(root_fd, "etc", &etc, err) < 0)
        return -1;
    if (add_user(etc, "passwd", "user:x:1000:1000:user:/tmp:/bin/sh\n", err) < 0)
        return -1;
    return add_user(etc, "group", "user:x:1000:\n", err);
}
