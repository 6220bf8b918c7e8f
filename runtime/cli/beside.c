#include "runtime/cli/beside.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#define MAX_NAME 32

static int execute(const char *name, char **argv, struct hutch_err *err)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - MAX_NAME);
    char *slash = n > 0 ? memrchr(path, '/', (size_t)n) : NULL;

    if (!slash)
        return hutch_err_set(err, errno, "find %s beside this program: read '/proc/self/exe'", name);
    strcpy(slash + 1, name);
    execv(path, argv);
    return hutch_err_set(err, errno, "execute '%s'", path);
}

int hutch_cmd_rootfs_beside(int argc, char **argv, struct hutch_err *err)
{
    (void)argc;
    return execute("hutch-rootfs", argv, err);
}

int hutch_cmd_serve_beside(int argc, char **argv, struct hutch_err *err)
{
    (void)argc;
    return execute("hutch-serve", argv, err);
}
