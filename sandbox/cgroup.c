#include "sandbox/cgroup.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/log.h"
#include "sandbox/spec.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libcgroup.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define FILE_MAX 4096 /* bytes of any control file that is read here */
#define MAX_DEPTH 3   /* of groups that hutch makes within each other */

static const struct { const char *name; unsigned bit; } controllers[] = {
    { "memory", CGROUP_MEMORY },
    { "pids", CGROUP_PIDS },
    { "cpu", CGROUP_CPU },
};

static int read_at(int dirfd, const char *name, char *buf, size_t size)
{
    auto_fd fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd < 0 ? -1 : hutch_fd_read_full(fd, buf, size - 1);

    if (n < 0)
        return -1;
    buf[n] = '\0';
    return 0;
}

static unsigned read_controllers(int dirfd, const char *file)
{
    char buf[FILE_MAX], *save = NULL;
    unsigned found = 0;

    if (read_at(dirfd, file, buf, sizeof(buf)) < 0)
        return 0;
    for (char *word = strtok_r(buf, " \n", &save); word; word = strtok_r(NULL, " \n", &save))
        for (size_t i = 0; i < ARRAY_SIZE(controllers); i++)
            if (strcmp(word, controllers[i].name) == 0)
                found |= controllers[i].bit;
    return found;
}

static bool is_cgroup2(const char *path)
{
    struct statfs st;

    return statfs(path, &st) == 0 && (unsigned long)st.f_type == CGROUP2_SUPER_MAGIC;
}

/* libcgroup keeps a table of all mounts, in memory of its own that is never given back; filling it takes 0.7 ms. */
static int ask_libcgroup(void)
{
    static bool is_ready;

    if (!is_ready) {
        cgroup_set_default_logger(-1); /* it would print its own complaints on stderr */
        is_ready = cgroup_init() == 0;
    }
    return is_ready ? 0 : -1;
}

/* Looked for where every distribution mounts it, before libcgroup is asked: that is a seventh of what hutch adds to the
 * start of a program. libcgroup lists hierarchies by their controllers, so it would not name a v2 tree that has
 * none. */
static char *find_mount(void)
{
    static const char *const usual[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };
    struct cgroup_mount_point point;
    char *found = NULL;
    void *iterator;
    int rc;

    for (size_t i = 0; i < ARRAY_SIZE(usual) && !found; i++)
        if (is_cgroup2(usual[i]))
            found = strdup(usual[i]);
    if (found || ask_libcgroup() < 0)
        return found;
    for (rc = cgroup_get_controller_begin(&iterator, &point); rc == 0 && !found;
         rc = cgroup_get_controller_next(&iterator, &point))
        if (is_cgroup2(point.path))
            found = strdup(point.path);
    cgroup_get_controller_end(&iterator);
    return found;
}

/* The "0::" line of /proc/self/cgroup. libcgroup has no call for it: it asks by controller, and v2 has one path. */
static char *own_path(void)
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[4200], *found = NULL;

    while (f && !found && fgets(line, sizeof(line), f))
        if (strncmp(line, "0::/", 4) == 0) {
            line[strcspn(line, "\n")] = '\0';
            found = strdup(line + 3);
        }
    if (f)
        fclose(f);
    return found;
}

