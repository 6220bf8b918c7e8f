#include "rootfs/stores.h"

#include "rootfs/store_priv.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int hutch_stores_find(const char *home, const char *name, char **ret_path, int *ret_lockfd, struct hutch_err *err)
{
    struct store store;
    int rc;

    if (hutch_stores_open(home, name, &store, err) < 0)
        return -1;
    rc = hutch_store_find(&store, name, ret_path, ret_lockfd, err);
    hutch_store_done(&store);
    return rc;
}
