#include "sandbox/userns.h"

#include "sandbox/caps.h"
#include "sandbox/fd.h"
#include "sandbox/log.h"
#include "sandbox/spec.h"

#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/securebits.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#define NOBODY         65534
#define MAPPER_SECONDS 5

/* The first range that @file (subuid(5), subgid(5)) gives to @name, or to @number in place of a name. False when there
 * is none. */
static bool find_subordinate_ids(const char *file, const char *name, const char *number, unsigned *ret_start,
                                 unsigned *ret_count)
{
    FILE *f = fopen(file, "re");
    char line[256];
    unsigned start, count;
    bool is_found = false;

    while (f && !is_found && fgets(line, sizeof(line), f)) {
        char *rest = strchr(line, ':');

        if (!rest)
            continue;
        *rest++ = '\0';
        is_found = (strcmp(line, name) == 0 || strcmp(line, number) == 0) &&
                   sscanf(rest, "%u:%u", &start, &count) == 2 && start > 0 && count > 0 && count < UINT_MAX - start;
    }
    if (f)
        fclose(f);
    if (is_found) {
        *ret_start = start;
        *ret_count = count;
    }
    return is_found;
}

/* What sandboxes of root have: the range of the user "hutch", else the one id of nobody. */
static unsigned ids_of_hutch(const char *file, unsigned *ret_count)
{
    unsigned start = NOBODY;

    *ret_count = 1;
    find_subordinate_ids(file, "hutch", "hutch", &start, ret_count);
    return start;
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
    struct id_range range = { .uid = ids_of_hutch("/etc/subuid", &n_uids),
                              .gid = ids_of_hutch("/etc/subgid", &n_gids) };

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

/* Uid 0 of a user namespace that is not the host's, as in a rootless container: an ordinary user of the host. Without
 * CAP_SYS_ADMIN it can map the owner of no file for another id, and files of its own, images among them, are often for
 * it alone. So its sandboxes have its ids, as those of an ordinary user do. */
static bool is_containers_root(const struct id_plan *plan)
{
    static bool was_found; /* in a namespace that this process has entered since, its maps are of that one */
    unsigned ignored;

    was_found |= !plan->can_mount && outer_id("/proc/self/uid_map", plan->host_uid, &ignored) > 0 &&
                 outer_id("/proc/self/gid_map", plan->host_gid, &ignored) > 0;
    return was_found;
}

int hutch_userns_plan(struct id_plan *ret, struct hutch_err *err)
{
    struct id_plan plan = { .host_uid = geteuid(), .host_gid = getegid() };

    plan.can_mount = hutch_caps_has_effective(CAP_SYS_ADMIN);
    if ((plan.host_uid == 0 || plan.host_gid == 0) && is_containers_root(&plan)) {
        /* user_namespaces(7): to map uid 0 of the namespace around takes it, since Linux 5.12. */
        if (plan.host_uid == 0 && !hutch_caps_has_effective(CAP_SETFCAP))
            return hutch_err_set(err, EPERM,
                                 "uid 0 of this container cannot be mapped into a sandbox without CAP_SETFCAP: start "
                                 "the container with --cap-add SETFCAP, or as another user (podman run --userns "
                                 "keep-id)");
    } else if (plan.host_uid == 0 || plan.host_gid == 0) {
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

/* @ids: what @in_uid and @in_gid, and those that follow, are outside. @has_uids: uids are mapped already. */
static int write_maps(pid_t pid, uid_t in_uid, gid_t in_gid, const struct id_range *ids, bool deny_setgroups,
                      bool has_uids, struct hutch_err *err)
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
    return has_uids ? 0 : write_map(procfd, "uid_map", in_uid, ids->uid, ids->count, err);
}

int hutch_userns_write_maps(pid_t pid, const struct sandbox_spec *spec, const struct id_plan *plan,
                            struct hutch_err *err)
{
    struct id_range one = own_ids(plan);

    /* Mapped away, the child still has the caller's supplementary groups and must be able to drop them. */
    return write_maps(pid, spec->uid_inside, spec->gid_inside, &one, !plan->is_mapped_away, false, err);
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

    return write_maps(pid, ids->uid, ids->gid, ids, !plan->is_mapped_away, false, err);
}

/* --- an ordinary user's range ------------------------------------------------------------------------------------- */

/* What sandboxes write is in memory, and the owner of that can be mapped since Linux 6.3. */
static bool can_map_owners(void)
{
    struct utsname uts;
    unsigned major, minor;

    return uname(&uts) == 0 && sscanf(uts.release, "%4u.%4u", &major, &minor) == 2 &&
           (major > 6 || (major == 6 && minor >= 3));
}

bool hutch_userns_read_range(struct id_range *ret)
{
    struct passwd *user = getpwuid(geteuid());
    unsigned n_uids, n_gids;
    char number[16];

    ret->count = 0;
    snprintf(number, sizeof(number), "%u", geteuid());
    if (!find_subordinate_ids("/etc/subuid", user ? user->pw_name : number, number, &ret->uid, &n_uids) ||
        !find_subordinate_ids("/etc/subgid", user ? user->pw_name : number, number, &ret->gid, &n_gids))
        return false;
    ret->count = least(ID_RANGE_MAX, least(n_uids, n_gids));
    return true;
}

bool hutch_userns_find_range(struct id_range *ret, struct hutch_err *why)
{
    ret->count = 0;
    if (!can_map_owners()) {
        hutch_err_set(why, 0, "to map the owner of files in memory takes Linux 6.3");
        why->errnum = EOPNOTSUPP; /* for the doctor; its text would tell a reader nothing */
        return false;
    }
    if (!hutch_userns_read_range(ret)) {
        hutch_err_set(why, 0, "this user has no range of subordinate ids");
        return false;
    }
    return true;
}

/* newuidmap(1), newgidmap(1): the programs that may do it for an ordinary user. Their look into the user database may
 * hang with the server that it is on. */
static int run_mapper(const char *program, pid_t pid, unsigned own, unsigned first, unsigned count)
{
    char text[6][16];
    const unsigned numbers[] = { own, own, 1, first, first, count };
    char target[16];
    char *argv[] = { (char *)program, target, text[0], text[1], text[2], text[3], text[4], text[5], NULL };
    int status;
    pid_t child;

    snprintf(target, sizeof(target), "%d", pid);
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        snprintf(text[i], sizeof(text[i]), "%u", numbers[i]);
    child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_RDWR);

        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, 0);
        alarm(MAPPER_SECONDS);
        execvp(program, argv);
        _exit(127);
    }
    if (child < 0 || TEMP_FAILURE_RETRY(waitpid(child, &status, 0)) != child || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status) == 127 ? 127 : WEXITSTATUS(status) == 0 ? 0 : -1;
}