static int open_below(const char *mount, const char *path)
{
    char full[8192];

    if ((size_t)snprintf(full, sizeof(full), "%s%s", mount, path) >= sizeof(full)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(full, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Delegated to us: we own the directory and may move processes into it. */
static bool is_ours(int dirfd)
{
    struct stat st;

    return fstat(dirfd, &st) == 0 && (geteuid() == 0 || st.st_uid == geteuid()) &&
           faccessat(dirfd, ".", W_OK, AT_EACCESS) == 0 && faccessat(dirfd, "cgroup.procs", W_OK, AT_EACCESS) == 0;
}

/* Groups with processes of their own cannot give controllers to children (the root group can). */
static bool has_processes(int dirfd)
{
    char buf[FILE_MAX];

    return read_at(dirfd, "cgroup.procs", buf, sizeof(buf)) < 0 || buf[0] != '\0';
}

static bool is_only_member(int dirfd)
{
    char buf[FILE_MAX], self[32];

    snprintf(self, sizeof(self), "%d\n", getpid());
    return read_at(dirfd, "cgroup.procs", buf, sizeof(buf)) == 0 && strcmp(buf, self) == 0;
}

/* Which of the controllers that are there can be, or already are, enabled for children of this group. */
static unsigned enable_controllers(int dirfd)
{
    unsigned there = read_controllers(dirfd, "cgroup.controllers");
    unsigned enabled = read_controllers(dirfd, "cgroup.subtree_control");

    for (size_t i = 0; i < ARRAY_SIZE(controllers); i++) {
        struct hutch_err ignored;
        char text[16];

        if (!(there & controllers[i].bit) || (enabled & controllers[i].bit))
            continue;
        snprintf(text, sizeof(text), "+%s", controllers[i].name);
        if (hutch_fd_write_file_at(dirfd, "cgroup.subtree_control", text, &ignored) == 0)
            enabled |= controllers[i].bit;
        else
            hutch_log_debug("cgroup: %s", ignored.msg);
    }
    return enabled;
}

static int try_base(const char *mount, const char *path, struct cgroup_base *ret)
{
    auto_fd dirfd = open_below(mount, path);

    if (dirfd < 0 || !is_ours(dirfd))
        return -1;
    ret->path = strdup(path);
    ret->dirfd = hutch_fd_take(&dirfd);
    return ret->path ? 0 : -1;
}

static void explain(struct cgroup_base *base)
{
    unsigned all = CGROUP_MEMORY | CGROUP_PIDS | CGROUP_CPU;
    unsigned there = base->dirfd < 0 ? 0 : read_controllers(base->dirfd, "cgroup.controllers");

    if (base->controllers == all)
        return;
    if (!base->mount)
        snprintf(base->why_not, sizeof(base->why_not), "no cgroup v2 hierarchy is mounted");
    else if (base->dirfd < 0)
        snprintf(base->why_not, sizeof(base->why_not),
                 "no cgroup is delegated to this user ('hutch doctor' has the command)");
    else if ((there & all) != all)
        snprintf(base->why_not, sizeof(base->why_not), "not delegated here:%s%s%s",
                 there & CGROUP_MEMORY ? "" : " memory", there & CGROUP_PIDS ? "" : " pids",
                 there & CGROUP_CPU ? "" : " cpu");
    else
        snprintf(base->why_not, sizeof(base->why_not),
                 "other processes share hutch's cgroup, which keeps its controllers from being enabled");
}

void hutch_cgroup_find_base(struct cgroup_base *ret)
{
    auto_free char *own = own_path();

    *ret = (struct cgroup_base)CGROUP_BASE_INIT;
    ret->mount = find_mount();
    if (ret->mount && own) {
        char *slash;

        /* Root makes its groups at the top, like other runtimes do without systemd: whatever group root's shell sits in
         * holds other processes. */
        if (geteuid() == 0 && try_base(ret->mount, "/", ret) == 0) {
            ret->controllers = enable_controllers(ret->dirfd);
        } else {
            auto_free char *parent = strdup(own);

            slash = parent ? strrchr(parent, '/') : NULL;
            if (slash)
                slash[slash == parent ? 1 : 0] = '\0';
            if (slash && strcmp(own, "/") != 0 && try_base(ret->mount, parent, ret) == 0 &&
                !has_processes(ret->dirfd)) {
                ret->controllers = enable_controllers(ret->dirfd);
            } else {
                free(ret->path);
                ret->path = NULL;
                hutch_fd_closep(&ret->dirfd);
                if (try_base(ret->mount, own, ret) == 0 && is_only_member(ret->dirfd)) {
                    struct hutch_err ignored;

                    /* The no-internal-process rule: hutch itself steps into a leaf first. */
                    if ((mkdirat(ret->dirfd, "hutch-supervisor", 0755) == 0 || errno == EEXIST) &&
                        hutch_fd_write_file_at(ret->dirfd, "hutch-supervisor/cgroup.procs", "0", &ignored) == 0)
                        ret->controllers = enable_controllers(ret->dirfd);
                }
            }
        }
    }
    explain(ret);
    hutch_log_debug("cgroup: base %s%s, controllers %#x, %s", ret->mount ? ret->mount : "(none)",
                    ret->path ? ret->path : "", ret->controllers, ret->why_not[0] ? ret->why_not : "all there");
}

int hutch_cgroup_make_base(const char *path, uid_t uid, gid_t gid, struct cgroup_base *ret, struct hutch_err *err)
{
    static const char *const files[] = { "cgroup.procs", "cgroup.threads", "cgroup.subtree_control" };
    struct cgroup_base base = CGROUP_BASE_INIT;
    struct stat st;

    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return hutch_err_set(err, errno, "make the cgroup '%s'", path);
    base.mount = find_mount();
    base.dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!base.mount || base.dirfd < 0 || fstat(base.dirfd, &st) < 0 ||
        strncmp(path, base.mount, strlen(base.mount)) != 0) {
        hutch_err_set(err, errno, "open the cgroup '%s'", path);
        goto fail;
    }
    if (st.st_uid != uid) { /* as cgroups are delegated: Documentation/admin-guide/cgroup-v2.rst */
        if (fchown(base.dirfd, uid, gid) < 0) {
            hutch_err_set(err, errno, "hand over the cgroup '%s'", path);
            goto fail;
        }
        for (size_t i = 0; i < ARRAY_SIZE(files); i++)
            if (fchownat(base.dirfd, files[i], uid, gid, AT_SYMLINK_NOFOLLOW) < 0) {
                hutch_err_set(err, errno, "hand over '%s' of the cgroup '%s'", files[i], path);
                goto fail;
            }
    }
    base.path = strdup(path + strlen(base.mount));
    if (!base.path) {
        hutch_err_set(err, ENOMEM, "name the cgroup '%s'", path);
        goto fail;
    }
    base.controllers = enable_controllers(base.dirfd);
    explain(&base);
    *ret = base;
    return 0;
fail:
    hutch_cgroup_base_done(&base);
    return -1;
}

void hutch_cgroup_base_done(struct cgroup_base *base)
{
    free(base->mount);
    free(base->path);
    hutch_fd_closep(&base->dirfd);
    *base = (struct cgroup_base)CGROUP_BASE_INIT;
}

/* @cpus: thousandths of one. */
static void print_cpu_max(uint64_t cpus, char *to, size_t size)
{
    snprintf(to, size, "%" PRIu64 " 100000", cpus * 100);
}

/* libcgroup makes the directory and sets the values; it addresses a group by its path below the mount. */
static int create_with_libcgroup(const char *path, const struct sandbox_spec *spec, unsigned use, struct hutch_err *err)
{
    struct cgroup *group = cgroup_new_cgroup(path);
    struct cgroup_controller *c;
    char cpu_max[48];
    int rc = 0;

    if (!group || ask_libcgroup() < 0) {
        if (group)
            cgroup_free(&group);
        return hutch_err_set(err, ENOMEM, "prepare the cgroup '%s'", path);
    }
    if (use & CGROUP_MEMORY) {
        c = cgroup_add_controller(group, "memory");
        rc |= !c || cgroup_set_value_uint64(c, "memory.max", spec->limits[LIMIT_MEMORY]);
    }
    if (use & CGROUP_PIDS) {
        c = cgroup_add_controller(group, "pids");
        rc |= !c || cgroup_set_value_uint64(c, "pids.max", spec->limits[LIMIT_PIDS] + 1); /* + our init */
    }
    if (use & CGROUP_CPU) {
        print_cpu_max(spec->limits[LIMIT_CPUS], cpu_max, sizeof(cpu_max));
        c = cgroup_add_controller(group, "cpu");
        rc |= !c || cgroup_set_value_string(c, "cpu.max", cpu_max);
    }
    if (rc) {
        hutch_err_set(err, ENOMEM, "prepare the cgroup '%s'", path);
    } else {
        rc = cgroup_create_cgroup(group, 1);
        if (rc)
            hutch_err_set(err, rc == ECGOTHER ? cgroup_get_last_errno() : 0,
                          "create the cgroup '%s': libcgroup says '%s'", path, cgroup_strerror(rc));
    }
    cgroup_free(&group);
    return rc ? -1 : 0;
}

int hutch_cgroup_create(const struct cgroup_base *base, const char *name, const struct sandbox_spec *spec,
                        struct sandbox_cgroup *ret, struct hutch_err *err)
{
    struct sandbox_cgroup cg = CGROUP_INIT;
    struct hutch_err ignored;
    char path[4200];
    unsigned use = 0;

    if (spec->limits[LIMIT_MEMORY])
        use |= base->controllers & CGROUP_MEMORY;
    if (spec->limits[LIMIT_PIDS])
        use |= base->controllers & CGROUP_PIDS;
    if (spec->limits[LIMIT_CPUS])
        use |= base->controllers & CGROUP_CPU;

    if (mkdirat(base->dirfd, name, 0755) < 0)
        return hutch_err_set(err, errno, "make the cgroup '%s' below '%s%s'", name, base->mount, base->path);
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", strcmp(base->path, "/") == 0 ? "" : base->path + 1, name) >=
        sizeof(path)) {
        unlinkat(base->dirfd, name, AT_REMOVEDIR);
        return hutch_err_set(err, ENAMETOOLONG, "make the cgroup '%s'", name);
    }
    cg.name = strdup(name);
    cg.base_dirfd = fcntl(base->dirfd, F_DUPFD_CLOEXEC, 3);
    cg.dirfd = openat(base->dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    cg.controllers = use;
    if (!cg.name || cg.base_dirfd < 0 || cg.dirfd < 0) {
        hutch_err_set(err, errno, "open the cgroup '%s'", name);
        goto fail;
    }
    if (use && create_with_libcgroup(path[0] == '/' ? path + 1 : path, spec, use, err) < 0)
        goto fail;
    if (use & CGROUP_MEMORY) {
        /* Not on every kernel: swap accounting can be off, and without swap there is nothing to bound. */
        if (hutch_fd_write_file_at(cg.dirfd, "memory.swap.max", "0", &ignored) < 0)
            hutch_log_debug("cgroup: %s", ignored.msg);
        /* All or nothing: a sandbox that lost one of its processes would go on with half a computation. */
        if (hutch_fd_write_file_at(cg.dirfd, "memory.oom.group", "1", err) < 0)
            goto fail;
    }
    *ret = cg;
    return 0;
fail:
    unlinkat(base->dirfd, name, AT_REMOVEDIR);
    hutch_cgroup_done(&cg);
    return -1;
}

int hutch_cgroup_lower(const struct sandbox_cgroup *cg, const uint64_t *from, const uint64_t *to, unsigned more_pids,
                       struct hutch_err *err)
{
    char text[48];

    if (cg->controllers & CGROUP_MEMORY && to[LIMIT_MEMORY] < from[LIMIT_MEMORY]) {
        snprintf(text, sizeof(text), "%" PRIu64, to[LIMIT_MEMORY]);
        if (hutch_fd_write_file_at(cg->dirfd, "memory.max", text, err) < 0)
            return -1;
    }
    if (cg->controllers & CGROUP_PIDS && to[LIMIT_PIDS] < from[LIMIT_PIDS]) {
        snprintf(text, sizeof(text), "%" PRIu64, to[LIMIT_PIDS] + 1 + more_pids);
        if (hutch_fd_write_file_at(cg->dirfd, "pids.max", text, err) < 0)
            return -1;
    }
    if (cg->controllers & CGROUP_CPU && to[LIMIT_CPUS] < from[LIMIT_CPUS]) {
        print_cpu_max(to[LIMIT_CPUS], text, sizeof(text));
        if (hutch_fd_write_file_at(cg->dirfd, "cpu.max", text, err) < 0)
            return -1;
    }
    return 0;
}

/* "key value" lines, as in memory.events. */
static uint64_t find_key(const char *text, const char *key, uint64_t fallback)
{
    size_t len = strlen(key);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n')
            line++;
        if (strncmp(line, key, len) == 0 && line[len] == ' ')
            return strtoull(line + len + 1, NULL, 10);
    }
    return fallback;
}

static uint64_t read_key(int dirfd, const char *file, const char *key, uint64_t fallback)
{
    char buf[FILE_MAX];

    return read_at(dirfd, file, buf, sizeof(buf)) < 0 ? fallback : find_key(buf, key, fallback);
}

static uint64_t read_number(int dirfd, const char *file)
{
    char buf[64];

    return read_at(dirfd, file, buf, sizeof(buf)) < 0 ? UINT64_MAX : strtoull(buf, NULL, 10);
}

void hutch_cgroup_read_usage(const struct sandbox_cgroup *cg, struct cgroup_usage *ret)
{
    ret->memory_peak_bytes = cg->dirfd < 0 ? UINT64_MAX : read_number(cg->dirfd, "memory.peak");
    ret->pids_peak = cg->dirfd < 0 ? UINT64_MAX : read_number(cg->dirfd, "pids.peak");
    hutch_cgroup_read_cpu_times(cg, &ret->cpu_user_us, &ret->cpu_system_us);
    ret->oom_kills = cg->dirfd < 0 ? 0 : read_key(cg->dirfd, "memory.events", "oom_kill", 0);
}

uint64_t hutch_cgroup_read_cpu(const struct sandbox_cgroup *cg)
{
    return cg->dirfd < 0 ? UINT64_MAX : read_key(cg->dirfd, "cpu.stat", "usage_usec", UINT64_MAX);
}

void hutch_cgroup_read_cpu_times(const struct sandbox_cgroup *cg, uint64_t *ret_user_us, uint64_t *ret_system_us)
{
    char buf[FILE_MAX] = "";

    if (cg->dirfd >= 0 && read_at(cg->dirfd, "cpu.stat", buf, sizeof(buf)) < 0)
        buf[0] = '\0';
    *ret_user_us = find_key(buf, "user_usec", UINT64_MAX);
    *ret_system_us = find_key(buf, "system_usec", UINT64_MAX);
}

void hutch_cgroup_read_now(const struct sandbox_cgroup *cg, struct cgroup_now *ret)
{
    ret->memory_bytes = cg->controllers & CGROUP_MEMORY ? read_number(cg->dirfd, "memory.current") : UINT64_MAX;
    ret->pids = cg->controllers & CGROUP_PIDS ? read_number(cg->dirfd, "pids.current") : UINT64_MAX;
    ret->cpu_us = hutch_cgroup_read_cpu(cg);
}

int hutch_cgroup_freeze(const struct sandbox_cgroup *cg, bool is_frozen)
{
    struct hutch_err err;

    if (cg->dirfd < 0) {
        errno = ENOENT;
        return -1;
    }
    if (hutch_fd_write_file_at(cg->dirfd, "cgroup.freeze", is_frozen ? "1" : "0", &err) == 0)
        return 0;
    errno = err.errnum;
    return -1;
}

bool hutch_cgroup_is_frozen(const struct sandbox_cgroup *cg)
{
    return cg->dirfd >= 0 && read_key(cg->dirfd, "cgroup.events", "frozen", 0) == 1;
}

int hutch_cgroup_open_memory(const struct sandbox_cgroup *cg, int *ret_current_fd, int *ret_stat_fd)
{
    auto_fd current = -1, stat = -1;

    if (!(cg->controllers & CGROUP_MEMORY))
        return -1;
    current = openat(cg->dirfd, "memory.current", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    stat = openat(cg->dirfd, "memory.stat", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (current < 0 || stat < 0)
        return -1;
    *ret_current_fd = hutch_fd_take(&current);
    *ret_stat_fd = hutch_fd_take(&stat);
    return 0;
}

/* Of an empty group. What cannot be removed makes the removal of the group itself fail, which is told. */
static void remove_children(int dirfd, int depth)
{
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!dir) {
        hutch_fd_closep(&fd);
        return;
    }
    while ((entry = readdir(dir))) {
        auto_fd child = -1;

        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        child = openat(dirfd, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (child >= 0 && depth < MAX_DEPTH)
            remove_children(child, depth + 1);
        unlinkat(dirfd, entry->d_name, AT_REMOVEDIR);
    }
    closedir(dir);
}

static int kill_and_remove(int base_dirfd, const char *name, int dirfd, unsigned timeout_ms, struct hutch_err *err)
{
    auto_fd events = openat(dirfd, "cgroup.events", O_RDONLY | O_CLOEXEC);
    double deadline = hutch_clock_ms() + timeout_ms;
    struct hutch_err ignored;

    if (hutch_fd_write_file_at(dirfd, "cgroup.kill", "1", &ignored) < 0)
        hutch_log_debug("cgroup: %s", ignored.msg);
    while (read_key(dirfd, "cgroup.events", "populated", 0) != 0) {
        struct pollfd pfd = { .fd = events, .events = POLLPRI };
        char buf[FILE_MAX];
        double left = deadline - hutch_clock_ms();

        if (left <= 0)
            return hutch_err_set(err, ETIMEDOUT, "wait until the cgroup '%s' is empty", name);
        if (events >= 0 && pread(events, buf, sizeof(buf), 0) < 0)
            break;
        poll(&pfd, 1, left > 50 ? 50 : (int)left + 1); /* looked at again every 50 ms: the first event may be missed */
    }
    if (unlinkat(base_dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    if (errno == EBUSY) {
        remove_children(dirfd, 0);
        if (unlinkat(base_dirfd, name, AT_REMOVEDIR) == 0)
            return 0;
    }
    return hutch_err_set(err, errno, "remove the cgroup '%s'", name);
}

int hutch_cgroup_destroy(struct sandbox_cgroup *cg, unsigned timeout_ms, struct hutch_err *err)
{
    if (cg->dirfd < 0)
        return 0;
    if (kill_and_remove(cg->base_dirfd, cg->name, cg->dirfd, timeout_ms, err) < 0)
        return -1;
    hutch_cgroup_done(cg);
    return 0;
}

int hutch_cgroup_destroy_named(const struct cgroup_base *base, const char *name, unsigned timeout_ms,
                               struct hutch_err *err)
{
    auto_fd dirfd = base->dirfd < 0 ? -1 : openat(base->dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    struct statfs st;

    if (dirfd < 0 || fstatfs(dirfd, &st) < 0 || (unsigned long)st.f_type != CGROUP2_SUPER_MAGIC)
        return 0; /* a directory of that name elsewhere is another program's */
    return kill_and_remove(base->dirfd, name, dirfd, timeout_ms, err);
}

void hutch_cgroup_done(struct sandbox_cgroup *cg)
{
    free(cg->name);
    hutch_fd_closep(&cg->base_dirfd);
    hutch_fd_closep(&cg->dirfd);
    *cg = (struct sandbox_cgroup)CGROUP_INIT;
}
