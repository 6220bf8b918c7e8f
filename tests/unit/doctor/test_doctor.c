/* hutch doctor: which cause is named on hosts that this one is not, and what becomes of checks that misbehave. */
#include "runtime/doctor/doctor.h"

#include "runtime/doctor/delegation.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

static const struct denial_facts quiet_host = {
    .max_user_namespaces = 63000, .userns_clone = -1, .apparmor_restricts = -1, .program = "/opt/hutch/bin/hutch",
};

struct cause_case {
    const char *label;
    int errnum;
    struct denial_facts facts; /* added to quiet_host: see apply() */
    const char *why, *fix;     /* parts */
};

/* quiet_host with what the row sets; in a row, 0 keeps the quiet value, and a sysctl that reads 0 is written as -2. */
static struct denial_facts apply(const struct denial_facts *row)
{
    struct denial_facts f = *row;

    f.max_user_namespaces = row->max_user_namespaces == 0    ? quiet_host.max_user_namespaces
                            : row->max_user_namespaces == -2 ? 0
                                                             : row->max_user_namespaces;
    f.userns_clone = row->userns_clone == 0 ? -1 : row->userns_clone == -2 ? 0 : row->userns_clone;
    f.apparmor_restricts = row->apparmor_restricts == 0    ? -1
                           : row->apparmor_restricts == -2 ? 0
                                                           : row->apparmor_restricts;
    if (!f.program[0])
        memcpy(f.program, quiet_host.program, sizeof(f.program));
    return f;
}

static const struct cause_case userns_cases[] = {
    { "Debian 10",
      EPERM,
      { .userns_clone = -2 },
      "kernel.unprivileged_userns_clone is 0",
      "kernel.unprivileged_userns_clone=1" },
    { "Debian 10, root", EPERM, { .userns_clone = -2, .is_privileged = true }, "no setting that hutch knows", "dmesg" },
    { "Ubuntu 24.04",
      EPERM,
      { .apparmor_restricts = 1 },
      "kernel.apparmor_restrict_unprivileged_userns is 1",
      "profile hutch \"%s\" flags=(unconfined) {\\n  userns,\\n}\\n' '/opt/hutch/bin/hutch' | sudo tee "
      "/etc/apparmor.d/hutch && sudo "
      "apparmor_parser -r /etc/apparmor.d/hutch" },
    { "Ubuntu 24.04, the other way",
      EACCES,
      { .apparmor_restricts = 1 },
      "AppArmor",
      "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0" },
    { "Ubuntu 24.04, switched off", EPERM, { .apparmor_restricts = -2 }, "no setting that hutch knows", "dmesg" },
    { "docker",
      EPERM,
      { .is_filtered = true, .container = "docker" },
      "a seccomp filter around hutch forbids it",
      "docker run --security-opt seccomp=unconfined" },
    { "docker on Ubuntu 24.04: the filter comes first",
      EPERM,
      { .is_filtered = true, .container = "docker", .apparmor_restricts = 1 },
      "a seccomp filter",
      "docker run" },
    { "podman",
      EPERM,
      { .is_filtered = true, .container = "podman" },
      "seccomp",
      "podman run --security-opt seccomp=unconfined" },
    { "a filter that hides the call", ENOSYS, { .container = "kubernetes" }, "hides the call", "hostUsers: false" },
    { "lxc", EPERM, { .container = "lxc" }, "the container around hutch", "security.nesting=true" },
    { "a container of another kind",
      EPERM,
      { .container = "strange" },
      "the container around hutch",
      "outside of the container" },
    { "a service with a filter",
      EPERM,
      { .is_filtered = true },
      "a seccomp filter",
      "outside of the sandbox or service" },
    { "chroot", EPERM, { .is_chrooted = true }, "hutch is in a chroot", "bwrap --dev-bind DIR /" },
    { "chroot comes before sysctls", EPERM, { .is_chrooted = true, .userns_clone = -2 }, "hutch is in a chroot", "" },
    { "unmapped", EPERM, { .is_unmapped = true, .is_nested = true }, "is not mapped", "--map-current-user" },
    { "SELinux", EACCES, { .is_selinux_enforcing = true }, "SELinux", "semodule" },
    { "RHEL 7",
      ENOSPC,
      { .max_user_namespaces = -2 },
      "user.max_user_namespaces is 0",
      "user.max_user_namespaces=15000" },
    { "used up",
      ENOSPC,
      { .max_user_namespaces = 40000 },
      "user.max_user_namespaces (40000) is used up",
      "user.max_user_namespaces=80000" },
    { "bubblewrap --disable-userns", ENOSPC, { .is_nested = true }, "set further out", "without --disable-userns" },
    { "old kernel, too deep", EUSERS, { .is_nested = true }, "no more of them", "outside of the sandbox" },
    { "no CONFIG_USER_NS", EINVAL, { .container = "" }, "without CONFIG_USER_NS", "linux-image" },
    { "too many processes", EAGAIN, { .container = "" }, "too many processes", "ulimit -u" },
    { "anything else", EIO, { .container = "" }, "no setting that hutch knows", "" },
};

