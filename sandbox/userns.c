#include "sandbox/userns.h"

#include "sandbox/caps.h"
#include "sandbox/fd.h"
#include "sandbox/spec.h"

#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define NOBODY 65534

/* First id of the range that @file (subuid(5), subgid(5)) gives to the user "hutch", else @fallback. */
static unsigned subordinate_id(const char *file, unsigned fallback)
{
    FILE *f = fopen(file, "re");
    char line[256];
    unsigned start, count, found = fallback;

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "hutch:%u:%u", &start, &count) == 2 && start > 0 && count > 0) {
            found = start;
            break;
        }
    if (f)
        fclose(f);
    return found;
}

/* What @id of the caller's user namespace is called one level out; -1 when it is not mapped. */
static int64_t outer_id(const char *map, unsigned id)
{
    FILE *f = fopen(map, "re");
    unsigned inside, outside, count;
    int64_t found = -1;

    if (!f)
        return id; /* no user namespaces in this kernel: clone(2) will say so in better words */
    while (found < 0 && fscanf(f, "%u %u %u", &inside, &outside, &count) == 3)
        if (id >= inside && id - inside < count)
            found = (int64_t)outside + (id - inside);
    fclose(f);
    return found;
}

int hutch_userns_plan(struct id_plan *ret, struct hutch_err *err)
{
    struct id_plan plan = { .host_uid = geteuid(), .host_gid = getegid() };

    plan.can_mount = hutch_caps_has_effective(CAP_SYS_ADMIN);
    if (plan.host_uid == 0 || plan.host_gid == 0) {
        unsigned uid = subordinate_id("/etc/subuid", NOBODY), gid = subordinate_id("/etc/subgid", NOBODY);

        if (hutch_caps_has_effective(CAP_SETUID) && hutch_caps_has_effective(CAP_SETGID) &&
            outer_id("/proc/self/uid_map", uid) > 0 && outer_id("/proc/self/gid_map", gid) > 0) {
            plan.host_uid = uid;
            plan.host_gid = gid;
            plan.is_mapped_away = true;
        } else if (plan.host_uid == 0 && outer_id("/proc/self/uid_map", 0) == 0) {
            return hutch_err_set(err, 0,
                                 "refuse to run a sandbox as uid 0 of the host: uid %u is not mapped here, or "
                                 "CAP_SETUID is missing; call hutch as an ordinary user", uid);
        }
    }
    *ret = plan;
    return 0;
}

static int write_map(int procfd, const char *name, unsigned inside, unsigned outside, struct hutch_err *err)
{
    char text[64];

    snprintf(text, sizeof(text), "%u %u 1\n", inside, outside);
    if (hutch_fd_write_file_at(procfd, name, text, err) < 0)
        return hutch_err_wrap(err, "map id %u of the sandbox to id %u of the host", inside, outside);
    return 0;
}

static int write_maps(pid_t pid, uid_t in_uid, uid_t out_uid, gid_t in_gid, gid_t out_gid, bool deny_setgroups,
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
    if (write_map(procfd, "gid_map", in_gid, out_gid, err) < 0)
        return -1;
    return write_map(procfd, "uid_map", in_uid, out_uid, err);
}

int hutch_userns_write_maps(pid_t pid, const struct sandbox_spec *spec, const struct id_plan *plan,
                            struct hutch_err *err)
{
    /* Mapped away, the child still has the caller's supplementary groups and must be able to drop them. */
    return write_maps(pid, spec->uid_inside, plan->host_uid, spec->gid_inside, plan->host_gid, !plan->is_mapped_away,
                      err);
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
    return write_maps(pid, plan->host_uid, plan->host_uid, plan->host_gid, plan->host_gid, !plan->is_mapped_away, err);
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
    if (write_maps(pid, disk_uid, plan->host_uid, disk_gid, plan->host_gid, false, err) == 0) {
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
