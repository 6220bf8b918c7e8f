#include "rootfs/home.h"

#include "sandbox/fd.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The value of @name; NULL when unset or empty. XDG says a relative path is to be ignored, but a store that is
 * quietly somewhere else is worse than an error. */
static int path_variable(const char *name, const char **ret, struct hutch_err *err)
{
    const char *value = getenv(name);

    *ret = NULL;
    if (!value || value[0] == '\0')
        return 0;
    if (value[0] != '/')
        return hutch_err_set(err, 0, "%s is '%s', which is not an absolute path", name, value);
    *ret = value;
    return 0;
}

static int join(const char *base, const char *below, char **ret, struct hutch_err *err)
{
    if (asprintf(ret, "%s%s", base, below) < 0) {
        *ret = NULL;
        return hutch_err_set(err, ENOMEM, "find hutch's home directory");
    }
    return 0;
}

int hutch_home_path(char **ret_path, struct hutch_err *err)
{
    const char *value;
    struct passwd *pw;

    if (path_variable("HUTCH_HOME", &value, err) < 0)
        return -1;
    if (value)
        return join(value, "", ret_path, err);
    if (path_variable("XDG_DATA_HOME", &value, err) < 0)
        return -1;
    if (value)
        return join(value, "/hutch", ret_path, err);
    if (path_variable("HOME", &value, err) < 0)
        return -1;
    if (value)
        return join(value, "/.local/share/hutch", ret_path, err);
    pw = getpwuid(geteuid());
    if (pw && pw->pw_dir && pw->pw_dir[0] == '/')
        return join(pw->pw_dir, "/.local/share/hutch", ret_path, err);
    return hutch_err_set(err, ENOENT, "find hutch's home directory (set HUTCH_HOME)");
}

static int make_with_parents(const char *path, struct hutch_err *err)
{
    auto_free char *partial = strdup(path);

    if (!partial)
        return hutch_err_set(err, ENOMEM, "create '%s'", path);
    for (char *slash = partial; slash;) {
        slash = strchr(slash + 1, '/');
        if (slash)
            *slash = '\0';
        if (mkdir(partial, 0700) < 0) {
            int why = errno;

            if (why != EEXIST && access(partial, F_OK) < 0)
                return hutch_err_set(err, why, "create '%s'", partial);
        }
        if (slash)
            *slash = '/';
    }
    return 0;
}

int hutch_home_create(const char *path, int *ret_dirfd, char **ret_real, struct hutch_err *err)
{
    auto_fd dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_free char *real = NULL;

    if (dirfd < 0 && errno == ENOENT) {
        if (make_with_parents(path, err) < 0)
            return hutch_err_wrap(err, "make hutch's home directory '%s' (HUTCH_HOME names another)", path);
        dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (dirfd < 0)
        return hutch_err_set(err, errno, "open hutch's home directory '%s' (HUTCH_HOME names another)", path);
    real = realpath(path, NULL);
    if (!real)
        return hutch_err_set(err, errno, "resolve '%s'", path);
    *ret_dirfd = hutch_fd_take(&dirfd);
    *ret_real = real;
    real = NULL;
    return 0;
}