static void test_userns_causes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(userns_cases); i++) {
        const struct cause_case *c = &userns_cases[i];
        struct denial_facts facts = apply(&c->facts);
        struct denial_cause cause;

        memset(&cause, 'x', sizeof(cause));
        hutch_denial_explain_userns(&facts, c->errnum, &cause);
        if (!strstr(cause.why, c->why) || !strstr(cause.fix, c->fix))
            fail_msg("%s: why '%s', fix '%s'", c->label, cause.why, cause.fix);
    }
}

static const struct {
    const char *label;
    int errnum;
    struct denial_facts facts;
    const char *why; /* NULL: no setting explains it */
} inside_cases[] = {
    { "Ubuntu 24.04 grants the namespace and denies its capabilities",
      EACCES,
      { .apparmor_restricts = 1 },
      "AppArmor" },
    { "the same for root", EACCES, { .apparmor_restricts = 1, .is_privileged = true }, NULL },
    { "SELinux", EPERM, { .is_selinux_enforcing = true }, "SELinux" },
    { "docker", EPERM, { .container = "docker" }, "the container" },
    { "nothing known", EPERM, { .container = "" }, NULL },
    { "not a denial", ENOSYS, { .container = "docker" }, NULL },
};

static void test_inside_causes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(inside_cases); i++) {
        struct denial_facts facts = apply(&inside_cases[i].facts);
        struct denial_cause cause = { .why = "" };
        bool got = hutch_denial_explain_inside(&facts, inside_cases[i].errnum, &cause);

        if (got != (inside_cases[i].why != NULL) || (got && (!strstr(cause.why, inside_cases[i].why) || !cause.fix[0])))
            fail_msg("%s: %d, '%s'", inside_cases[i].label, got, cause.why);
    }
}

static void test_proc_causes(void **state)
{
    struct denial_facts facts = quiet_host;
    struct denial_cause cause;

    (void)state;
    hutch_denial_explain_proc(&facts, "/proc/kcore, /proc/sys", &cause);
    assert_string_equal(
        cause.why,
        "the /proc around hutch is partly covered (/proc/kcore, /proc/sys), and the kernel gives no fresh one then");
    assert_non_null(strstr(cause.fix, "ProtectKernelTunables="));
    strcpy(facts.container, "docker");
    hutch_denial_explain_proc(&facts, "/proc/sys", &cause);
    assert_string_equal(cause.fix, "docker run --security-opt systempaths=unconfined ...");
    facts.container[0] = '\0';
    hutch_denial_explain_proc(&facts, "", &cause);
    assert_string_equal(cause.fix, "sudo mount -t proc proc /proc");
}

/* ---- facts, read from trees like those of other hosts ---- */

static void put(const char *root, const char *path, const char *text)
{
    char full[PATH_MAX];
    int fd;

    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        assert_true(mkdir(full, 0755) == 0 || errno == EEXIST);
        *slash = '/';
    }
    if (strncmp(path, "/proc/self/ns/", 14) == 0) {
        assert_int_equal(symlink(text, full), 0);
        return;
    }
    fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(hutch_fd_write_all(fd, text, strlen(text)), 0);
    close(fd);
}

