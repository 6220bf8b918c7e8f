#include "rootfs/store_share.h"

#include "rootfs/store_priv.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

static int open_to_others(const struct store *store, const char *path, mode_t mode, struct hutch_err *err)
{
    auto_fd fd = openat(store->dirfd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0 || fchmod(fd, mode) < 0)
        return hutch_err_set(err, errno, "let others read '%s/%s'", store->path, path);
    return 0;
}

/* The one that is nearest to "/": whoever opens that sees the next. */
static int find_closed(const char *path, char **ret, struct hutch_err *err)
{
    auto_free char *dir = strdup(path);
    struct stat st;

    *ret = NULL;
    if (!dir)
        return hutch_err_set(err, ENOMEM, "look at '%s'", path);
    for (char *slash = strchr(dir + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (stat(dir, &st) < 0)
            return hutch_err_set(err, errno, "look at '%s'", dir);
        if (!(st.st_mode & S_IXOTH)) {
            *ret = dir;
            dir = NULL;
            return 0;
        }
        *slash = '/';
    }
    return 0;
}

int hutch_store_share(const struct store *store, const char *name, char **ret_closed, struct hutch_err *err)
{
    static const struct { const char *path; mode_t mode; } below[] = {
        { "record", 0644 }, { "image.json", 0644 }, { "config.json", 0644 }, { "", 0755 }, /* the directory, last */
    };
    char hex[DIGEST_HEX + 1], file[STORE_MAX_NAME + 1], path[STORE_MAX_NAME + 64];
    auto_fd lock = -1, tree = -1;

    if (hutch_store_lock(store, LOCK_EX, &lock, err) < 0 || hutch_store_resolve(store, name, hex, file, err) < 0 ||
        hutch_store_lock_tree(store, hex, LOCK_SH, &tree, err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(below); i++) {
        snprintf(path, sizeof(path), "trees/%s/%s", hex, below[i].path);
        if (open_to_others(store, path, below[i].mode, err) < 0 && err->errnum != ENOENT) /* no config.json */
            return -1;
    }
    snprintf(path, sizeof(path), "names/%s", file);
    if ((file[0] && open_to_others(store, path, 0644, err) < 0) || open_to_others(store, "names", 0755, err) < 0 ||
        open_to_others(store, "trees", 0755, err) < 0 || open_to_others(store, ".", 0755, err) < 0)
        return -1;
    return find_closed(store->path, ret_closed, err);
}
