#include "runtime/config/oci_config.h"

#include "runtime/config/oci_gaps.h"
#include "runtime/config/seccomp_json.h"
#include "runtime/text/json_write.h"
#include "runtime/text/utf8.h"
#include "sandbox/fd.h"
#include "sandbox/mounts.h"
#include "sandbox/netns.h"
#include "sandbox/rlimits.h"
#include "sandbox/sandbox.h"
#include "sandbox/spec.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* RLIMIT_DATA is so many times the limit on memory, as nothing of hutch's counts what is in use there, and what is
 * refused by it fails in ways that many libraries do not look at. Not RLIMIT_AS, which counts address space that is not
 * writable, too. Counts mmap(2) since Linux 4.7. */
#define DATA_FACTOR 16

#define OCI_VERSION   "1.0.2"
#define CPU_PERIOD_US 100000u

/* Functions that add return false on ENOMEM, as those of json_write.h do. */

bool hutch_oci_config_has_files(const struct sandbox_spec *spec, size_t i)
{
    for (size_t f = 0; f < spec->n_files; f++)
        if (spec->mounts[i].kind == MOUNT_TMPFS &&
            hutch_spec_path_is_below(spec->files[f].target, spec->mounts[i].target))
            return true;
    return false;
}

/* --- what can be said at all ------------------------------------------------------------------------------------ */

static int check_text(const char *text, struct hutch_err *err)
{
    if (hutch_utf8_is_valid(text, strlen(text)))
        return 0;
    return hutch_err_set(err, 0, "'%s' is not UTF-8, and config.json takes nothing else", text);
}

static int check_list(char *const *list, struct hutch_err *err)
{
    for (; list && *list; list++)
        if (check_text(*list, err) < 0)
            return -1;
    return 0;
}

static int check_mounts(const struct sandbox_spec *spec, struct hutch_err *err)
{
    for (size_t i = 0; i < spec->n_mounts; i++) {
        const struct sandbox_mount *m = &spec->mounts[i];

        if (check_text(m->target, err) < 0 || (m->source && check_text(m->source, err) < 0))
            return -1;
        if (hutch_oci_config_has_files(spec, i) && !(m->flags & MOUNT_RDONLY))
            return hutch_err_set(err, 0, "an OCI config cannot put files into '%s', which can be written", m->target);
    }
    for (size_t f = 0; f < spec->n_files; f++)
        if (check_text(spec->files[f].target, err) < 0)
            return -1;
    return 0;
}

static int check(const struct sandbox_spec *spec, const char *root_path, struct hutch_err *err)
{
    if (hutch_oci_gaps_refuse(spec, err) < 0 || check_text(root_path, err) < 0 || check_text(spec->cwd, err) < 0 ||
        check_list(spec->argv, err) < 0 || check_list(spec->envp, err) < 0 || check_list(spec->masked_paths, err) < 0 ||
        check_list(spec->readonly_paths, err) < 0 || check_mounts(spec, err) < 0)
        return -1;
    return 0;
}

/* --- process ---------------------------------------------------------------------------------------------------- */

static bool add_list(cJSON *object, const char *key, char *const *texts)
{
    cJSON *list = hutch_json_add_new(object, key, cJSON_CreateArray());
    bool ok = list != NULL;

    for (; texts && *texts; texts++)
        ok = ok && hutch_json_append_string(list, *texts);
    return ok;
}

static bool add_capabilities(cJSON *process)
{
    static const char *const sets[] = { "bounding", "effective", "inheritable", "permitted", "ambient" };
    cJSON *capabilities = hutch_json_add_new(process, "capabilities", cJSON_CreateObject());
    bool ok = true;

    for (size_t i = 0; i < ARRAY_SIZE(sets); i++)
        ok &= hutch_json_add(capabilities, sets[i], cJSON_CreateArray());
    return ok;
}