struct fake_file {
    const char *path, *text;
};

static void read_fake(const struct fake_file *files, size_t n, struct denial_facts *ret)
{
    char root[] = "/tmp/test_doctor.XXXXXX", command[64];

    assert_non_null(mkdtemp(root));
    for (size_t i = 0; i < n; i++)
        put(root, files[i].path, files[i].text);
    hutch_denial_read_facts(root, ret);
    snprintf(command, sizeof(command), "rm -rf %s", root);
    assert_int_equal(system(command), 0);
}

static void test_facts(void **state)
{
    static const struct fake_file ubuntu[] = {
        { "/proc/sys/user/max_user_namespaces", "15000\n" },
        { "/proc/sys/kernel/unprivileged_userns_clone", "1\n" },
        { "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n" },
        { "/proc/self/uid_map", "         0          0 4294967295\n" },
        { "/proc/self/gid_map", "         0          0 4294967295\n" },
    };
    static const struct fake_file unmapped[] = {
        { "/proc/self/uid_map", "" },
        { "/proc/self/gid_map", "" },
        { "/sys/fs/selinux/enforce", "1" },
    };
    struct denial_facts f;

    (void)state;
    read_fake(ubuntu, ARRAY_SIZE(ubuntu), &f);
    assert_int_equal(f.max_user_namespaces, 15000);
    assert_int_equal(f.userns_clone, 1);
    assert_int_equal(f.apparmor_restricts, 1);
    assert_false(f.is_unmapped);
    assert_false(f.is_nested);
    assert_false(f.is_selinux_enforcing);
    assert_string_equal(f.container, "");
    read_fake(unmapped, ARRAY_SIZE(unmapped), &f);
    assert_int_equal(f.max_user_namespaces, -1);
    assert_int_equal(f.userns_clone, -1);
    assert_int_equal(f.apparmor_restricts, -1);
    assert_true(f.is_unmapped);
    assert_true(f.is_selinux_enforcing);
}

static void test_containers(void **state)
{
    static const struct {
        const char *label;
        struct fake_file files[5];
        const char *want;
    } cases[] = {
        { "none", { { "/proc/self/uid_map", "0 0 4294967295\n" } }, "" },
        { "docker", { { "/.dockerenv", "" } }, "docker" },
        { "podman", { { "/run/.containerenv", "engine=\"podman\"\n" } }, "podman" },
        { "kubernetes", { { "/var/run/secrets/kubernetes.io/token", "x" } }, "kubernetes" },
        { "by systemd inside", { { "/run/systemd/container", "systemd-nspawn\n" } }, "systemd-nspawn" },
        { "a name that a terminal would obey", { { "/run/systemd/container", "a\033[31mb" } }, "a??31mb" },
        { "a virtual machine made from a container's files",
          { { "/.dockerenv", "" },
            { "/proc/self/ns/pid", "pid:[4026531836]" },
            { "/proc/self/ns/uts", "uts:[4026531838]" },
            { "/proc/self/ns/ipc", "ipc:[4026531839]" },
            { "/proc/self/ns/user", "user:[4026531837]" } }, "" },
        { "a container that shares the host's pids",
          { { "/.dockerenv", "" },
            { "/proc/self/ns/pid", "pid:[4026531836]" },
            { "/proc/self/ns/uts", "uts:[4026532999]" } }, "docker" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct denial_facts f;
        size_t n = 0;

        while (n < ARRAY_SIZE(cases[i].files) && cases[i].files[n].path)
            n++;
        read_fake(cases[i].files, n, &f);
        if (strcmp(f.container, cases[i].want) != 0)
            fail_msg("%s: '%s'", cases[i].label, f.container);
    }
}

/* ---- the table, and checks that misbehave ---- */

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < hutch_doctor_n_checks; i++) {
        const struct doctor_check *c = &hutch_doctor_checks[i];

        assert_non_null(c->probe);
        assert_true(c->costs[0] && strlen(c->costs) < sizeof(((struct doctor_finding *)0)->costs));
        assert_true(c->fix[0] && strlen(c->fix) < sizeof(((struct doctor_finding *)0)->fix));
        assert_true(strlen(c->name) <= 18); /* the width of its column */
        assert_true(c->place == DOCTOR_IN_USERNS || c->namespaces == 0);
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(c->name, hutch_doctor_checks[k].name);
            if (strcmp(c->group, hutch_doctor_checks[k].group) == 0) /* groups stand together */
                assert_string_equal(c->group, hutch_doctor_checks[i - 1].group);
        }
    }
}

