#include "runtime/lib/installed.h"

#include "sandbox/fd.h"
#include "sandbox/installed.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The file that this code was loaded from. False: it cannot be told. */
static bool find_own_file(char ret[PATH_MAX])
{
    Dl_info info;

    /* Of a program, dladdr(3) knows what it was called as, which may be any text. */
    if (dladdr((const void *)&find_own_file, &info) && info.dli_fname && strstr(info.dli_fname, "/libhutch.so") &&
        realpath(info.dli_fname, ret))
        return true;
    return hutch_installed_program(ret);
}

int hutch_lib_find(const char *below, char **ret, struct hutch_err *err)
{
    static const char *const usual[] = { "/usr/local", "/usr" };
    char own[PATH_MAX], near[PATH_MAX], far[PATH_MAX], path[PATH_MAX];
    const char *const beside[] = { near, far };
    bool is_there = false;

    snprintf(near, sizeof(near), "../%s", below);   /* PREFIX/lib/libhutch.so.1 */
    snprintf(far, sizeof(far), "../../%s", below);  /* PREFIX/lib/TRIPLET/libhutch.so.1 */
    *ret = NULL;
    if (find_own_file(own) && hutch_installed_find(own, beside, ARRAY_SIZE(beside), ret, err) < 0)
        return -1;
    if (*ret)
        return 0;
    for (size_t i = 0; !is_there && i < ARRAY_SIZE(usual); i++) {
        snprintf(path, sizeof(path), "%s/%s", usual[i], below);
        is_there = access(path, F_OK) == 0;
    }
    if (!is_there)
        snprintf(path, sizeof(path), "%s/%s", usual[0], below);
    *ret = strdup(path);
    return *ret ? 0 : hutch_err_set(err, ENOMEM, "find '%s'", below);
}
