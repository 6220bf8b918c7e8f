#include "runtime/cli/rootfs_script.h"

#include "sandbox/fd.h"
#include "sandbox/installed.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int find(const char *name, int mode, char **ret, struct hutch_err *err)
{
    const char *given = getenv("HUTCH_ROOTFS_DIR");
    char own[PATH_MAX], installed[64], built[64];
    const char *const below[] = { installed, built };

    *ret = NULL;
    if (given && *given) {
        if (asprintf(ret, "%s/%s", given, name) < 0)
            return hutch_err_set(err, ENOMEM, "find %s", name);
        if (access(*ret, mode) < 0)
            return hutch_err_set(err, errno, "HUTCH_ROOTFS_DIR names '%s', where no %s can be %s", given, name,
                                 mode == X_OK ? "run" : "read");
        return 0;
    }
    snprintf(installed, sizeof(installed), "../share/hutch-data/rootfs/%s", name);
    snprintf(built, sizeof(built), "../rootfs/%s", name);
    if (!hutch_installed_program(own))
        return hutch_err_set(err, errno, "read '/proc/self/exe' to find %s (HUTCH_ROOTFS_DIR can name its directory)",
                             name);
    if (hutch_installed_find(own, below, ARRAY_SIZE(below), ret, err) < 0)
        return -1;
    if (*ret)
        return 0;
    *strrchr(own, '/') = '\0';
    return hutch_err_set(err, ENOENT,
                         "find %s: neither '%s/%s' nor '%s/%s' is there and came with hutch, by its owner and "
                         "mode (HUTCH_ROOTFS_DIR can name its directory)",
                         name, own, below[0], own, below[1]);
}

int hutch_rootfs_script_find(const char *name, int mode, char **ret, struct hutch_err *err)
{
    auto_free char *found = NULL;

    *ret = NULL;
    if (find(name, mode, &found, err) < 0)
        return -1;
    *ret = realpath(found, NULL);
    return *ret ? 0 : hutch_err_set(err, errno, "look at '%s'", found);
}