static void says_ok(const struct doctor_host *host, struct doctor_finding *ret)
{
    (void)host;
    hutch_doctor_found(ret, DOCTOR_OK, "fine\tand\nclean");
}

static void says_missing(const struct doctor_host *host, struct doctor_finding *ret)
{
    (void)host;
    hutch_doctor_found(ret, DOCTOR_MISSING, "gone");
    hutch_doctor_fix(ret, "bring it");
}

static void fails_denied(const struct doctor_host *host, struct doctor_finding *ret)
{
    hutch_doctor_failed(host, ret, EACCES, "do '%s'", "it");
}

static void fails_unknown(const struct doctor_host *host, struct doctor_finding *ret)
{
    hutch_doctor_failed(host, ret, ENOSYS, "do '%s'", "it");
}

static void hangs(const struct doctor_host *host, struct doctor_finding *ret)
{
    (void)host;
    (void)ret;
    fork(); /* two that hang */
    for (;;)
        pause();
}

static void crashes(const struct doctor_host *host, struct doctor_finding *ret)
{
    (void)host;
    (void)ret;
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
}

static void is_filtered(const struct doctor_host *host, struct doctor_finding *ret)
{
    (void)host;
    (void)ret;
    signal(SIGSYS, SIG_DFL);
    raise(SIGSYS);
}

static void leaves(const struct doctor_host *host, struct doctor_finding *ret)
{
    (void)host;
    (void)ret;
    _exit(7);
}

static void test_outcomes(void **state)
{
    static const struct {
        const char *label;
        doctor_probe_fn *probe;
        enum doctor_status status;
        const char *detail, *costs, *fix;
    } cases[] = {
        { "ok brings no costs", says_ok, DOCTOR_OK, "fine?and?clean", "", "" },
        { "missing, with a fix of its own", says_missing, DOCTOR_MISSING, "gone", "a lot", "bring it" },
        { "denied where AppArmor restricts", fails_denied, DOCTOR_MISSING,
          "do 'it': Permission denied: AppArmor keeps programs without a profile from using user namespaces "
          "(kernel.apparmor_restrict_unprivileged_userns is 1)",
          "a lot", NULL },
        { "crashes", crashes, DOCTOR_MISSING, "trying it ended with Segmentation fault", "a lot", "buy one" },
        { "killed by a filter", is_filtered, DOCTOR_MISSING,
          "trying it was answered with SIGSYS: a seccomp filter around hutch forbids it", "a lot",
          "start hutch outside of the sandbox or service that set the filter" },
        { "not known to the kernel", fails_unknown, DOCTOR_MISSING,
          "do 'it': Function not implemented (too old a kernel, or a seccomp filter around hutch hides it)", "a lot",
          "a kernel from Linux 5.15 on; where there is one: start hutch outside of the sandbox or service that set "
          "the filter" },
        { "goes without a word", leaves, DOCTOR_MISSING, "trying it ended without an answer (status 7)", "a lot",
          "buy one" },
    };
    struct doctor_host host = { .facts = quiet_host, .cgroup = CGROUP_BASE_INIT, .has_user_ns = true };

    (void)state;
    host.facts.apparmor_restricts = 1;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct doctor_check check = {
            .place = DOCTOR_HERE, .probe = cases[i].probe, .costs = "a lot", .fix = "buy one"
        };
        struct doctor_finding f;

        hutch_doctor_try(&host, &check, DOCTOR_TIMEOUT_MS, &f);
        if (f.status != cases[i].status || strcmp(f.detail, cases[i].detail) != 0 ||
            strcmp(f.costs, cases[i].costs) != 0 || (cases[i].fix && strcmp(f.fix, cases[i].fix) != 0))
            fail_msg("%s: %d '%s', costs '%s', fix '%s'", cases[i].label, f.status, f.detail, f.costs, f.fix);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        assert_int_equal(errno, ECHILD);
    }
}

