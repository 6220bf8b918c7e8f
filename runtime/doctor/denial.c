#include "runtime/doctor/denial.h"

#include "sandbox/caps.h"
#include "sandbox/fd.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Start of the file @root@path as text; "" when it cannot be read. */
static void read_text(const char *root, const char *path, char *buf, size_t size)
{
    char full[PATH_MAX];
    FILE *f;
    size_t n = 0;

    buf[0] = '\0';
    if ((size_t)snprintf(full, sizeof(full), "%s%s", root, path) >= sizeof(full))
        return;
    f = fopen(full, "re");
    if (f) {
        n = fread(buf, 1, size - 1, f);
        fclose(f);
    }
    buf[n] = '\0';
}

static int64_t read_setting(const char *root, const char *path)
{
    char text[32], *end;
    long long value;

    read_text(root, path, text, sizeof(text));
    value = strtoll(text, &end, 10);
    return end == text || value < 0 ? -1 : value;
}

static bool exists(const char *root, const char *path)
{
    char full[PATH_MAX];
    struct stat st;

    return (size_t)snprintf(full, sizeof(full), "%s%s", root, path) < sizeof(full) && stat(full, &st) == 0;
}

/* All namespaces that containers have are the ones that the kernel booted with (include/linux/proc_ns.h numbers them).
 * A virtual machine made from a container's file tree carries the marks of one, too. */
static bool has_first_namespaces(const char *root)
{
    static const char *const first[][2] = {
        { "pid", "pid:[4026531836]" },
        { "uts", "uts:[4026531838]" },
        { "ipc", "ipc:[4026531839]" },
        { "user", "user:[4026531837]" },
    };
    char path[PATH_MAX], link[64];

    for (size_t i = 0; i < ARRAY_SIZE(first); i++) {
        ssize_t n = (size_t)snprintf(path, sizeof(path), "%s/proc/self/ns/%s", root, first[i][0]) >= sizeof(path)
                    ? -1 : readlink(path, link, sizeof(link) - 1);

        link[n < 0 ? 0 : n] = '\0';
        if (strcmp(link, first[i][1]) != 0)
            return false;
    }
    return true;
}

/* How each leaves its mark on what it runs. systemd writes the file for all of them when it is PID 1 inside. */
static void find_container(const char *root, char *ret, size_t size)
{
    static const struct { const char *file, *name; } marks[] = {
        { "/.dockerenv", "docker" },
        { "/run/.containerenv", "podman" },
        { "/var/run/secrets/kubernetes.io", "kubernetes" },
        { "/dev/lxd", "lxc" },
    };
    const char *variable = root[0] ? NULL : getenv("container"); /* set by podman, lxc, systemd-nspawn */
    char text[32];

    ret[0] = '\0';
    if (has_first_namespaces(root))
        return;
    for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
        if (exists(root, marks[i].file)) {
            snprintf(ret, size, "%s", marks[i].name);
            return;
        }
    read_text(root, "/run/systemd/container", text, sizeof(text));
    text[strcspn(text, "\n")] = '\0';
    snprintf(ret, size, "%s", text[0] ? text : variable ? variable : "");
    for (char *c = ret; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789-_.", *c))
            *c = '?';
}

static bool is_mapped(const char *root, const char *path, unsigned id)
{
    char text[4096], *save = NULL;

    if (!exists(root, path))
        return true; /* no /proc, or a kernel without user namespaces: that will be said in better words */
    read_text(root, path, text, sizeof(text));
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        unsigned inside, outside, count;

        if (sscanf(line, "%u %u %u", &inside, &outside, &count) == 3 && id >= inside && id - inside < count)
            return true;
    }
    return false;
}

static bool is_first_userns(const char *root)
{
    char text[128];
    unsigned inside, outside, count;

    read_text(root, "/proc/self/uid_map", text, sizeof(text));
    return sscanf(text, "%u %u %u", &inside, &outside, &count) != 3 ||
           (inside == 0 && outside == 0 && count == UINT_MAX);
}

