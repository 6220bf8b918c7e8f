/* What counts and bounds: cgroup v2, and the resource limits that stand in for it. */
#include "runtime/doctor/probes.h"

#include "runtime/doctor/delegation.h"
#include "sandbox/caps.h"
#include "sandbox/fd.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct delegation_facts look(const struct doctor_host *host)
{
    struct delegation_facts facts;

    hutch_delegation_look(host->uid, host->facts.container[0] != '\0', host->cgroup.mount, &facts);
    return facts;
}

static void fix_delegation(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct delegation_facts facts = look(host);

    hutch_delegation_command(&facts, ret->fix, sizeof(ret->fix));
}

void hutch_probe_cgroup_v2(const struct doctor_host *host, struct doctor_finding *ret)
{
    if (!host->cgroup.mount) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "no cgroup v2 hierarchy is mounted");
        if (host->facts.container[0])
            hutch_doctor_fix(ret, "start the container with /sys/fs/cgroup in it (docker: --cgroupns=private)");
        else if (look(host).init == INIT_SYSTEMD)
            hutch_doctor_fix(ret, DOCTOR_BOOT_WITH("systemd.unified_cgroup_hierarchy=1"));
        return;
    }
    hutch_doctor_found(ret, DOCTOR_OK, "mounted at '%s'", host->cgroup.mount);
}

/* A group with the limits of @spec; false when there is none, with the finding filled. */
static bool make_group(const struct doctor_host *host, const struct sandbox_spec *spec, struct sandbox_cgroup *cg,
                       struct doctor_finding *ret)
{
    struct hutch_err err;

    if (host->cgroup.dirfd < 0) {
        ret->is_consequence = true;
        hutch_doctor_found(ret, DOCTOR_MISSING, "not tried: it takes a cgroup of our own");
        return false;
    }
    if (hutch_cgroup_create(&host->cgroup, host->scratch_name, spec, cg, &err) < 0) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "%s", err.msg);
        return false;
    }
    return true;
}

static void drop_group(struct sandbox_cgroup *cg)
{
    struct hutch_err ignored;

    hutch_cgroup_destroy(cg, DOCTOR_TIMEOUT_MS, &ignored);
    hutch_cgroup_done(cg);
}

static bool is_v2_mounted(const struct doctor_host *host, struct doctor_finding *ret)
{
    if (host->cgroup.mount)
        return true;
    ret->is_consequence = true;
    hutch_doctor_found(ret, DOCTOR_MISSING, "not tried: it takes cgroup v2");
    return false;
}

void hutch_probe_delegation(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct sandbox_cgroup cg = CGROUP_INIT;

    if (!is_v2_mounted(host, ret))
        return;
    if (host->cgroup.dirfd < 0) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "no group that uid %u may make others in", host->uid);
        fix_delegation(host, ret);
        return;
    }
    if (!make_group(host, &host->ids, &cg, ret)) {
        fix_delegation(host, ret);
        return;
    }
    drop_group(&cg);
    hutch_doctor_found(ret, DOCTOR_OK, "groups can be made below '%s'", host->cgroup.path);
}

static bool file_has_word(const char *path, const char *word)
{
    FILE *f = fopen(path, "re");
    char got[64];
    bool found = false;

    while (f && !found && fscanf(f, "%63s", got) == 1)
        found = strcmp(got, word) == 0;
    if (f)
        fclose(f);
    return found;
}

/* /proc/cgroups: name, hierarchy (0 is v2), number of groups, enabled. */
static bool read_controller(const char *name, int *ret_hierarchy, int *ret_enabled)
{
    FILE *f = fopen("/proc/cgroups", "re");
    char line[256], got[64];
    bool found = false;

    while (f && !found && fgets(line, sizeof(line), f))
        found = sscanf(line, "%63s %d %*d %d", got, ret_hierarchy, ret_enabled) == 3 && strcmp(got, name) == 0;
    if (f)
        fclose(f);
    return found;
}

