#include "sandbox/execute.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

int hutch_execute(const char *path, char *const *argv, char *const *envp)
{
    const char *file = argv[0];
    int result = ENOENT;
    char full[PATH_MAX];

    if (strchr(file, '/')) {
        execve(file, argv, envp);
        return errno;
    }
    for (path = path ? path : "/usr/local/bin:/usr/bin:/bin"; *path;) {
        size_t len = strcspn(path, ":");

        if (len > 0 && len + 1 + strlen(file) < sizeof(full)) {
            memcpy(full, path, len);
            full[len] = '/';
            strcpy(full + len + 1, file);
            execve(full, argv, envp);
            if (errno != ENOENT && errno != ENOTDIR)
                result = errno;
        }
        path += len + (path[len] == ':');
    }
    return result;
}