/* All limits, as if no cgroup counted: whether the runtime has one is not known here. */
static bool add_rlimits(cJSON *process, const struct sandbox_spec *spec)
{
    static const struct { int which; const char *name; } types[] = {
        { RLIMIT_CORE, "RLIMIT_CORE" },         { RLIMIT_CPU, "RLIMIT_CPU" },
        { RLIMIT_DATA, "RLIMIT_DATA" },         { RLIMIT_FSIZE, "RLIMIT_FSIZE" },
        { RLIMIT_MEMLOCK, "RLIMIT_MEMLOCK" },   { RLIMIT_MSGQUEUE, "RLIMIT_MSGQUEUE" },
        { RLIMIT_NICE, "RLIMIT_NICE" },         { RLIMIT_NOFILE, "RLIMIT_NOFILE" },
        { RLIMIT_NPROC, "RLIMIT_NPROC" },       { RLIMIT_RTPRIO, "RLIMIT_RTPRIO" },
        { RLIMIT_SIGPENDING, "RLIMIT_SIGPENDING" },
    };
    cJSON *list = hutch_json_add_new(process, "rlimits", cJSON_CreateArray());
    struct rlimit_plan plan;
    bool ok = list != NULL;

    hutch_rlimits_plan(spec, true, &plan);
    if (spec->limits[LIMIT_MEMORY])
        plan.max[RLIMIT_DATA] = spec->limits[LIMIT_MEMORY] * DATA_FACTOR;
    if (spec->limits[LIMIT_PIDS]) /* there is no init of hutch's beside the program */
        plan.max[RLIMIT_NPROC] = spec->limits[LIMIT_PIDS];
    for (size_t i = 0; ok && i < ARRAY_SIZE(types); i++) {
        rlim_t hard = plan.max[types[i].which];
        cJSON *one;

        if (hard == RLIM_INFINITY)
            continue;
        one = cJSON_CreateObject();
        ok = hutch_json_add_string(one, "type", types[i].name) && hutch_json_add_u64(one, "hard", hard) &&
             /* SIGXCPU, which says why; SIGKILL a second later */
             hutch_json_add_u64(one, "soft", types[i].which == RLIMIT_CPU && hard > 1 ? hard - 1 : hard) &&
             cJSON_AddItemToArray(list, one);
        if (!ok)
            cJSON_Delete(one);
    }
    return ok;
}

static bool add_process(cJSON *root, const struct sandbox_spec *spec)
{
    cJSON *process = hutch_json_add_new(root, "process", cJSON_CreateObject());
    cJSON *user = hutch_json_add_new(process, "user", cJSON_CreateObject());

    return hutch_json_add_bool(process, "terminal", false) && hutch_json_add_u64(user, "uid", spec->uid_inside) &&
           hutch_json_add_u64(user, "gid", spec->gid_inside) && hutch_json_add_u64(user, "umask", 022) &&
           add_list(process, "args", spec->argv) && add_list(process, "env", spec->envp) &&
           hutch_json_add_string(process, "cwd", spec->cwd) && add_capabilities(process) &&
           add_rlimits(process, spec) && hutch_json_add_bool(process, "noNewPrivileges", true);
}

/* --- mounts ----------------------------------------------------------------------------------------------------- */

#define MAX_OPTIONS 12

struct options {
    char texts[MAX_OPTIONS][32];
    size_t n;
};

static void add_option(struct options *options, const char *fmt, ...) HUTCH_PRINTF(2, 3);
static void add_option(struct options *options, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(options->texts[options->n++], sizeof(options->texts[0]), fmt, args);
    va_end(args);
}

static bool add_mount(cJSON *mounts, const char *target, const char *type, const char *source,
                      const struct options *options)
{
    cJSON *mount = cJSON_CreateObject(), *list = NULL;
    bool ok = hutch_json_add_string(mount, "destination", target) && hutch_json_add_string(mount, "type", type) &&
              hutch_json_add_string(mount, "source", source) &&
              (list = hutch_json_add_new(mount, "options", cJSON_CreateArray())) != NULL;

    for (size_t i = 0; ok && i < options->n; i++)
        ok = hutch_json_append_string(list, options->texts[i]);
    if (ok && cJSON_AddItemToArray(mounts, mount))
        return true;
    cJSON_Delete(mount);
    return false;
}

/* The defaults are those of the sandbox's own, mounts.c. It belongs to the program, as there: runc before 1.2 gives a
 * tmpfs the mode of the directory below it, whatever the option says. @owner NULL: it is the runtime's. */
static bool add_tmpfs(cJSON *mounts, const char *target, uint64_t bytes, uint64_t inodes, mode_t mode, unsigned flags,
                      const struct sandbox_spec *owner)
{
    struct options options = { .n = 0 };

    add_option(&options, "nosuid");
    add_option(&options, "nodev");
    if (flags & MOUNT_NOEXEC)
        add_option(&options, "noexec");
    if (flags & MOUNT_RDONLY)
        add_option(&options, "ro");
    /* A data directory without a limit has what tmpfs(5) has: half of the host's memory. */
    bytes = bytes || flags & MOUNT_DATA ? bytes : MOUNTS_DEFAULT_TMPFS_BYTES;
    inodes = inodes || !bytes ? inodes : bytes / 4096 + 16;
    if (bytes)
        add_option(&options, "size=%" PRIu64, bytes);
    if (inodes)
        add_option(&options, "nr_inodes=%" PRIu64, inodes);
    add_option(&options, "mode=%o", mode ? mode : 0755);
    if (owner) {
        add_option(&options, "uid=%u", owner->uid_inside);
        add_option(&options, "gid=%u", owner->gid_inside);
    }
    return add_mount(mounts, target, "tmpfs", "tmpfs", &options);
}

