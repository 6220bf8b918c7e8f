#include "runtime/cli/beside.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int hutch_beside_find(const char *name, char ret_path[PATH_MAX], struct hutch_err *err)
{
    const size_t room = PATH_MAX - strlen(name) - 1;
    ssize_t n = readlink("/proc/self/exe", ret_path, room);
    char *slash = n > 0 ? memrchr(ret_path, '/', (size_t)n) : NULL;

    if (!slash)
        return hutch_err_set(err, errno, "find %s beside this program: read '/proc/self/exe'", name);
    strcpy(slash + 1, name);
    return 0;
}

static int execute(const char *name, char **argv, struct hutch_err *err)
{
    char path[PATH_MAX];

    if (hutch_beside_find(name, path, err) < 0)
        return -1;
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