static void test_hanging_check(void **state)
{
    struct doctor_host host = { .facts = quiet_host, .cgroup = CGROUP_BASE_INIT, .has_user_ns = true };
    struct doctor_check check = { .place = DOCTOR_HERE, .probe = hangs, .costs = "a lot", .fix = "buy one" };
    struct pollfd alive = { .events = POLLIN };
    struct doctor_finding f;
    int fds[2];

    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    hutch_doctor_try(&host, &check, 200, &f);
    assert_int_equal(f.status, DOCTOR_MISSING);
    assert_string_equal(f.detail, "trying it brought no answer within 200 ms");
    assert_string_equal(f.fix, "buy one");
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    /* The pipe ends when nobody holds its other end any more: what the check forked is dead, too. */
    close(fds[1]);
    alive.fd = fds[0];
    assert_int_equal(poll(&alive, 1, 10000), 1);
    assert_true(alive.revents & POLLHUP);
    close(fds[0]);
}

static void test_basis(void **state)
{
    struct doctor_host host = {
        .facts = quiet_host, .cgroup = CGROUP_BASE_INIT, .has_user_ns = true, .has_plan = true
    };
    struct doctor_check basis = {
        .place = DOCTOR_HERE, .probe = says_missing, .is_basis = true, .costs = "a lot", .fix = "buy one"
    };
    struct doctor_check built = {
        .place = DOCTOR_IN_USERNS, .probe = says_ok, .costs = "more", .fix = "mend the other"
    };
    struct doctor_finding f;

    (void)state;
    hutch_doctor_try(&host, &basis, DOCTOR_TIMEOUT_MS, &f);
    assert_false(f.is_consequence);
    assert_false(host.has_user_ns);
    hutch_doctor_try(&host, &built, DOCTOR_TIMEOUT_MS, &f);
    assert_true(f.is_consequence);
    assert_int_equal(f.status, DOCTOR_MISSING);
    assert_string_equal(f.detail, "not tried: it takes a user namespace");
    assert_string_equal(f.costs, "more");
}

static const struct {
    const char *label;
    struct delegation_facts facts;
    const char *command; /* how it begins */
} delegation_cases[] = {
    { "a session of systemd",
      { .init = INIT_SYSTEMD, .uid = 1000, .has_user_manager = true, .has_runtime_dir = true },
      "systemd-run --user --scope -p Delegate=yes hutch ..." },
    { "su(1) to one who has a session",
      { .init = INIT_SYSTEMD, .uid = 1000, .has_user_manager = true },
      "XDG_RUNTIME_DIR=/run/user/1000 systemd-run --user --scope -p Delegate=yes hutch ..." },
    { "systemd without a session of the user",
      { .init = INIT_SYSTEMD, .uid = 1000, .has_runtime_dir = true },
      "sudo systemd-run --pty --same-dir --collect -p User=1000 -p Delegate=yes hutch ..." },
    { "root under systemd", { .init = INIT_SYSTEMD }, "systemd-run --scope -p Delegate=yes hutch ..." },
    { "OpenRC", { .init = INIT_OPENRC, .uid = 1000 }, "sudo sh -c 'cd /sys/fs/cgroup && mkdir -p hutch-1000/shell" },
    { "no init system", { .init = INIT_OTHER, .uid = 1000 }, "sudo sh -c 'cd /sys/fs/cgroup && " },
    { "a container", { .init = INIT_SYSTEMD, .uid = 1000, .is_in_container = true }, "start the container with " },
};

static void test_delegation_commands(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(delegation_cases); i++) {
        struct delegation_facts facts = delegation_cases[i].facts;
        struct doctor_finding room;

        facts.mount = "/sys/fs/cgroup";
        hutch_delegation_command(&facts, room.fix, sizeof(room.fix));
        if (strncmp(room.fix, delegation_cases[i].command, strlen(delegation_cases[i].command)) != 0)
            fail_msg("%s: '%s'", delegation_cases[i].label, room.fix);
        assert_true(strlen(room.fix) < sizeof(room.fix) / 2); /* nothing was cut */
        assert_null(strchr(room.fix, '\n'));
    }
}