static void explain_controller(const struct doctor_host *host, const char *name, struct doctor_finding *ret)
{
    char path[PATH_MAX];
    int hierarchy, enabled;
    bool is_known = read_controller(name, &hierarchy, &enabled);
    struct delegation_facts facts = look(host);

    snprintf(path, sizeof(path), "%s/cgroup.controllers", host->cgroup.mount);
    if (file_has_word(path, name)) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "%s", host->cgroup.dirfd < 0
                           ? "this host has it, and does not delegate it to this user" : host->cgroup.why_not);
        ret->is_consequence = host->cgroup.dirfd < 0;
        if (facts.init == INIT_SYSTEMD && host->cgroup.dirfd >= 0)
            hutch_doctor_fix(
                ret,
                "sudo mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\\nDelegate=cpu cpuset io "
                "memory "
                "pids\\n' | sudo tee /etc/systemd/system/user@.service.d/delegate.conf && sudo systemctl daemon-reload "
                "&& sudo systemctl restart user@%u",
                host->uid);
        else
            fix_delegation(host, ret);
    } else if (is_known && hierarchy != 0) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "this host has it in a v1 hierarchy, which cannot be shared with v2");
        hutch_delegation_leave_v1(&facts, ret->fix, sizeof(ret->fix));
    } else if (is_known && !enabled) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "switched off on the kernel's command line");
        hutch_doctor_fix(ret, DOCTOR_BOOT_WITH("cgroup_enable=%s"), name);
    } else if (is_known || access("/proc/cgroups", F_OK) < 0 || host->facts.container[0]) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "the cgroup tree that is mounted here does not have it");
        fix_delegation(host, ret);
    } else {
        hutch_doctor_found(ret, DOCTOR_MISSING, "not compiled into this kernel");
        hutch_doctor_fix(
            ret, "a kernel that has it: sudo apt-get install linux-image-$(dpkg --print-architecture) && sudo reboot");
    }
}

/* Sets @limit by the controller, and reads from @file that it is in force. */
static void probe_controller(const struct doctor_host *host, const char *name, unsigned bit, enum sandbox_limit limit,
                             uint64_t value, const char *file, const char *want, struct doctor_finding *ret)
{
    struct sandbox_spec spec = host->ids;
    struct sandbox_cgroup cg = CGROUP_INIT;
    char got[64] = "";
    auto_fd fd = -1;
    ssize_t n;

    if (!is_v2_mounted(host, ret))
        return;
    if (!(host->cgroup.controllers & bit)) {
        explain_controller(host, name, ret);
        return;
    }
    spec.limits[limit] = value;
    if (!make_group(host, &spec, &cg, ret))
        return;
    fd = openat(cg.dirfd, file, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : hutch_fd_read_full(fd, got, sizeof(got) - 1);
    if (n < 0)
        hutch_doctor_found(ret, DOCTOR_MISSING, "read '%s': %s", file, strerrordesc_np(errno));
    else if (got[strcspn(got, "\n")] = '\0', strcmp(got, want) != 0)
        hutch_doctor_found(ret, DOCTOR_MISSING, "'%s' reads '%s' after '%s' was written", file, got, want);
    else
        hutch_doctor_found(ret, DOCTOR_OK, "limits of a group can be set");
    hutch_fd_closep(&fd);
    drop_group(&cg);
}

void hutch_probe_memory(const struct doctor_host *host, struct doctor_finding *ret)
{
    probe_controller(host, "memory", CGROUP_MEMORY, LIMIT_MEMORY, 64u << 20, "memory.max", "67108864", ret);
}

void hutch_probe_pids(const struct doctor_host *host, struct doctor_finding *ret)
{
    probe_controller(host, "pids", CGROUP_PIDS, LIMIT_PIDS, 15, "pids.max", "16", ret); /* + our init */
}

void hutch_probe_cpu(const struct doctor_host *host, struct doctor_finding *ret)
{
    probe_controller(host, "cpu", CGROUP_CPU, LIMIT_CPUS, 500, "cpu.max", "50000 100000", ret);
}

void hutch_probe_memory_peak(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct sandbox_spec spec = host->ids;
    struct sandbox_cgroup cg = CGROUP_INIT;
    struct cgroup_usage usage;

    if (host->cgroup.dirfd < 0 || !(host->cgroup.controllers & CGROUP_MEMORY)) {
        ret->is_consequence = true;
        hutch_doctor_found(ret, DOCTOR_DEGRADED, "not tried: it takes the memory controller");
        return;
    }
    spec.limits[LIMIT_MEMORY] = 64u << 20;
    if (!make_group(host, &spec, &cg, ret))
        return;
    hutch_cgroup_read_usage(&cg, &usage);
    if (usage.memory_peak_bytes == UINT64_MAX)
        hutch_doctor_found(ret, DOCTOR_DEGRADED, "this kernel has no memory.peak (Linux 5.19)");
    else
        hutch_doctor_found(ret, DOCTOR_OK, "the most memory that a run used is known");
    drop_group(&cg);
}

/* A process born inside @cg, as a sandbox's init is; -1 with errno. */
static pid_t clone_into(const struct sandbox_cgroup *cg, int *ret_pidfd)
{
    struct clone_args args = {
        .flags = CLONE_INTO_CGROUP | CLONE_PIDFD,
        .pidfd = (__u64)(uintptr_t)ret_pidfd,
        .exit_signal = SIGCHLD,
        .cgroup = (__u64)cg->dirfd,
    };
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

    if (pid == 0)
        for (;;)
            pause();
    return pid;
}

void hutch_probe_clone_into_cgroup(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct sandbox_cgroup cg = CGROUP_INIT;
    char want[16], path[32];
    int pidfd = -1, e;
    pid_t pid;

    if (!make_group(host, &host->ids, &cg, ret))
        return;
    pid = clone_into(&cg, &pidfd);
    e = errno;
    snprintf(want, sizeof(want), "%d", pid);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", cg.dirfd);
    if (pid < 0) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "%s%s", strerrordesc_np(e),
                           e == EACCES ? ": hutch itself is outside of the delegated subtree" :
                           e == ENOSYS ? ": clone3 is hidden by a seccomp filter" : "");
        if (e == EACCES)
            fix_delegation(host, ret);
    } else {
        char procs[64];

        snprintf(procs, sizeof(procs), "%s/cgroup.procs", path);
        if (file_has_word(procs, want))
            hutch_doctor_found(ret, DOCTOR_OK, "a process can be born inside a group");
        else
            hutch_doctor_found(ret, DOCTOR_MISSING, "a process that was to be born inside a group is not there");
        kill(pid, SIGKILL);
        TEMP_FAILURE_RETRY(waitpid(pid, NULL, 0));
    }
    drop_group(&cg);
}

