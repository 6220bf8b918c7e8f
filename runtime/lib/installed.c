#include "runtime/lib/installed.h"

#include "sandbox/fd.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The file that this code was loaded from. False: it cannot be told. */
static bool find_own_file(char ret[PATH_MAX])
{
    Dl_info info;
    ssize_t n;

    /* Of a program, dladdr(3) knows what it was called as, which may be any text. */
    if (dladdr((const void *)&find_own_file, &info) && info.dli_fname && strstr(info.dli_fname, "/libhutch.so") &&
        realpath(info.dli_fname, ret))
        return true;
    n = readlink("/proc/self/exe", ret, PATH_MAX - 1);
    if (n > 0)
        ret[n] = '\0';
    return n > 0;
}

int hutch_installed_find(const char *below, char **ret, struct hutch_err *err)
{
    char own[PATH_MAX], file[PATH_MAX], path[2 * PATH_MAX];
    static const char *const prefixes[] = { "/usr/local", "/usr" };
    char *slash = find_own_file(own) ? strrchr(own, '/') : NULL;

    if (slash)
        strcpy(file, own);
    for (int level = 0; slash && level < 3; level++) { /* PREFIX/lib/TRIPLET/libhutch.so.1 */
        *slash = '\0';
        snprintf(path, sizeof(path), "%s/%s", own, below);
        if (level > 0 && hutch_fd_is_installed_with(path, file))
            break; /* not what somebody has put above, as below /tmp */
        slash = strrchr(own, '/');
        path[0] = '\0';
    }
    if (!slash)
        path[0] = '\0';
    for (size_t i = 0; !path[0] && i < ARRAY_SIZE(prefixes); i++) {
        snprintf(path, sizeof(path), "%s/%s", prefixes[i], below);
        if (access(path, F_OK) < 0)
            path[0] = '\0';
    }
    if (!path[0])
        snprintf(path, sizeof(path), "%s/%s", prefixes[0], below);
    *ret = strdup(path);
    return *ret ? 0 : hutch_err_set(err, ENOMEM, "find '%s'", below);
}
