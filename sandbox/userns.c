#include "sandbox/userns.h"

#include "sandbox/caps.h"
#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define NOBODY 65534

/* The range that @file (subuid(5), subgid(5)) gives to the user "hutch", else the one id of nobody. */
static unsigned subordinate_ids(const char *file, unsigned *ret_count)
{
    FILE *f = fopen(file, "re");
    char line[256];
    unsigned start, count, found = NOBODY;

    *ret_count = 1;
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "hutch:%u:%u", &start, &count) == 2 && start > 0 && count > 0 && count < UINT_MAX - start) {
            found = start;
            *ret_count = count;
            break;
        }
    if (f)
        fclose(f);
    return found;
}

/* What @id of the caller's user namespace is called one level out; -1 when it is not mapped. *@ret_count: how many of
 * those from @id on are mapped with it. */
static int64_t outer_id(const char *map, unsigned id, unsigned *ret_count)
{
    FILE *f = fopen(map, "re");
    unsigned inside, outside, count;
    int64_t found = -1;

    *ret_count = 1;
    if (!f)
        return id; /* no user namespaces in this kernel: clone(2) will say so in better words */
    while (found < 0 && fscanf(f, "%u %u %u", &inside, &outside, &count) == 3)
        if (id >= inside && id - inside < count) {
            found = (int64_t)outside + (id - inside);
            *ret_count = count - (id - inside);
        }
    fclose(f);
    return found;
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Which host ids sandboxes have when root calls. False when root may not map them. */
static bool plan_range(struct id_range *ret)
{
    unsigned n_uids, n_gids, mapped;
    struct id_range range = { .uid = subordinate_ids("/etc/subuid", &n_uids),
                              .gid = subordinate_ids("/etc/subgid", &n_gids) };

    *ret = range;
    range.count = least(ID_RANGE_MAX, least(n_uids, n_gids));
    if (outer_id("/proc/self/uid_map", range.uid, &mapped) <= 0)
        return false;
    range.count = least(range.count, mapped);
    if (outer_id("/proc/self/gid_map", range.gid, &mapped) <= 0)
        return false;
    range.count = least(range.count, mapped);
    *ret = range;
    return true;
}

int hutch_userns_plan(struct id_plan *ret, struct hutch_err *err)
{
    struct id_plan plan = { .host_uid = geteuid(), .host_gid = getegid() };

    plan.can_mount = hutch_caps_has_effective(CAP_SYS_ADMIN);
    if (plan.host_uid == 0 || plan.host_gid == 0) {
        struct id_range range;
        unsigned ignored;

        if (plan_range(&range) && hutch_caps_has_effective(CAP_SETUID) && hutch_caps_has_effective(CAP_SETGID)) {
            plan.host_uid = range.uid;
            plan.host_gid = range.gid;
            plan.range = range;
            plan.is_mapped_away = true;
        } else if (plan.host_uid == 0 && outer_id("/proc/self/uid_map", 0, &ignored) == 0) {
            return hutch_err_set(err, 0,
                                 "refuse to run a sandbox as uid 0 of the host: uid %u is not mapped here, or "
                                 "CAP_SETUID is missing; call hutch as an ordinary user", range.uid);
        }
    }
    *ret = plan;
    return 0;
}

static int write_map(int procfd, const char *name, unsigned inside, unsigned outside, unsigned count,
                     struct hutch_err *err)
{
    char text[64];

    snprintf(text, sizeof(text), "%u %u %u\n", inside, outside, count);
    if (hutch_fd_write_file_at(procfd, name, text, err) < 0)
        return hutch_err_wrap(err, "map id %u of the sandbox to id %u of the host", inside, outside);
    return 0;
}

/* What one sandbox has of it. */
static struct id_range own_ids(const struct id_plan *plan)
{
    return (struct id_range){ plan->host_uid, plan->host_gid, 1 };
}

/* @ids: what @in_uid and @in_gid, and those that follow, are outside. */
static int write_maps(pid_t pid, uid_t in_uid, gid_t in_gid, const struct id_range *ids, bool deny_setgroups,
                      struct hutch_err *err)
{
    char path[32];
    auto_fd procfd = -1;

    if (pid)
        snprintf(path, sizeof(path), "/proc/%d", pid);
    else
        snprintf(path, sizeof(path), "/proc/self");
    procfd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (procfd < 0)
        return hutch_err_set(err, errno, "open '%s' (is /proc mounted?)", path);
    /* "deny" comes before gid_map, or an unprivileged writer gets EPERM: user_namespaces(7), Linux 3.19. */
    if (deny_setgroups && hutch_fd_write_file_at(procfd, "setgroups", "deny", err) < 0)
        return -1;
    if (write_map(procfd, "gid_map", in_gid, ids->gid, ids->count, err) < 0)
        return -1;
    return write_map(procfd, "uid_map", in_uid, ids->uid, ids->count, err);
}

int hutch_userns_write_maps(pid_t pid, const struct sandbox_spec *spec, const struct id_plan *plan,
                            struct hutch_err *err)
{
    struct id_range one = own_ids(plan);

    /* Mapped away, the child still has the caller's supplementary groups and must be able to drop them. */
    return write_maps(pid, spec->uid_inside, spec->gid_inside, &one, !plan->is_mapped_away, err);
}

const char *hutch_userns_hint(int errnum)
{
    switch (errnum) {
    case EPERM:
        return " (this host or container forbids user namespaces; 'hutch doctor' finds out why)";
    case ENOSPC:
        return " (the limit is user.max_user_namespaces or its kin, not the disk)";
    case ENOSYS:
        return " (clone3 is kept from us: by a seccomp filter around us, as of a container, or by a kernel before 5.3)";
    case EUSERS:
        return " (user namespaces are nested too deeply)";
    default:
        return "";
    }
}

int hutch_userns_write_identity(pid_t pid, const struct id_plan *plan, struct hutch_err *err)
{
    struct id_range one = own_ids(plan);
    const struct id_range *ids = plan->range.count > 0 ? &plan->range : &one;

    return write_maps(pid, ids->uid, ids->gid, ids, !plan->is_mapped_away, err);
}

int hutch_userns_enter(const struct sandbox_spec *spec, const struct id_plan *plan, struct hutch_err *err)
{
    /* A change of uid must not take the capabilities that the next steps need; they go in a step of their own. */
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP | SECBIT_KEEP_CAPS, 0, 0, 0) < 0)
        return hutch_err_set(err, errno, "set the secure bits that keep capabilities across setuid");
    if (plan->is_mapped_away && setgroups(0, NULL) < 0)
        return hutch_err_set(err, errno, "drop the caller's supplementary groups");
    if (setresgid(spec->gid_inside, spec->gid_inside, spec->gid_inside) < 0)
        return hutch_err_set(err, errno, "become gid %u", spec->gid_inside);
    if (setresuid(spec->uid_inside, spec->uid_inside, spec->uid_inside) < 0)
        return hutch_err_set(err, errno, "become uid %u", spec->uid_inside);
    return 0;
}

int hutch_userns_open_idmap(uid_t disk_uid, gid_t disk_gid, const struct id_plan *plan, int *ret_fd,
                            struct hutch_err *err)
{
    char path[48];
    struct id_range one = own_ids(plan);
    int fd = -1, status;
    pid_t pid, self = getpid();

    /* A user namespace lives as long as a process or descriptor names it: a child makes it, waits to be looked at,
     * and is killed. */
    pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        while (getppid() == self)
            pause();
        _exit(1);
    }
    if (pid < 0)
        return hutch_err_set(err, errno, "make a user namespace for an id-mapped mount");
    if (write_maps(pid, disk_uid, disk_gid, &one, false, err) == 0) {
        snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            hutch_err_set(err, errno, "open '%s'", path);
    }
    kill(pid, SIGKILL);
    TEMP_FAILURE_RETRY(waitpid(pid, &status, 0));
    if (fd < 0)
        return -1;
    *ret_fd = fd;
    return 0;
}
