/* Namespaces, what takes rights away, and single system calls. */
#include "runtime/doctor/probes.h"

#include "sandbox/caps.h"
#include "sandbox/fd.h"
#include "sandbox/ids.h"
#include "sandbox/landlock.h"
#include "sandbox/netns.h"
#include "sandbox/seccomp.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* An ordinary user's. Whether the range can be mapped is what hutch_probe_newuidmap() tries. */
static void find_own_range(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct id_range range;
    struct hutch_err why;

    if (hutch_userns_find_range(&range, &why)) {
        hutch_doctor_found(ret, DOCTOR_OK, "each sandbox whose files are in memory has a uid of its own, of %u to %u",
                           range.uid + 1, range.uid + range.count - 1);
        return;
    }
    hutch_doctor_found(ret, DOCTOR_DEGRADED, "sandboxes run as the caller, uid %u: %s", host->plan.host_uid, why.msg);
    hutch_doctor_costs(ret, "sandboxes share what the kernel counts for each user, as do this user's programs");
    if (why.errnum != EOPNOTSUPP)
        hutch_doctor_give_subids(host, ret);
}

void hutch_probe_identity(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct id_plan plan = host->plan;
    auto_fd fd = -1;
    struct hutch_err err;

    if (!host->has_plan) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "%s", host->plan_err.msg);
        hutch_doctor_costs(ret, "nothing runs");
        hutch_doctor_fix(ret,
                         "runuser -u USER -- hutch ...    (or leave root its capabilities CAP_SETUID and CAP_SETGID)");
    } else if (!host->plan.is_mapped_away) {
        find_own_range(host, ret);
    } else if (host->plan.host_uid == 65534) {
        hutch_doctor_found(ret, DOCTOR_DEGRADED, "root's sandboxes run as uid 65534 (nobody)");
    } else if (host->plan.range.count < 2) {
        hutch_doctor_found(ret, DOCTOR_DEGRADED, "root's sandboxes all run as uid %u, the only one of the user hutch",
                           host->plan.host_uid);
        hutch_doctor_costs(ret, "root's sandboxes share what the kernel counts for each user");
        hutch_doctor_fix(ret, "give the user hutch a longer range, in its line of /etc/subuid and of /etc/subgid");
    } else if (hutch_ids_borrow(&plan, &fd, &err) < 0) {
        hutch_doctor_found(ret, DOCTOR_DEGRADED, "root's sandboxes all run as uid %u: %s", host->plan.host_uid,
                           err.msg);
        hutch_doctor_costs(ret, "root's sandboxes share what the kernel counts for each user");
        hutch_doctor_fix(ret, "chmod 700 /run/hutch && chmod 600 /run/hutch/ids    (or wait until a sandbox ends)");
    } else {
        hutch_doctor_found(ret, DOCTOR_OK, "each of root's sandboxes has a uid of its own, of %u to %u",
                           plan.range.uid + 1, plan.range.uid + plan.range.count - 1);
    }
}

void hutch_probe_user_ns(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct denial_facts facts = host->facts;
    struct denial_cause cause;
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL);
    int e = errno;

    if (pid == 0)
        _exit(0);
    if (pid > 0) {
        TEMP_FAILURE_RETRY(waitpid(pid, NULL, 0));
        hutch_doctor_found(ret, DOCTOR_OK, "can be made");
        return;
    }
    facts.is_filtered = hutch_denial_is_filtered();
    hutch_denial_explain_userns(&facts, e, &cause);
    hutch_doctor_found(ret, DOCTOR_MISSING, "%s: %s", strerrordesc_np(e), cause.why);
    hutch_doctor_fix(ret, "%s", cause.fix);
}

void hutch_probe_id_maps(const struct doctor_host *host, struct doctor_finding *ret)
{
    if (getuid() != host->ids.uid_inside || getgid() != host->ids.gid_inside)
        hutch_doctor_found(ret, DOCTOR_MISSING, "the ids inside came out as %u:%u", getuid(), getgid());
    else
        hutch_doctor_found(ret, DOCTOR_OK, "uid %u inside is uid %u outside", getuid(), host->plan.host_uid);
}

void hutch_probe_pid_ns(const struct doctor_host *host, struct doctor_finding *ret)
{
    (void)host;
    if (getpid() != 1)
        hutch_doctor_found(ret, DOCTOR_MISSING, "the first process inside has pid %d", getpid());
    else
        hutch_doctor_found(ret, DOCTOR_OK, "can be made");
}

void hutch_probe_net_ns(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct hutch_err err;

    if (hutch_netns_loopback_up(&err) < 0)
        hutch_doctor_failed(host, ret, err.errnum, "in a new network namespace, bring up loopback");
    else
        hutch_doctor_found(ret, DOCTOR_OK, "can be made, with a loopback interface");
}