/* The runtime makes the devices and links in it: null, zero, full, random, urandom and tty. */
static bool add_dev(cJSON *mounts, const struct sandbox_spec *spec, const struct sandbox_mount *m)
{
    struct options pts = { .n = 0 };

    add_option(&pts, "nosuid");
    add_option(&pts, "noexec");
    add_option(&pts, "newinstance");
    add_option(&pts, "ptmxmode=0666");
    add_option(&pts, "mode=0620");
    add_option(&pts, "max=%s", MOUNTS_MAX_PTYS);
    return add_tmpfs(mounts, m->target, 65536, 64, 0755, MOUNT_NOEXEC | MOUNT_RDONLY, NULL) &&
           add_mount(mounts, "/dev/pts", "devpts", "devpts", &pts) &&
           add_tmpfs(mounts, "/dev/shm", m->size_bytes, m->inodes, 01777, MOUNT_NOEXEC, spec);
}

static bool add_bind(cJSON *mounts, const char *target, const char *source, unsigned flags)
{
    struct options options = { .n = 0 };

    /* With all that is mounted below the source. */
    add_option(&options, "rbind");
    add_option(&options, "rprivate");
    add_option(&options, "rnosuid");
    add_option(&options, "rnodev");
    if (flags & MOUNT_NOEXEC)
        add_option(&options, "rnoexec");
    add_option(&options, "rro");
    return add_mount(mounts, target, "bind", source, &options);
}

static bool add_proc(cJSON *mounts, const char *target)
{
    struct options options = { .n = 0 };

    add_option(&options, "nosuid");
    add_option(&options, "nodev");
    add_option(&options, "noexec");
    return add_mount(mounts, target, "proc", "proc", &options);
}

static bool add_one(cJSON *mounts, const struct sandbox_spec *spec, size_t i)
{
    const struct sandbox_mount *m = &spec->mounts[i];
    char files[PATH_MAX];

    if (hutch_oci_config_has_files(spec, i)) {
        snprintf(files, sizeof(files), OCI_FILES_DIR "%s", m->target);
        return add_bind(mounts, m->target, files, m->flags);
    }
    switch (m->kind) {
    case MOUNT_PROC:
        return add_proc(mounts, m->target);
    case MOUNT_DEV:
        return add_dev(mounts, spec, m);
    case MOUNT_TMPFS:
        return add_tmpfs(mounts, m->target, m->size_bytes, m->inodes, m->mode, m->flags, spec);
    case MOUNT_BIND:
        return add_bind(mounts, m->target, m->source, m->flags);
    case MOUNT_SYMLINK:
        break;
    }
    return true; /* refused by hutch_oci_gaps_refuse() */
}

static bool add_mounts(cJSON *root, const struct sandbox_spec *spec)
{
    cJSON *mounts = hutch_json_add_new(root, "mounts", cJSON_CreateArray());
    bool ok = mounts != NULL;

    for (size_t i = 0; ok && i < spec->n_mounts; i++)
        ok = add_one(mounts, spec, i);
    return ok;
}

/* --- linux ------------------------------------------------------------------------------------------------------ */

static bool add_namespaces(cJSON *linux_part, const struct sandbox_spec *spec)
{
    static const char *const types[] = { "user", "mount", "pid", "ipc", "uts", "cgroup", "network" };
    cJSON *list = hutch_json_add_new(linux_part, "namespaces", cJSON_CreateArray());
    size_t n = ARRAY_SIZE(types) - (spec->network == NETWORK_HOST);

    for (size_t i = 0; list && i < n; i++) {
        cJSON *one = cJSON_CreateObject();

        if (!hutch_json_add_string(one, "type", types[i]) || !cJSON_AddItemToArray(list, one)) {
            cJSON_Delete(one);
            return false;
        }
    }
    return list != NULL;
}

static bool add_map(cJSON *linux_part, const char *key, const unsigned inside[2], const unsigned outside[2])
{
    cJSON *list = hutch_json_add_new(linux_part, key, cJSON_CreateArray());

    for (size_t i = 0; list && i < 2; i++) {
        cJSON *one = cJSON_CreateObject();

        if (!hutch_json_add_u64(one, "containerID", inside[i]) || !hutch_json_add_u64(one, "hostID", outside[i]) ||
            !hutch_json_add_u64(one, "size", 1) || !cJSON_AddItemToArray(list, one)) {
            cJSON_Delete(one);
            return false;
        }
    }
    return list != NULL;
}

