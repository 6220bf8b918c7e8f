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

static int share_tree(const struct store *store, const char *hex, struct hutch_err *err)
{
    static const struct { const char *path; mode_t mode; bool is_optional; } below[] = {
        { "record", 0644, true }, { "image.json", 0644, false }, { "config.json", 0644, true },
        { EXTENSION_FILE, 0644, true }, { "", 0755, false }, /* the directory, last */
    };
    char path[64 + DIGEST_HEX];

    for (size_t i = 0; i < ARRAY_SIZE(below); i++) {
        snprintf(path, sizeof(path), "trees/%s/%s", hex, below[i].path);
        if (open_to_others(store, path, below[i].mode, err) < 0 && !(below[i].is_optional && err->errnum == ENOENT))
            return -1;
    }
    return 0;
}

/* Of an extended image: its layers, and its base where that is in this store. */
static int share_layers(const struct store *store, int tree, struct hutch_err *err)
{
    static const struct { const char *path; mode_t mode; } below[] = {
        { "record", 0644 }, { "layer.json", 0644 }, { "", 0755 },
    };
    struct extension extension;
    char path[64 + DIGEST_HEX];
    int rc = hutch_extension_read(tree, &extension, err);

    if (rc <= 0)
        return rc;
    if (hutch_store_has_tree(store, extension.base) && share_tree(store, extension.base, err) < 0)
        return -1;
    for (size_t i = 0; i < extension.n_layers * ARRAY_SIZE(below); i++) {
        snprintf(path, sizeof(path), "layers/%s/%s", extension.layers[i / ARRAY_SIZE(below)],
                 below[i % ARRAY_SIZE(below)].path);
        if (open_to_others(store, path, below[i % ARRAY_SIZE(below)].mode, err) < 0)
            return -1;
    }
    return open_to_others(store, "layers", 0755, err);
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
    char hex[DIGEST_HEX + 1], file[STORE_MAX_NAME + 1], path[STORE_MAX_NAME + 64];
    auto_fd lock = -1, tree = -1;

    if (hutch_store_lock(store, LOCK_EX, &lock, err) < 0 || hutch_store_resolve(store, name, hex, file, err) < 0 ||
        hutch_store_lock_tree(store, hex, LOCK_SH, &tree, err) < 0)
        return -1;
    if (share_tree(store, hex, err) < 0 || share_layers(store, tree, err) < 0)
        return -1;
    snprintf(path, sizeof(path), "names/%s", file);
    if ((file[0] && open_to_others(store, path, 0644, err) < 0) || open_to_others(store, "names", 0755, err) < 0 ||
        open_to_others(store, "trees", 0755, err) < 0 || open_to_others(store, ".", 0755, err) < 0)
        return -1;
    return find_closed(store->path, ret_closed, err);
}
