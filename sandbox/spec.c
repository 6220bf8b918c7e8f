#include "sandbox/spec.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const limit_names[] = {
    [LIMIT_MEMORY] = "memory",         [LIMIT_PIDS] = "pids",           [LIMIT_CPUS] = "cpus",
    [LIMIT_CPU_TIME] = "cpu_time",     [LIMIT_WALL] = "wall",           [LIMIT_OUTPUT] = "output",
    [LIMIT_FILE_SIZE] = "file_size",   [LIMIT_OPEN_FILES] = "open_files", [LIMIT_DATA_SIZE] = "data_size",
    [LIMIT_DATA_FILES] = "data_files", [LIMIT_TMP_SIZE] = "tmp_size",
};
static const char *const layer_names[] = {
    [LAYER_USER_NS] = "user_namespace",     [LAYER_MOUNT_NS] = "mount_namespace",
    [LAYER_PID_NS] = "pid_namespace",       [LAYER_NET_NS] = "net_namespace",
    [LAYER_IPC_NS] = "ipc_namespace",       [LAYER_UTS_NS] = "uts_namespace",
    [LAYER_CGROUP_NS] = "cgroup_namespace", [LAYER_READONLY_ROOT] = "readonly_root",
    [LAYER_CAPABILITIES] = "no_capabilities", [LAYER_NO_NEW_PRIVS] = "no_new_privs",
    [LAYER_SECCOMP] = "seccomp",            [LAYER_LANDLOCK] = "landlock",
    [LAYER_CGROUP] = "cgroup",
    [LAYER_OWN_UID] = "own_uid",            [LAYER_OWN_INODES] = "own_inodes",
    [LAYER_OWN_PROC] = "own_proc",          [LAYER_HOST_NAME] = "host_name",
    [LAYER_NET_BUFFERS] = "network_buffers",
};
static const char *const enforcer_names[] = {
    [ENFORCER_NONE] = "none",         [ENFORCER_CGROUP] = "cgroup", [ENFORCER_RLIMIT] = "rlimit",
    [ENFORCER_AFFINITY] = "affinity", [ENFORCER_KERNEL] = "kernel", [ENFORCER_SUPERVISOR] = "supervisor",
};
static const char *const level_names[] = { [LEVEL_FULL] = "full", [LEVEL_NO_PROC] = "no_proc" };
_Static_assert(ARRAY_SIZE(limit_names) == LIMIT_COUNT && ARRAY_SIZE(layer_names) == LAYER_COUNT &&
               ARRAY_SIZE(enforcer_names) == ENFORCER_COUNT && ARRAY_SIZE(level_names) == LEVEL_COUNT,
               "all have a name");

const char *hutch_limit_name(enum sandbox_limit limit)
{
    return limit_names[limit];
}
const char *hutch_layer_name(enum sandbox_layer layer)
{
    return layer_names[layer];
}
const char *hutch_enforcer_name(enum sandbox_enforcer enforcer)
{
    return enforcer_names[enforcer];
}
const char *hutch_level_name(enum sandbox_level level)
{
    return level_names[level];
}

int hutch_spec_set_string(char **field, const char *value, struct hutch_err *err)
{
    char *copy = NULL;

    if (value) {
        copy = strdup(value);
        if (!copy)
            return hutch_err_set(err, ENOMEM, "copy a string of the sandbox description");
    }
    free(*field);
    *field = copy;
    return 0;
}

static void free_list(char **list)
{
    for (size_t i = 0; list && list[i]; i++)
        free(list[i]);
    free(list);
}

int hutch_spec_set_list(char ***field, const char *const *values, size_t n, struct hutch_err *err)
{
    char **copy = calloc(n + 1, sizeof(*copy));

    for (size_t i = 0; copy && i < n; i++) {
        copy[i] = strdup(values[i]);
        if (!copy[i]) {
            free_list(copy);
            copy = NULL;
        }
    }
    if (!copy)
        return hutch_err_set(err, ENOMEM, "copy a list of the sandbox description");
    free_list(*field);
    *field = copy;
    return 0;
}