void hutch_probe_ipc_ns(const struct doctor_host *host, struct doctor_finding *ret)
{
    (void)host;
    hutch_doctor_found(ret, DOCTOR_OK, "can be made");
}

void hutch_probe_uts_ns(const struct doctor_host *host, struct doctor_finding *ret)
{
    (void)host;
    hutch_doctor_found(ret, DOCTOR_OK, "can be made");
}

/* A sandbox goes without where a policy only tries. */
static void soften(struct doctor_finding *ret)
{
    if (ret->status == DOCTOR_MISSING && !ret->is_consequence)
        ret->status = DOCTOR_DEGRADED;
}

void hutch_probe_host_name(const struct doctor_host *host, struct doctor_finding *ret)
{
    if (sethostname("hutch", 5) < 0)
        hutch_doctor_failed(host, ret, errno, "in a new UTS namespace, set the host name");
    else
        hutch_doctor_found(ret, DOCTOR_OK, "can be set");
    soften(ret);
}

void hutch_probe_net_buffers(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct denial_cause cause;
    struct hutch_err err;

    if (hutch_netns_bound_buffers(&err) < 0) {
        hutch_doctor_failed(host, ret, err.errnum, "in a new network namespace, write /proc/sys/net/ipv4/tcp_rmem");
        hutch_denial_explain_proc(&host->facts, "/proc/sys", &cause);
        hutch_doctor_fix(ret, "%s", cause.fix);
    } else {
        hutch_doctor_found(ret, DOCTOR_OK, "can be bounded");
    }
    soften(ret);
}

void hutch_probe_cgroup_ns(const struct doctor_host *host, struct doctor_finding *ret)
{
    if (unshare(CLONE_NEWCGROUP) < 0)
        hutch_doctor_failed(host, ret, errno, "make a cgroup namespace");
    else
        hutch_doctor_found(ret, DOCTOR_OK, "can be made");
}

void hutch_probe_capabilities(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct hutch_err err;

    if (!hutch_caps_has_effective(CAP_SYS_ADMIN) || !hutch_caps_has_effective(CAP_NET_ADMIN))
        hutch_doctor_failed(host, ret, EPERM, "hold capabilities in a new user namespace");
    else if (hutch_caps_drop_all(&err) < 0)
        hutch_doctor_failed(host, ret, err.errnum, "drop all capabilities");
    else if (hutch_caps_has_effective(CAP_SYS_ADMIN) || prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) != 0)
        hutch_doctor_found(ret, DOCTOR_MISSING, "capabilities are still there after they were dropped");
    else
        hutch_doctor_found(ret, DOCTOR_OK, "all sets can be emptied for good");
}

void hutch_probe_no_new_privs(const struct doctor_host *host, struct doctor_finding *ret)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
        hutch_doctor_failed(host, ret, errno, "set no_new_privs");
    else
        hutch_doctor_found(ret, DOCTOR_OK, "can be set");
}

void hutch_probe_seccomp(const struct doctor_host *host, struct doctor_finding *ret)
{
    static char call[] = "getppid";
    char *names[] = { call, NULL };
    struct seccomp_rule rule = { .names = names, .verdict = SECCOMP_ERRNO, .errnum = EXDEV };
    struct seccomp_rules rules = { .default_verdict = SECCOMP_ALLOW, .rules = &rule, .n_rules = 1 };
    struct seccomp_program program;
    struct hutch_err err;

    if (hutch_seccomp_compile(&rules, &program, &err) < 0) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "%s", err.msg);
        return;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || hutch_seccomp_load(&program, &err) < 0)
        hutch_doctor_failed(host, ret, errno, "load a filter");
    else if (syscall(SYS_getppid) != -1 || errno != EXDEV)
        hutch_doctor_found(ret, DOCTOR_MISSING, "a filter is loaded and does not filter");
    else
        hutch_doctor_found(ret, DOCTOR_OK, "a filter can be loaded and filters");
}

/* What hutch uses of each ABI: landlock(7), and sandbox/landlock.c. */
static const struct { int abi; const char *gives, *kernel; } landlock_abis[] = {
    { 2, "renames and links between directories", "5.19" },
    { 3, "truncation", "6.2" },
    { 5, "device ioctls", "6.10" },
    { 6, "abstract sockets and signals across the border", "6.12" },
};

