#include "runtime/cli/places.h"

#include "sandbox/fd.h"
#include "sandbox/installed.h"

int hutch_places_launcher(char **ret, struct hutch_err *err)
{
    static const char *const below[] = { "hutch-launcher", "../libexec/hutch-launcher" };
    char own[PATH_MAX];

    *ret = NULL;
    return hutch_installed_program(own) ? hutch_installed_find(own, below, ARRAY_SIZE(below), ret, err) : 0;
}