void hutch_probe_cgroup_kill(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct sandbox_cgroup cg = CGROUP_INIT;
    struct pollfd pfd = { .fd = -1, .events = POLLIN };
    struct hutch_err err;
    pid_t pid;

    if (!make_group(host, &host->ids, &cg, ret))
        return;
    pid = clone_into(&cg, &pfd.fd);
    if (pid < 0) {
        ret->is_consequence = true;
        hutch_doctor_found(ret, DOCTOR_MISSING, "not tried: it takes a process inside a group");
    } else {
        if (hutch_fd_write_file_at(cg.dirfd, "cgroup.kill", "1", &err) < 0)
            hutch_doctor_found(ret, DOCTOR_DEGRADED, "%s",
                               err.errnum == ENOENT ? "this kernel has no cgroup.kill (Linux 5.14)" : err.msg);
        else if (poll(&pfd, 1, DOCTOR_TIMEOUT_MS / 2) != 1)
            hutch_doctor_found(ret, DOCTOR_DEGRADED, "a process inside a group survives cgroup.kill");
        else
            hutch_doctor_found(ret, DOCTOR_OK, "everything in a group can be killed at once");
        kill(pid, SIGKILL);
        TEMP_FAILURE_RETRY(waitpid(pid, NULL, 0));
    }
    drop_group(&cg);
}

/* Two processes are allowed, and we are one of them. Where the kernel counts all of a user's processes, not just those
 * of this user namespace, the one more is refused: outside there are hutch itself and whatever started it. */
void hutch_probe_rlimit_nproc(const struct doctor_host *host, struct doctor_finding *ret)
{
    struct rlimit two = { 2, 2 };
    struct hutch_err err;
    pid_t first, second;

    /* CAP_SYS_RESOURCE of a user namespace lifts nothing, but the worker has none either. */
    if (hutch_caps_drop_all(&err) < 0) {
        hutch_doctor_failed(host, ret, err.errnum, "drop all capabilities");
        return;
    }
    if (setrlimit(RLIMIT_NPROC, &two) < 0) {
        hutch_doctor_failed(host, ret, errno, "set RLIMIT_NPROC");
        return;
    }
    first = fork();
    if (first == 0)
        for (;;)
            pause();
    if (first < 0) {
        hutch_doctor_found(ret, DOCTOR_DEGRADED,
                           "the limit counts the user's processes outside, too (before Linux 5.14)");
        return;
    }
    second = fork();
    if (second == 0)
        for (;;)
            pause();
    if (second < 0 && errno == EAGAIN)
        hutch_doctor_found(ret, DOCTOR_OK, "RLIMIT_NPROC counts per user namespace");
    else
        hutch_doctor_found(ret, DOCTOR_MISSING, "RLIMIT_NPROC does not bind in a user namespace");
    kill(first, SIGKILL);
    if (second > 0)
        kill(second, SIGKILL);
}

void hutch_probe_affinity(const struct doctor_host *host, struct doctor_finding *ret)
{
    cpu_set_t all, one;
    int cpu = 0;

    if (sched_getaffinity(0, sizeof(all), &all) < 0) {
        hutch_doctor_failed(host, ret, errno, "read the CPU affinity");
        return;
    }
    while (cpu < CPU_SETSIZE && !CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof(one), &one) < 0)
        hutch_doctor_failed(host, ret, errno, "pin to one CPU");
    else
        hutch_doctor_found(ret, DOCTOR_OK, "a sandbox can be pinned to some of the %d CPUs", CPU_COUNT(&all));
}