int hutch_spec_init(struct sandbox_spec *spec, struct hutch_err *err)
{
    *spec = (struct sandbox_spec){ .uid_inside = 1000, .gid_inside = 1000, .limits_need = NEED_TRY, .grace_ms = 2000 };
    for (size_t i = 0; i < LAYER_COUNT; i++)
        spec->layers[i] = NEED_REQUIRE;
    spec->layers[LAYER_LANDLOCK] = NEED_TRY;
    spec->layers[LAYER_CGROUP] = NEED_TRY;
    spec->layers[LAYER_OWN_UID] = NEED_TRY;
    spec->layers[LAYER_OWN_INODES] = NEED_TRY;
    if (hutch_spec_set_string(&spec->hostname, "hutch", err) < 0 || hutch_spec_set_string(&spec->cwd, "/", err) < 0 ||
        hutch_spec_set_list(&spec->masked_paths, NULL, 0, err) < 0 ||
        hutch_spec_set_list(&spec->readonly_paths, NULL, 0, err) < 0 ||
        hutch_spec_set_list(&spec->argv, NULL, 0, err) < 0 || hutch_spec_set_list(&spec->envp, NULL, 0, err) < 0) {
        hutch_spec_done(spec);
        return -1;
    }
    return 0;
}

static void mount_done(struct sandbox_mount *mount)
{
    free(mount->source);
    free(mount->target);
    hutch_fd_closep(&mount->tree_fd);
}

void hutch_spec_done(struct sandbox_spec *spec)
{
    for (size_t i = 0; i < spec->n_mounts; i++)
        mount_done(&spec->mounts[i]);
    free(spec->mounts);
    for (size_t i = 0; i < spec->n_files; i++) {
        free(spec->files[i].target);
        free(spec->files[i].data);
    }
    free(spec->files);
    free(spec->hostname);
    free(spec->rootfs_path);
    free(spec->gpu_found);
    free(spec->cwd);
    free_list(spec->masked_paths);
    free_list(spec->readonly_paths);
    free_list(spec->argv);
    free_list(spec->envp);
    free_list(spec->env_left_out);
    hutch_seccomp_rules_done(&spec->seccomp);
    *spec = (struct sandbox_spec){ 0 };
}

/* Absolute, and without components that mean something else than a name. */
static int check_target(const char *path, struct hutch_err *err)
{
    if (path[0] != '/')
        return hutch_err_set(err, 0, "'%s' is not an absolute path inside the sandbox", path);
    for (const char *p = path; *p;) {
        size_t len;

        while (*p == '/')
            p++;
        len = strcspn(p, "/");
        if ((len == 1 && p[0] == '.') || (len == 2 && p[0] == '.' && p[1] == '.'))
            return hutch_err_set(err, 0, "path '%s' inside the sandbox has a '.' or '..' component", path);
        p += len;
    }
    return 0;
}

bool hutch_spec_path_is_below(const char *path, const char *dir)
{
    size_t len = strlen(dir);

    return strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == '\0' || (len == 1 && dir[0] == '/'));
}

bool hutch_spec_binds(const struct sandbox_spec *spec, unsigned flags)
{
    for (size_t i = 0; i < spec->n_mounts; i++)
        if (spec->mounts[i].kind == MOUNT_BIND &&
            !(spec->mounts[i].flags & (MOUNT_DATA | MOUNT_PUBLIC | MOUNT_LAYER)) &&
            (spec->mounts[i].flags & flags) == flags)
            return true;
    return false;
}

/* Takes what @fresh owns, whether it succeeds or not. */
static struct sandbox_mount *append_mount(struct sandbox_spec *spec, struct sandbox_mount *fresh, struct hutch_err *err)
{
    struct sandbox_mount *bigger = reallocarray(spec->mounts, spec->n_mounts + 1, sizeof(*bigger));

    if (!bigger) {
        hutch_err_set(err, ENOMEM, "add the mount '%s'", fresh->target);
        mount_done(fresh);
        return NULL;
    }
    spec->mounts = bigger;
    spec->mounts[spec->n_mounts] = *fresh;
    return &spec->mounts[spec->n_mounts++];
}

static int make_mount(enum sandbox_mount_kind kind, const char *source, const char *target, unsigned flags,
                      struct sandbox_mount *ret, struct hutch_err *err)
{
    *ret = (struct sandbox_mount){ .kind = kind, .flags = flags, .tree_fd = -1 };
    if (hutch_spec_set_string(&ret->source, source, err) == 0 && hutch_spec_set_string(&ret->target, target, err) == 0)
        return 0;
    mount_done(ret);
    return -1;
}

struct sandbox_mount *hutch_spec_add_mount(struct sandbox_spec *spec, enum sandbox_mount_kind kind, const char *source,
                                           const char *target, unsigned flags, struct hutch_err *err)
{
    struct sandbox_mount fresh;

    if (check_target(target, err) < 0 || make_mount(kind, source, target, flags, &fresh, err) < 0)
        return NULL;
    for (size_t i = 0; i < spec->n_mounts; i++)
        if (strcmp(spec->mounts[i].target, target) == 0 && (target[1] || !(spec->mounts[i].flags & MOUNT_OF_ROOT))) {
            mount_done(&spec->mounts[i]);
            spec->mounts[i] = fresh;
            return &spec->mounts[i];
        }
    return append_mount(spec, &fresh, err);
}

