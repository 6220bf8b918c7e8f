#include "runtime/cli/missing_module.h"

#include "rootfs/home.h"
#include "rootfs/stores.h"
#include "runtime/cli/commands.h"
#include "runtime/config/profile.h"
#include "runtime/hutch.h"
#include "sandbox/fd.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MODULE_SIZE 64
#define PACKAGES    "usr/lib/python3/dist-packages" /* where Debian has what is not Python's own */

/* The name comes from the program, so it is looked at before it becomes a part of a path. In one with a dot it is the
 * package's own part that is missing: of `import numpy.linalg` without numpy Python says 'numpy'. */
static bool read_module(const char *message, char ret[MODULE_SIZE])
{
    static const char begin[] = "No module named '";
    const char *name = message + strlen(begin);
    size_t len;

    if (strncmp(message, begin, strlen(begin)) != 0)
        return false;
    len = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
    if (len == 0 || len >= MODULE_SIZE || (name[len] != '\''))
        return false;
    snprintf(ret, MODULE_SIZE, "%.*s", (int)len, name);
    return true;
}

/* Links in the tree @root lead nowhere out of it. */
static bool has_module(const char *root, const char *module)
{
    static const char *const endings[] = { "/__init__.py", ".py" };
    struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
    auto_fd dirfd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    char path[sizeof(PACKAGES) + MODULE_SIZE + 16];
    bool is_there = false;

    for (size_t i = 0; dirfd >= 0 && !is_there && i < ARRAY_SIZE(endings); i++) {
        auto_fd fd = -1;

        snprintf(path, sizeof(path), PACKAGES "/%s%s", module, endings[i]);
        fd = (int)syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
        is_there = fd >= 0;
    }
    return is_there;
}

struct module_search {
    const char *module;
    char *image; /* the first by name that has it */
};

static int find_image(void *ctx, const struct store *store, struct hutch_err *err)
{
    struct module_search *search = ctx;
    struct store_image *images = NULL;
    size_t n = 0;

    if (hutch_store_list(store, &images, &n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        auto_free char *root = NULL;

        if (!search->image && images[i].n_names > 0 &&
            asprintf(&root, "%s/trees/%s/root", store->path, images[i].digest) >= 0 &&
            has_module(root, search->module))
            search->image = strdup(images[i].names[0]);
        hutch_store_image_done(&images[i]);
    }
    free(images);
    return search->image != NULL;
}

/* A module's name is not its package's, and whoever likes can publish one of that name: so none is proposed. */
static char *explain_by_image(const char *image, const char *module)
{
    auto_free char *home = NULL, *other = NULL;
    struct module_search search = { .module = module };
    struct hutch_err ignored;
    auto_image_root own = IMAGE_ROOT_INIT;
    char *sentence = NULL;
    int n;

    if (hutch_home_path(&home, &ignored) < 0 || hutch_stores_find(home, image, &own, &ignored) < 0 ||
        has_module(own.path, module))
        return NULL;
    if (hutch_stores_each(home, find_image, &search, &ignored) == 1)
        other = search.image;
    if (other)
        n = asprintf(&sentence, "image '%s' has no module '%s', and image '%s' has it: --image %s", image, module,
                     other, other);
    else
        n = asprintf(&sentence, "image '%s' has no module '%s'; --with PACKAGE lays the package over it that has it",
                     image, module);
    return n < 0 ? NULL : sentence;
}

/* Only the file itself is inside; what lies beside it would have to be shown as a project. */
static char *explain_by_neighbour(const char *file, const char *module)
{
    const char *slash = strrchr(file, '/');
    const size_t len = slash ? (size_t)(slash + 1 - file) : 0;
    char *sentence = NULL;

    for (unsigned i = 0; i < 2 && !sentence; i++) {
        auto_free char *path = NULL;
        struct stat st;

        if (asprintf(&path, "%.*s%s%s", (int)len, file, module, i ? "/__init__.py" : ".py") < 0)
            return NULL;
        if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
            continue;
        if (asprintf(&sentence, "'%s' lies beside the program, which is inside by itself: hutch run --project %.*s %s "
                                "shows the directory", path, len ? (int)len : 1, len ? file : ".", file + len) < 0)
            return NULL;
    }
    return sentence;
}

char *hutch_missing_module_explain(const struct run_opts *opts, const struct hutch_result *result)
{
    char module[MODULE_SIZE], *sentence = NULL;

    if (result->verdict != HUTCH_ERROR || !result->error_name || !result->error_value ||
        strcmp(result->error_name, "ModuleNotFoundError") != 0 || !read_module(result->error_value, module))
        return NULL;
    if (opts->file)
        sentence = explain_by_neighbour(opts->file, module);
    if (!sentence && !opts->rootfs)
        sentence = explain_by_image(opts->image ? opts->image : PROFILE_IMAGE, module);
    return sentence;
}
