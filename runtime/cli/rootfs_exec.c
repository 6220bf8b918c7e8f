#include "runtime/cli/rootfs_exec.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

int hutch_cmd_rootfs_exec(int argc, char **argv, struct hutch_err *err)
{
    static const char name[] = "/hutch-rootfs";
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - sizeof(name));
    char *slash = n > 0 ? memrchr(path, '/', (size_t)n) : NULL;

    (void)argc;
    if (!slash)
        return hutch_err_set(err, errno, "find hutch-rootfs beside this program: read '/proc/self/exe'");
    strcpy(slash, name);
    execv(path, argv);
    return hutch_err_set(err, errno, "execute '%s'", path);
}