int hutch_spec_add_layer(struct sandbox_spec *spec, const char *source, struct hutch_err *err)
{
    struct sandbox_mount fresh;
    unsigned n = 0;

    for (size_t i = 0; i < spec->n_mounts; i++)
        n += (spec->mounts[i].flags & MOUNT_LAYER) != 0;
    if (n == SPEC_MAX_LAYERS)
        return hutch_err_set(err, E2BIG, "lay more than %d layers over an image", SPEC_MAX_LAYERS);
    if (make_mount(MOUNT_BIND, source, "/", MOUNT_RDONLY | MOUNT_LAYER, &fresh, err) < 0)
        return -1;
    return append_mount(spec, &fresh, err) ? 0 : -1;
}

int hutch_spec_set_changes(struct sandbox_spec *spec, const char *source, struct hutch_err *err)
{
    const struct sandbox_mount *there = hutch_spec_find_changes(spec);
    struct sandbox_mount fresh;

    if (there)
        return hutch_spec_set_string(&spec->mounts[there - spec->mounts].source, source, err);
    if (make_mount(MOUNT_BIND, source, "/", MOUNT_CHANGES | MOUNT_IDMAP, &fresh, err) < 0)
        return -1;
    return append_mount(spec, &fresh, err) ? 0 : -1;
}

const struct sandbox_mount *hutch_spec_find_changes(const struct sandbox_spec *spec)
{
    for (size_t i = 0; i < spec->n_mounts; i++)
        if (spec->mounts[i].flags & MOUNT_CHANGES)
            return &spec->mounts[i];
    return NULL;
}

int hutch_spec_copy_layers(const struct sandbox_spec *from, struct sandbox_spec *to, struct hutch_err *err)
{
    for (size_t i = 0; i < from->n_mounts; i++)
        if ((from->mounts[i].flags & MOUNT_LAYER) && hutch_spec_add_layer(to, from->mounts[i].source, err) < 0)
            return -1;
    return 0;
}

int hutch_spec_add_file(struct sandbox_spec *spec, const char *target, const char *data, size_t len, mode_t mode,
                        struct hutch_err *err)
{
    struct sandbox_file fresh = { .len = len, .mode = mode };
    struct sandbox_file *bigger;

    if (check_target(target, err) < 0)
        return -1;
    fresh.target = strdup(target);
    fresh.data = malloc(len + 1);
    bigger = reallocarray(spec->files, spec->n_files + 1, sizeof(*bigger));
    if (bigger)
        spec->files = bigger;
    if (!fresh.target || !fresh.data || !bigger) {
        free(fresh.target);
        free(fresh.data);
        return hutch_err_set(err, ENOMEM, "add the file '%s'", target);
    }
    if (len)
        memcpy(fresh.data, data, len);
    fresh.data[len] = '\0';
    spec->files[spec->n_files++] = fresh;
    return 0;
}

static char **find_env(const struct sandbox_spec *spec, const char *name)
{
    size_t len = strlen(name);

    for (char **e = spec->envp; e && *e; e++)
        if (strncmp(*e, name, len) == 0 && (*e)[len] == '=')
            return e;
    return NULL;
}

const char *hutch_spec_get_env(const struct sandbox_spec *spec, const char *name)
{
    char **entry = find_env(spec, name);

    return entry ? *entry + strlen(name) + 1 : NULL;
}

int hutch_spec_set_env(struct sandbox_spec *spec, const char *name, const char *value, struct hutch_err *err)
{
    size_t name_len = strlen(name), value_len = strlen(value), n = 0;
    char **entry, **bigger;
    char *text;

    if (name_len == 0 || strchr(name, '='))
        return hutch_err_set(err, 0, "'%s' is not the name of an environment variable", name);
    text = malloc(name_len + 1 + value_len + 1);
    if (!text)
        return hutch_err_set(err, ENOMEM, "set the environment variable '%s'", name);
    memcpy(text, name, name_len);
    text[name_len] = '=';
    memcpy(text + name_len + 1, value, value_len + 1);
    entry = find_env(spec, name);
    if (entry) {
        free(*entry);
        *entry = text;
        return 0;
    }
    while (spec->envp && spec->envp[n])
        n++;
    bigger = reallocarray(spec->envp, n + 2, sizeof(*bigger));
    if (!bigger) {
        free(text);
        return hutch_err_set(err, ENOMEM, "set the environment variable '%s'", name);
    }
    bigger[n] = text;
    bigger[n + 1] = NULL;
    spec->envp = bigger;
    return 0;
}
