#include "runtime/gateway/route.h"

#include "runtime/gateway/uri.h"
#include "sandbox/fd.h"

#include <stdio.h>
#include <string.h>

/* A piece of @path for each parameter of @pattern; how many, -1 when they do not match. */
static int match(const char *pattern, const char *path, const char *starts[ROUTE_MAX_PARAMS],
                 size_t lens[ROUTE_MAX_PARAMS])
{
    int n = 0;

    while (*pattern) {
        const char *end = strchr(pattern, '}');

        if (*pattern != '{') {
            if (*pattern++ != *path++)
                return -1;
            continue;
        }
        starts[n] = path;
        lens[n] = end[-1] == '*' ? strlen(path) : strcspn(path, "/");
        if (lens[n] == 0)
            return -1;
        path += lens[n++];
        pattern = end + 1;
    }
    return *path ? -1 : n;
}

static bool takes(const struct route *route, const char *method)
{
    return strcmp(route->method, method) == 0 || (strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0);
}

int hutch_route_find(const struct route *routes, size_t n, const char *method, const char *path,
                     const struct route **ret_route, bool *ret_other, char *params[ROUTE_MAX_PARAMS],
                     struct hutch_err *err)
{
    const char *starts[ROUTE_MAX_PARAMS];
    size_t lens[ROUTE_MAX_PARAMS];

    *ret_route = NULL;
    *ret_other = false;
    for (size_t i = 0; i < n; i++) {
        int n_params = match(routes[i].path, path, starts, lens);

        if (n_params < 0)
            continue;
        if (!takes(&routes[i], method)) {
            *ret_other = true;
            continue;
        }
        for (int k = 0; k < n_params; k++) {
            params[k] = hutch_uri_decode(starts[k], lens[k], err);
            if (!params[k])
                return -1;
        }
        *ret_route = &routes[i];
        return 0;
    }
    return 0;
}

void hutch_route_methods(const struct route *routes, size_t n, const char *path, char *to, size_t size)
{
    const char *starts[ROUTE_MAX_PARAMS];
    size_t lens[ROUTE_MAX_PARAMS], used = 0;

    to[0] = '\0';
    for (size_t i = 0; i < n && used < size; i++)
        if (match(routes[i].path, path, starts, lens) >= 0)
            used += (size_t)snprintf(to + used, size - used, "%s%s%s", used ? ", " : "", routes[i].method,
                                     strcmp(routes[i].method, "GET") == 0 ? ", HEAD" : "");
}