void hutch_probe_landlock(const struct doctor_host *host, struct doctor_finding *ret)
{
    int abi = hutch_landlock_abi(), e = errno, ruleset = -1;
    char lacks[200] = "";
    size_t len = 0;
    struct hutch_err err;
    const char *kernel = "";

    if (abi == 0) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "%s",
                           e == EOPNOTSUPP ? "compiled into this kernel, and not switched on at boot"
                           : e == ENOSYS   ? "not compiled into this kernel (or hidden by a seccomp filter)"
                                           : strerrordesc_np(e));
        if (e == EOPNOTSUPP)
            hutch_doctor_fix(ret, DOCTOR_BOOT_WITH("lsm=landlock,'\"$(cat /sys/kernel/security/lsm)\"'"));
        return;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || hutch_landlock_make(&host->ids, abi, false, &ruleset, &err) < 0 ||
        hutch_landlock_enforce(ruleset, &err) < 0) {
        hutch_doctor_failed(host, ret, errno, "enforce a ruleset of ABI %d", abi);
        return;
    }
    /* A mode of the file would let everybody write, and the rules let nobody. */
    if (open("/dev/null", O_WRONLY | O_CLOEXEC) >= 0 || errno != EACCES) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "a ruleset is enforced and forbids nothing");
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(landlock_abis); i++)
        if (abi < landlock_abis[i].abi && len < sizeof(lacks)) {
            len += (size_t)snprintf(lacks + len, sizeof(lacks) - len, "%s%s", len ? ", " : "", landlock_abis[i].gives);
            kernel = landlock_abis[i].kernel;
        }
    if (!len) {
        hutch_doctor_found(ret, DOCTOR_OK,
                           "ABI %d: writes, renames, truncation, device ioctls, abstract sockets, signals", abi);
        return;
    }
    hutch_doctor_found(ret, DOCTOR_DEGRADED, "ABI %d: writes are restricted; not covered: %s", abi, lacks);
    hutch_doctor_costs(ret, "for what is not covered, only the namespaces and the seccomp filter stand");
    hutch_doctor_fix(ret, "a kernel from Linux %s on", kernel);
}

void hutch_probe_clone3(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct clone_args args = { .exit_signal = SIGCHLD };
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

    if (pid == 0)
        _exit(0);
    if (pid < 0) {
        hutch_doctor_failed(host, ret, errno, "make a process with clone3");
        return;
    }
    TEMP_FAILURE_RETRY(waitpid(pid, NULL, 0));
    hutch_doctor_found(ret, DOCTOR_OK, "works");
}

void hutch_probe_pidfd(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct pollfd pfd = { .fd = -1, .events = POLLIN };
    int status = 0;
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, NULL, &pfd.fd, NULL, NULL);

    if (pid == 0)
        for (;;)
            pause();
    if (pid < 0 || pfd.fd < 0)
        hutch_doctor_failed(host, ret, pid < 0 ? errno : ENOSYS, "get a descriptor of a process");
    else if (syscall(SYS_pidfd_send_signal, pfd.fd, SIGKILL, NULL, 0) < 0)
        hutch_doctor_failed(host, ret, errno, "signal a process by its descriptor");
    else if (poll(&pfd, 1, DOCTOR_TIMEOUT_MS) != 1 || waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
        hutch_doctor_found(ret, DOCTOR_MISSING, "a process that was killed by its descriptor is not seen to end");
    else
        hutch_doctor_found(ret, DOCTOR_OK, "works");
}

void hutch_probe_close_range(const struct doctor_host *host, struct doctor_finding *ret)
{
    int fd = fcntl(STDIN_FILENO, F_DUPFD, 100), other = fcntl(STDIN_FILENO, F_DUPFD, 200);

    if (fd < 0 || other < 0)
        hutch_doctor_found(ret, DOCTOR_MISSING, "duplicate a descriptor: %s", strerrordesc_np(errno));
    else if (syscall(SYS_close_range, fd, fd, 0) < 0 || syscall(SYS_close_range, other, other, CLOSE_RANGE_CLOEXEC) < 0)
        hutch_doctor_failed(host, ret, errno, "close a range of descriptors");
    else if (fcntl(fd, F_GETFD) != -1 || fcntl(other, F_GETFD) != FD_CLOEXEC)
        hutch_doctor_found(ret, DOCTOR_MISSING, "descriptors stay open");
    else
        hutch_doctor_found(ret, DOCTOR_OK, "works");
}

void hutch_probe_openat2(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
    int root = open("/usr", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = (int)syscall(SYS_openat2, root, "/../..", &how, sizeof(how));
    struct stat want, got;

    if (root < 0)
        hutch_doctor_found(ret, DOCTOR_MISSING, "open '/usr': %s", strerrordesc_np(errno));
    else if (fd < 0)
        hutch_doctor_failed(host, ret, errno, "open a path inside a root");
    else if (fstat(root, &want) < 0 || fstat(fd, &got) < 0 || want.st_ino != got.st_ino || want.st_dev != got.st_dev)
        hutch_doctor_found(ret, DOCTOR_MISSING, "a path leads out of the root that it was to stay in");
    else
        hutch_doctor_found(ret, DOCTOR_OK, "works");
}