/* "/" is the root of a mount unless chroot(2) made it a directory like any other. */
static bool is_chrooted(void)
{
    struct statx st;

    return statx(AT_FDCWD, "/", AT_NO_AUTOMOUNT, 0, &st) == 0 && (st.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) &&
           !(st.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

static void find_program(char *ret, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", ret, size - 1);

    ret[n < 0 ? 0 : n] = '\0';
    /* It is going to stand in a quoted word of a command, and in a profile where some characters mean something. */
    for (const char *c = ret; *c; c++)
        if ((unsigned char)*c <= ' ' || strchr("'\"\\%*?[]{}@^", *c))
            ret[0] = '\0';
    if (!ret[0])
        snprintf(ret, size, "/usr/local/bin/hutch");
}

void hutch_denial_read_facts(const char *root, struct denial_facts *ret)
{
    char text[16];

    memset(ret, 0, sizeof(*ret));
    ret->max_user_namespaces = read_setting(root, "/proc/sys/user/max_user_namespaces");
    ret->userns_clone = (int)read_setting(root, "/proc/sys/kernel/unprivileged_userns_clone");
    ret->apparmor_restricts = (int)read_setting(root, "/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
    read_text(root, "/sys/fs/selinux/enforce", text, sizeof(text));
    ret->is_selinux_enforcing = text[0] == '1';
    ret->is_privileged = hutch_caps_has_effective(CAP_SYS_ADMIN);
    ret->is_chrooted = is_chrooted();
    ret->is_unmapped = !is_mapped(root, "/proc/self/uid_map", geteuid()) ||
                       !is_mapped(root, "/proc/self/gid_map", getegid());
    ret->is_nested = !is_first_userns(root);
    find_container(root, ret->container, sizeof(ret->container));
    find_program(ret->program, sizeof(ret->program));
}

bool hutch_denial_is_filtered(void)
{
    /* Neither makes anything: unshare(2) knows no CLONE_PARENT_SETTID, and a new user namespace cannot share its file
     * system attributes. */
    if (syscall(SYS_unshare, CLONE_NEWUSER | CLONE_PARENT_SETTID) == 0 || errno != EINVAL)
        return true;
    return syscall(SYS_clone, CLONE_NEWUSER | CLONE_FS | SIGCHLD, NULL, NULL, NULL, NULL) >= 0 || errno != EINVAL;
}

/* What the one who started the container has to add. */
static const struct {
    const char *container, *allow_userns, *show_proc;
} containers[] = {
    { "docker",
      "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt "
      "systempaths=unconfined ...",
      "docker run --security-opt systempaths=unconfined ..." },
    { "podman", "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL ...",
      "podman run --security-opt unmask=ALL ..." },
    { "kubernetes",
      "in the pod: hostUsers: false, and securityContext: {procMount: Unmasked, seccompProfile: {type: Unconfined}}",
      "in the pod: hostUsers: false, and securityContext: {procMount: Unmasked}" },
    { "lxc", "lxc config set CONTAINER security.nesting=true && lxc restart CONTAINER",
      "lxc config set CONTAINER security.nesting=true && lxc restart CONTAINER" },
};

static const char *container_fix(const struct denial_facts *facts, bool for_proc)
{
    for (size_t i = 0; i < ARRAY_SIZE(containers); i++)
        if (strcmp(facts->container, containers[i].container) == 0)
            return for_proc ? containers[i].show_proc : containers[i].allow_userns;
    return for_proc ? "start hutch outside of the container, or let the container have an uncovered /proc"
                    : "start hutch outside of the container, or let the container make user namespaces";
}

static void say(struct denial_cause *ret, const char *why)
{
    snprintf(ret->why, sizeof(ret->why), "%s", why);
    ret->fix[0] = '\0';
}

static void set_sysctl(struct denial_cause *ret, const char *setting)
{
    snprintf(ret->fix, sizeof(ret->fix),
             "echo '%s' | sudo tee -a /etc/sysctl.d/60-hutch.conf && sudo sysctl -p /etc/sysctl.d/60-hutch.conf",
             setting);
}

static void blame_apparmor(const struct denial_facts *facts, struct denial_cause *ret)
{
    say(ret, "AppArmor keeps programs without a profile from using user namespaces "
             "(kernel.apparmor_restrict_unprivileged_userns is 1)");
    snprintf(
        ret->fix, sizeof(ret->fix),
        "printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\nprofile hutch \"%%s\" flags=(unconfined) {\\n  "
        "userns,\\n}\\n' "
        "'%.300s' | sudo tee /etc/apparmor.d/hutch && sudo apparmor_parser -r /etc/apparmor.d/hutch    "
        "(or, for every program: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0)",
        facts->program);
}

static void blame_selinux(struct denial_cause *ret)
{
    say(ret, "SELinux denies it");
    snprintf(
        ret->fix, sizeof(ret->fix),
        "sudo ausearch -m avc -ts recent | audit2allow -M hutch && sudo semodule -i hutch.pp    (read hutch.te first)");
}

static void explain_limit(const struct denial_facts *facts, struct denial_cause *ret)
{
    if (facts->max_user_namespaces == 0) {
        say(ret, "user.max_user_namespaces is 0");
        set_sysctl(ret, "user.max_user_namespaces=15000");
    } else if (facts->is_nested) {
        say(ret,
            "the user namespace around hutch, or one around that, allows no more of them (user.max_user_namespaces is "
            "set "
            "further out than can be seen from here)");
        snprintf(ret->fix, sizeof(ret->fix),
                 "start hutch outside of the sandbox that it is in (bubblewrap: without --disable-userns), "
                 "or there: sysctl -w user.max_user_namespaces=15000");
    } else {
        snprintf(ret->why, sizeof(ret->why), "user.max_user_namespaces (%lld) is used up",
                 (long long)facts->max_user_namespaces);
        snprintf(ret->fix, sizeof(ret->fix), "sudo sysctl -w user.max_user_namespaces=%lld",
                 (long long)(facts->max_user_namespaces < 1000 ? 15000 : facts->max_user_namespaces * 2));
    }
}

static void explain_eperm(const struct denial_facts *facts, struct denial_cause *ret)
{
    if (facts->is_filtered) {
        say(ret, "a seccomp filter around hutch forbids it, as those of containers do");
        snprintf(ret->fix, sizeof(ret->fix), "%s",
                 facts->container[0] ? container_fix(facts, false)
                                     : "start hutch outside of the sandbox or service that set the filter");
    } else if (facts->is_chrooted) {
        say(ret, "hutch is in a chroot, where the kernel makes no user namespaces");
        snprintf(ret->fix, sizeof(ret->fix),
                 "start hutch outside of the chroot, or go there by pivot_root(2): bwrap --dev-bind DIR / hutch ...");
    } else if (facts->is_unmapped) {
        say(ret, "hutch's own user or group id is not mapped in the user namespace around it");
        snprintf(ret->fix, sizeof(ret->fix), "map it where that namespace is made (unshare --map-current-user)");
    } else if (facts->userns_clone == 0 && !facts->is_privileged) {
        say(ret, "kernel.unprivileged_userns_clone is 0");
        set_sysctl(ret, "kernel.unprivileged_userns_clone=1");
    } else if (facts->apparmor_restricts > 0 && !facts->is_privileged) {
        blame_apparmor(facts, ret);
    } else if (facts->is_selinux_enforcing) {
        blame_selinux(ret);
    } else if (facts->container[0]) {
        say(ret, "the container around hutch forbids it");
        snprintf(ret->fix, sizeof(ret->fix), "%s", container_fix(facts, false));
    } else {
        say(ret, "no setting that hutch knows explains it: a security module or a patch of this kernel");
        snprintf(ret->fix, sizeof(ret->fix), "sudo dmesg | tail    (security modules log what they deny)");
    }
}

void hutch_denial_explain_userns(const struct denial_facts *facts, int errnum, struct denial_cause *ret)
{
    switch (errnum) {
    case ENOSPC: /* since Linux 4.9, also for too many levels */
    case EUSERS:
        explain_limit(facts, ret);
        break;
    case EINVAL:
        say(ret, "this kernel is built without CONFIG_USER_NS");
        snprintf(
            ret->fix, sizeof(ret->fix),
            "sudo apt-get install linux-image-$(dpkg --print-architecture) && sudo reboot    (or any kernel with "
            "CONFIG_USER_NS=y)");
        break;
    case ENOSYS:
        say(ret, "a seccomp filter around hutch hides the call");
        snprintf(ret->fix, sizeof(ret->fix), "%s",
                 facts->container[0] ? container_fix(facts, false)
                                     : "start hutch outside of the sandbox or service that set the filter");
        break;
    case EAGAIN:
        say(ret, "the user has too many processes (RLIMIT_NPROC), or the cgroup around hutch does");
        snprintf(ret->fix, sizeof(ret->fix), "ulimit -u \"$(ulimit -H -u)\"");
        break;
    case ENOMEM:
        say(ret, "the kernel has no memory left for it");
        break;
    default: /* EPERM, and EACCES from a security module's hook */
        explain_eperm(facts, ret);
    }
}

bool hutch_denial_explain_inside(const struct denial_facts *facts, int errnum, struct denial_cause *ret)
{
    if (errnum != EPERM && errnum != EACCES)
        return false;
    /* Since AppArmor 4 the namespace itself is granted, and every capability in it denied. */
    if (facts->apparmor_restricts > 0 && !facts->is_privileged)
        blame_apparmor(facts, ret);
    else if (facts->is_selinux_enforcing)
        blame_selinux(ret);
    else if (facts->container[0]) {
        say(ret, "the container around hutch forbids it");
        snprintf(ret->fix, sizeof(ret->fix), "%s", container_fix(facts, false));
    } else
        return false;
    return true;
}

void hutch_denial_explain_proc(const struct denial_facts *facts, const char *covered, struct denial_cause *ret)
{
    if (covered[0])
        snprintf(ret->why, sizeof(ret->why),
                 "the /proc around hutch is partly covered (%.100s), and the kernel gives no fresh one then", covered);
    else
        say(ret, "no whole /proc is mounted around hutch, and the kernel gives no fresh one then");
    snprintf(
        ret->fix, sizeof(ret->fix), "%s",
        facts->container[0] ? container_fix(facts, true)
        : covered[0]
            ? "start hutch outside of the container or service that covers it (systemd: without "
              "ProtectKernelTunables= and "
              "ProtectKernelLogs=)"
            : "sudo mount -t proc proc /proc");
}