static void test_ways_out_of_v1(void **state)
{
    static const struct {
        enum init_system init;
        const char *has, *has_not;
    } cases[] = {
        { INIT_SYSTEMD, "systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all", "rc.conf" },
        { INIT_OPENRC, "rc_cgroup_mode=\"unified\"", "systemd" },
        { INIT_OTHER, "cgroup_no_v1=all", "systemd" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct delegation_facts facts = { .init = cases[i].init, .uid = 1000, .mount = "/sys/fs/cgroup" };
        char got[1024];

        hutch_delegation_leave_v1(&facts, got, sizeof(got));
        if (!strstr(got, cases[i].has) || strstr(got, cases[i].has_not))
            fail_msg("%d: '%s'", cases[i].init, got);
    }
}

/* Without an init system that manages groups: what the command does, on files of the same names. */
static void test_delegation_by_hand(void **state)
{
    static const struct {
        bool is_below;
        const char *name, *text;
    } after[] = {
        { false, "cgroup.subtree_control", "+cpu\n" },
        { true, "cgroup.subtree_control", "+cpu\n" },
        { true, "cgroup.procs", "" },
        { true, "shell/cgroup.procs", NULL }, /* the shell's pid */
    };
    char dir[] = "/tmp/hutch-delegation-XXXXXX", below[32], command[1200], path[200], got[64], want[64];
    struct delegation_facts facts = { .init = INIT_OTHER, .uid = geteuid(), .mount = dir };

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(below, sizeof(below), "hutch-%u/", facts.uid);
    snprintf(command, sizeof(command), "cd %s && mkdir -p %sshell && touch %scgroup.procs %sshell/cgroup.procs", dir,
             below, below, below);
    assert_int_equal(system(command), 0);
    hutch_delegation_command(&facts, command, sizeof(command));
    assert_memory_equal(command, "sudo ", 5);
    memcpy(command, "exec ", 5); /* so that $$ is this command's own */
    assert_int_equal(system(command), 0);
    for (size_t i = 0; i < ARRAY_SIZE(after); i++) {
        auto_fd fd = -1;
        ssize_t n;

        snprintf(path, sizeof(path), "%s/%s%s", dir, after[i].is_below ? below : "", after[i].name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        n = hutch_fd_read_full(fd, got, sizeof(got) - 1);
        assert_true(n >= 0);
        got[n] = '\0';
        snprintf(want, sizeof(want), "%ld\n", strtol(got, NULL, 10));
        assert_string_equal(got, after[i].text ? after[i].text : want);
        assert_true(after[i].text || strtol(got, NULL, 10) > 1);
    }
    snprintf(command, sizeof(command), "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

static void test_status_names(void **state)
{
    (void)state;
    assert_string_equal(hutch_doctor_status_name(DOCTOR_OK), "ok");
    assert_string_equal(hutch_doctor_status_name(DOCTOR_DEGRADED), "degraded");
    assert_string_equal(hutch_doctor_status_name(DOCTOR_MISSING), "missing");
    assert_string_equal(hutch_doctor_status_name(DOCTOR_NOT_NEEDED), "not_needed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_userns_causes), cmocka_unit_test(test_inside_causes), cmocka_unit_test(test_proc_causes),
        cmocka_unit_test(test_facts),         cmocka_unit_test(test_containers),    cmocka_unit_test(test_table),
        cmocka_unit_test(test_outcomes),      cmocka_unit_test(test_hanging_check), cmocka_unit_test(test_basis),
        cmocka_unit_test(test_status_names),  cmocka_unit_test(test_delegation_commands),
        cmocka_unit_test(test_ways_out_of_v1), cmocka_unit_test(test_delegation_by_hand),
    };

    return cmocka_run_group_tests_name("doctor", tests, NULL, NULL);
}