static bool add_maps(cJSON *linux_part, const struct sandbox_spec *spec, const struct oci_ids *ids)
{
    return add_map(linux_part, "uidMappings", (const unsigned[]){ 0, spec->uid_inside },
                   (const unsigned[]){ ids->runtime_uid, ids->uid }) &&
           add_map(linux_part, "gidMappings", (const unsigned[]){ 0, spec->gid_inside },
                   (const unsigned[]){ ids->runtime_gid, ids->gid });
}

static bool add_resources(cJSON *linux_part, const struct sandbox_spec *spec)
{
    const uint64_t *limits = spec->limits;
    cJSON *resources = hutch_json_add_new(linux_part, "resources", cJSON_CreateObject()), *one;
    bool ok = resources != NULL;

    if (limits[LIMIT_MEMORY]) {
        one = hutch_json_add_new(resources, "memory", cJSON_CreateObject());
        ok &= hutch_json_add_u64(one, "limit", limits[LIMIT_MEMORY]);
        ok &= hutch_json_add_u64(one, "swap", limits[LIMIT_MEMORY]); /* memory and swap together: no swap */
    }
    if (limits[LIMIT_PIDS]) {
        one = hutch_json_add_new(resources, "pids", cJSON_CreateObject());
        ok &= hutch_json_add_u64(one, "limit", limits[LIMIT_PIDS]);
    }
    if (limits[LIMIT_CPUS]) {
        one = hutch_json_add_new(resources, "cpu", cJSON_CreateObject());
        ok &= hutch_json_add_u64(one, "period", CPU_PERIOD_US);
        ok &= hutch_json_add_u64(one, "quota", limits[LIMIT_CPUS] * (CPU_PERIOD_US / 1000));
    }
    return ok;
}

static bool add_sysctl(cJSON *linux_part, const struct sandbox_spec *spec)
{
    cJSON *sysctl;

    if (spec->network != NETWORK_NONE || spec->layers[LAYER_NET_BUFFERS] == NEED_OFF)
        return true;
    sysctl = hutch_json_add_new(linux_part, "sysctl", cJSON_CreateObject());
    return hutch_json_add_string(sysctl, "net.ipv4.tcp_rmem", NETNS_TCP_BUFFERS) &&
           hutch_json_add_string(sysctl, "net.ipv4.tcp_wmem", NETNS_TCP_BUFFERS);
}

/* Calls for memory that belongs to no process are withheld where memory is limited: whether the runtime makes a cgroup
 * is not known here, and there is no init that counts System V IPC. */
static const char *const uncounted[] = { "memfd_create", "memfd_secret", "shmget", "msgget", "semget", NULL };

static bool add_seccomp(cJSON *linux_part, const struct sandbox_spec *spec)
{
    struct seccomp_rules rules = spec->seccomp;

    if (spec->layers[LAYER_SECCOMP] == NEED_OFF)
        return true;
    if (spec->limits[LIMIT_MEMORY])
        rules.withheld = uncounted;
    return hutch_json_add(linux_part, "seccomp", hutch_seccomp_json_make(&rules));
}

static bool add_linux(cJSON *root, const struct sandbox_spec *spec, const struct oci_ids *ids)
{
    cJSON *linux_part = hutch_json_add_new(root, "linux", cJSON_CreateObject());

    return add_namespaces(linux_part, spec) && add_maps(linux_part, spec, ids) && add_resources(linux_part, spec) &&
           add_sysctl(linux_part, spec) && add_seccomp(linux_part, spec) &&
           hutch_json_add_string(linux_part, "rootfsPropagation", "private") &&
           add_list(linux_part, "maskedPaths", spec->masked_paths) &&
           add_list(linux_part, "readonlyPaths", spec->readonly_paths);
}

int hutch_oci_config_make(const struct sandbox_spec *spec, const struct oci_ids *ids, const char *root_path,
                          char **ret_json, struct hutch_err *err)
{
    cJSON *root, *tree;
    char *json = NULL;

    if (check(spec, root_path, err) < 0)
        return -1;
    root = cJSON_CreateObject();
    if (hutch_json_add_string(root, "ociVersion", OCI_VERSION) && add_process(root, spec) &&
        (tree = hutch_json_add_new(root, "root", cJSON_CreateObject())) != NULL &&
        hutch_json_add_string(tree, "path", root_path) && hutch_json_add_bool(tree, "readonly", true) &&
        hutch_json_add_string(root, "hostname", spec->hostname) && add_mounts(root, spec) &&
        add_linux(root, spec, ids))
        json = cJSON_Print(root);
    cJSON_Delete(root);
    if (!json)
        return hutch_err_set(err, ENOMEM, "write an OCI config");
    *ret_json = json;
    return 0;
}