enum mapped { MAPPED_ALL, MAPPED_UIDS, MAPPED_NONE, NO_MAPPER }; /* exit statuses of the mapping process */

static _Noreturn void mapper_main(int go_fd, pid_t pid, const struct id_plan *plan)
{
    const struct id_range *ids = &plan->range;
    char go;
    int rc;

    if (TEMP_FAILURE_RETRY(read(go_fd, &go, 1)) != 1)
        _exit(MAPPED_NONE);
    rc = run_mapper("newuidmap", pid, plan->host_uid, ids->uid, ids->count);
    if (rc != 0)
        _exit(rc == 127 ? NO_MAPPER : MAPPED_NONE);
    _exit(run_mapper("newgidmap", pid, plan->host_gid, ids->gid, ids->count) == 0 ? MAPPED_ALL : MAPPED_UIDS);
}

int hutch_userns_unshare(struct id_plan *plan, int flags, struct hutch_err *why_not, struct hutch_err *err)
{
    const pid_t self = getpid();
    int go[2], status, mapped = MAPPED_NONE;
    struct id_range one = own_ids(plan);
    pid_t mapper = -1;

    if (plan->range.count > 0) {
        if (pipe2(go, O_CLOEXEC) < 0)
            return hutch_err_set(err, errno, "make a pipe");
        mapper = fork(); /* it stays in the caller's user namespace, where the ids are the caller's to give */
        if (mapper == 0) {
            close(go[1]);
            mapper_main(go[0], self, plan);
        }
        close(go[0]);
        if (mapper < 0)
            close(go[1]);
    }
    if (unshare(CLONE_NEWUSER | flags) < 0)
        hutch_err_set(err, errno, "make a user namespace%s", hutch_userns_hint(errno));
    else
        err->msg[0] = '\0';
    if (mapper > 0) {
        if (!err->msg[0] && write(go[1], "", 1) != 1)
            hutch_log_debug("userns: the process that maps ids is gone");
        close(go[1]);
        if (TEMP_FAILURE_RETRY(waitpid(mapper, &status, 0)) == mapper && WIFEXITED(status))
            mapped = WEXITSTATUS(status);
    }
    if (err->msg[0])
        return -1;
    if (mapped == MAPPED_ALL)
        return 0;
    if (plan->range.count > 0)
        hutch_err_set(why_not, 0, "newuidmap or newgidmap %s",
                      mapped == NO_MAPPER ? "is not installed" : "maps no range of ids");
    plan->range.count = 0;
    return write_maps(0, one.uid, one.gid, &one, true, mapped == MAPPED_UIDS, err);
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
    if (write_maps(pid, disk_uid, disk_gid, &one, false, false, err) == 0) {
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
