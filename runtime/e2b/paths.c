#include "runtime/e2b/paths.h"

#include "runtime/e2b/sandbox.h"
#include "sandbox/fd.h"

#include <string.h>

#define DATA "/mnt/data"

char *hutch_e2b_path_absolute(const char *path, struct hutch_err *err)
{
    size_t len = strlen(path), begin = path[0] == '/' ? 0 : strlen(E2B_HOME);
    char *absolute, *to;

    if (len == 0 || len >= E2B_MAX_PATH) {
        hutch_err_set(err, 0, len ? "the path is longer than %d bytes" : "the path is empty",
                      E2B_MAX_PATH - 1);
        return NULL;
    }
    absolute = malloc(begin + len + 3);
    if (!absolute) {
        hutch_err_set(err, ENOMEM, "read a path");
        return NULL;
    }
    memcpy(absolute, E2B_HOME, begin);
    to = absolute + begin;
    while (*path) {
        size_t n = strcspn(path, "/");

        if (n == 2 && path[0] == '.' && path[1] == '.') {
            free(absolute);
            hutch_err_set(err, 0, "the path has a part that is '..'");
            return NULL;
        }
        if (n > 0 && !(n == 1 && path[0] == '.')) {
            *to++ = '/';
            to = mempcpy(to, path, n);
        }
        path += n + (path[n] == '/');
    }
    if (to == absolute)
        *to++ = '/';
    *to = '\0';
    return absolute;
}

const char *hutch_e2b_path_in_data(const char *absolute)
{
    static const char *const places[] = { E2B_HOME "/", DATA "/" };

    for (size_t i = 0; i < ARRAY_SIZE(places); i++)
        if (strncmp(absolute, places[i], strlen(places[i])) == 0)
            return absolute + strlen(places[i]);
    return NULL;
}

const char *hutch_e2b_path_name(const char *absolute)
{
    return strrchr(absolute, '/') + 1;
}
