#include "rootfs/stores.h"

#include "rootfs/extension.h"
#include "rootfs/store_priv.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

int hutch_stores_each_shared(stores_each_fn *each, void *ctx, struct hutch_err *err)
{
    const char *value = getenv("HUTCH_IMAGES");
    auto_free char *paths = strdup(value ? value : "");
    char *rest = paths, *path;
    unsigned n = 0;
    int rc = 0;

    if (!paths)
        return hutch_err_set(err, ENOMEM, "read HUTCH_IMAGES");
    while (rc == 0 && (path = strsep(&rest, ":"))) {
        struct store store;

        if (!path[0])
            continue;
        if (path[0] != '/')
            return hutch_err_set(err, 0, "HUTCH_IMAGES has '%.200s', which is not an absolute path", path);
        if (++n > STORES_MAX_SHARED)
            return hutch_err_set(err, 0, "HUTCH_IMAGES has more than %d paths", STORES_MAX_SHARED);
        if (hutch_store_open_shared(path, &store, err) < 0) {
            hutch_err_wrap(err, "HUTCH_IMAGES");
            err->errnum = 0; /* no ENOENT, which is an image's */
            return -1;
        }
        rc = each(ctx, &store, err);
        hutch_store_done(&store);
    }
    return rc;
}

int hutch_stores_each(const char *home, stores_each_fn *each, void *ctx, struct hutch_err *err)
{
    struct store own;
    int rc;

    if (hutch_store_open(home, &own, err) < 0)
        return -1;
    rc = each(ctx, &own, err);
    hutch_store_done(&own);
    return rc != 0 ? rc : hutch_stores_each_shared(each, ctx, err);
}

struct search {
    const char *name;
    struct store found;
    unsigned n;            /* stores without it */
    struct hutch_err none; /* what the first said */
    char there[256];       /* names of images in all of them */
};

static int look(void *ctx, const struct store *store, struct hutch_err *err)
{
    char hex[DIGEST_HEX + 1], file[STORE_MAX_NAME + 1];
    struct search *s = ctx;

    if (hutch_store_resolve(store, s->name, hex, file, err) == 0)
        return hutch_store_dup(store, &s->found, err) < 0 ? -1 : 1;
    if (err->errnum != ENOENT)
        return -1;
    if (s->n++ == 0)
        s->none = *err;
    return hutch_store_append_names(store, s->there, sizeof(s->there), err);
}

int hutch_stores_open(const char *home, const char *name, struct store *ret, struct hutch_err *err)
{
    struct search s = { .name = name, .found = STORE_INIT };
    int rc = hutch_stores_each(home, look, &s, err);

    if (rc < 0)
        return -1;
    if (rc == 1) {
        *ret = s.found;
        return 0;
    }
    if (s.n == 1)
        *err = s.none;
    else
        hutch_err_set(err, 0, "there is no image '%.80s' in the store, nor in those that HUTCH_IMAGES names; there "
                      "are: %s (others come by: hutch rootfs build, pull or unpack)", name,
                      s.there[0] ? s.there : "none");
    err->errnum = ENOENT;
    return -1;
}

int hutch_stores_read_extension(const char *home, const char *name, char ret_hex[DIGEST_HEX + 1],
                                struct extension *ret, struct hutch_err *err)
{
    __attribute__((cleanup(hutch_store_done))) struct store store = STORE_INIT;
    char file[STORE_MAX_NAME + 1];
    auto_fd tree = -1;
    int rc;

    if (hutch_stores_open(home, name, &store, err) < 0 || hutch_store_resolve(&store, name, ret_hex, file, err) < 0 ||
        hutch_store_lock_tree(&store, ret_hex, LOCK_SH, &tree, err) < 0)
        return -1;
    *ret = (struct extension){ .n_layers = 0 };
    rc = hutch_extension_read(tree, ret, err);
    if (rc == 0)
        memcpy(ret->base, ret_hex, DIGEST_HEX + 1);
    return rc < 0 ? -1 : 0;
}

/* --- an image's files ------------------------------------------------------------------------------------------- */

struct layer_search {
    const char *hex;
    char *path; /* owned */
    int lockfd; /* owned */
};

static int look_for_layer(void *ctx, const struct store *store, struct hutch_err *err)
{
    struct layer_search *s = ctx;

    if (hutch_store_find_layer(store, s->hex, &s->path, &s->lockfd, err) == 0)
        return 1;
    return err->errnum == ENOENT ? 0 : -1;
}

static int add_layer(const char *home, const struct store *store, const char *hex, struct image_root *root,
                     struct hutch_err *err)
{
    struct layer_search s = { .hex = hex, .lockfd = -1 };
    int rc = look_for_layer(&s, store, err);

    if (rc == 0)
        rc = hutch_stores_each(home, look_for_layer, &s, err);
    if (rc == 0)
        return hutch_err_set(err, 0, "its layer sha256:%.12s is in no store that is known here", hex);
    if (rc < 0)
        return -1;
    root->layers[root->n_layers++] = s.path;
    root->lockfds[root->n_lockfds++] = s.lockfd;
    return 0;
}

/* In @store, or in any. */
static int find_base(const char *home, const struct store *store, const char *hex, struct image_root *root,
                     struct hutch_err *err)
{
    struct store other = STORE_INIT;
    const struct store *there = store;
    struct extension extension;
    int rc;

    if (!hutch_store_has_tree(store, hex)) {
        if (hutch_stores_open(home, hex, &other, err) < 0)
            return err->errnum != ENOENT ? -1 : hutch_err_set(err, 0, "its base sha256:%.12s is in no store that is "
                                                              "known here (HUTCH_IMAGES names further ones)", hex);
        there = &other;
    }
    rc = hutch_store_find(there, hex, &root->path, &root->lockfds[root->n_lockfds], err);
    hutch_store_done(&other);
    if (rc < 0)
        return -1;
    root->n_lockfds++;
    rc = hutch_extension_read(root->lockfds[root->n_lockfds - 1], &extension, err);
    return rc > 0 ? hutch_err_set(err, 0, "its base is an extended image itself") : rc;
}

static int find_in(const char *home, const struct store *store, const char *name, struct image_root *root,
                   struct hutch_err *err)
{
    struct extension extension;
    int rc;

    if (hutch_store_find(store, name, &root->path, &root->lockfds[0], err) < 0)
        return -1;
    root->n_lockfds = 1;
    rc = hutch_extension_read(root->lockfds[0], &extension, err);
    if (rc <= 0)
        return rc;
    hutch_freep(&root->path);
    root->path = NULL;
    rc = find_base(home, store, extension.base, root, err);
    for (size_t i = 0; rc == 0 && i < extension.n_layers; i++)
        rc = add_layer(home, store, extension.layers[i], root, err);
    return rc;
}

int hutch_stores_find(const char *home, const char *name, struct image_root *ret, struct hutch_err *err)
{
    auto_image_root root = IMAGE_ROOT_INIT;
    struct store store;
    int rc;

    if (hutch_stores_open(home, name, &store, err) < 0)
        return -1;
    rc = find_in(home, &store, name, &root, err);
    hutch_store_done(&store);
    if (rc < 0)
        return err->errnum == ENOENT ? -1 : hutch_err_wrap(err, "use the image '%.80s'", name);
    *ret = root;
    root = (struct image_root)IMAGE_ROOT_INIT;
    return 0;
}
