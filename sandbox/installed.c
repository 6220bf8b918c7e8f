#include "sandbox/installed.h"

#include "sandbox/fd.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

bool hutch_installed_program(char ret[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - 1);

    if (n > 0)
        ret[n] = '\0';
    return n > 0;
}

static bool is_of(const struct stat *st, uid_t owner)
{
    return st->st_uid == 0 || st->st_uid == geteuid() || st->st_uid == owner;
}

/* Whether @path is of somebody trusted, and so is what it leads to where it is a symbolic link. */
static bool is_trusted(const char *path, uid_t owner)
{
    struct stat link, st;

    return lstat(path, &link) == 0 && is_of(&link, owner) && stat(path, &st) == 0 && is_of(&st, owner) &&
           !(st.st_mode & S_IWOTH);
}

/* The same for all that @below names, which is the end of @path. A name that leads upwards was there before. */
static bool is_trusted_below(char *path, const char *below, uid_t owner)
{
    char *at = path + strlen(path) - strlen(below);

    while (strncmp(at, "../", 3) == 0)
        at += 3;
    for (; (at = strchr(at, '/')); at++) {
        bool is_good;

        *at = '\0';
        is_good = is_trusted(path, owner);
        *at = '/';
        if (!is_good)
            return false;
    }
    return is_trusted(path, owner);
}

int hutch_installed_find(const char *own, const char *const *below, size_t n_below, char **ret, struct hutch_err *err)
{
    const char *slash = strrchr(own, '/');
    struct stat st;

    *ret = NULL;
    if (!slash || stat(own, &st) < 0)
        return 0;
    for (size_t i = 0; i < n_below; i++) {
        char *path;

        if (asprintf(&path, "%.*s/%s", (int)(slash - own), own, below[i]) < 0)
            return hutch_err_set(err, ENOMEM, "find '%s'", below[i]);
        if (is_trusted_below(path, below[i], st.st_uid)) {
            *ret = path;
            return 0;
        }
        free(path);
    }
    return 0;
}
