#include "runtime/config/policy_find.h"

#include "sandbox/fd.h"
#include "sandbox/installed.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_NAME_LEN 64

/* "default, strict, trusted": what there is instead of a name that is not. */
static void list_names(const char *dir, char *buf, size_t size)
{
    struct dirent **entries = NULL;
    int n = scandir(dir, &entries, NULL, alphasort);
    size_t used = 0;

    buf[0] = '\0';
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name, *dot = strrchr(name, '.');

        /* The seccomp profiles live beside the policies. */
        if (dot && dot != name && strcmp(dot, ".json") == 0 && strncmp(name, "seccomp", 7) != 0 && used < size)
            used += (size_t)snprintf(buf + used, size - used, "%s%.*s", used ? ", " : "", (int)(dot - name), name);
        free(entries[i]);
    }
    free(entries);
}

static bool is_name(const char *text)
{
    size_t len = strlen(text);

    return len > 0 && len <= MAX_NAME_LEN && text[0] != '.' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == len;
}

int hutch_policy_find(const char *name_or_path, const char *policy_dir, const char *base_dir, char **ret,
                      struct hutch_err *err)
{
    auto_free char *path = NULL;
    char known[200];
    int n;

    if (!strchr(name_or_path, '/')) {
        if (!is_name(name_or_path))
            return hutch_err_set(err, 0, "'%.*s' is not the name of a policy; write a path with a '/' for a file",
                                 MAX_NAME_LEN, name_or_path);
        n = asprintf(&path, "%s/%s.json", policy_dir, name_or_path);
        if (n >= 0 && access(path, F_OK) < 0 && errno == ENOENT) {
            list_names(policy_dir, known, sizeof(known));
            hutch_err_set(err, 0, "there is no policy '%s' in '%s' (there are: %s%s)", name_or_path, policy_dir,
                          known[0] ? known : "none",
                          access(name_or_path, F_OK) == 0 ? "; a file is named with a '/', as in './policy.json'" : "");
            err->errnum = ENOENT;
            return -1;
        }
    } else if (name_or_path[0] != '/' && base_dir) {
        bool has_dot = strncmp(name_or_path, "./", 2) == 0;

        n = asprintf(&path, "%s/%s", base_dir, has_dot ? name_or_path + 2 : name_or_path);
    } else {
        n = asprintf(&path, "%s", name_or_path);
    }
    if (n < 0) {
        path = NULL;
        return hutch_err_set(err, ENOMEM, "find the policy '%s'", name_or_path);
    }
    *ret = path;
    path = NULL;
    return 0;
}

char *hutch_policy_directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

int hutch_policy_dir(char **ret, struct hutch_err *err)
{
    static const char *const below[] = { "../share/hutch-data/policies", "../policies" };
    const char *given = getenv("HUTCH_POLICY_DIR");
    char own[PATH_MAX];
    auto_free char *dir = NULL;
    struct stat st;

    if (given && *given) {
        if (stat(given, &st) < 0)
            return hutch_err_set(err, errno, "HUTCH_POLICY_DIR names '%s'", given);
        if (!S_ISDIR(st.st_mode))
            return hutch_err_set(err, ENOTDIR, "HUTCH_POLICY_DIR names '%s'", given);
        *ret = strdup(given);
        return *ret ? 0 : hutch_err_set(err, ENOMEM, "find the policies");
    }
    if (!hutch_installed_program(own))
        return hutch_err_set(err, errno,
                             "find the policies: read '/proc/self/exe' (HUTCH_POLICY_DIR can name them)");
    if (hutch_installed_find(own, below, ARRAY_SIZE(below), ret, err) < 0)
        return -1;
    if (*ret)
        return 0;
    dir = hutch_policy_directory_of(own);
    return hutch_err_set(err, ENOENT,
                         "find the policies: neither '%s/%s' nor '%s/%s' is there and came with hutch, by its owner "
                         "and mode (HUTCH_POLICY_DIR can name them)",
                         dir ? dir : "", below[0], dir ? dir : "", below[1]);
}
