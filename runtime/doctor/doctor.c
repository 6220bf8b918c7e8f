#include "runtime/doctor/doctor.h"

#include "sandbox/caps.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "rootfs/home.h"
#include "runtime/config/limits.h"
#include "runtime/config/policy.h"
#include "runtime/config/policy_find.h"
#include "sandbox/sandbox.h"
#include "runtime/config/usual_mounts.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define TRIAL_CLEANUP_MS 2000

const char *hutch_doctor_status_name(enum doctor_status status)
{
    static const char *const names[DOCTOR_STATUS_COUNT] = { "ok", "degraded", "missing", "not_needed" };

    return (unsigned)status < DOCTOR_STATUS_COUNT ? names[status] : "missing";
}

/* One line, whatever names and messages it is made of. */
static void HUTCH_PRINTF(3, 0) format_line(char *buf, size_t size, const char *fmt, va_list args)
{
    vsnprintf(buf, size, fmt, args);
    for (char *c = buf; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
}

void hutch_doctor_found(struct doctor_finding *ret, enum doctor_status status, const char *fmt, ...)
{
    va_list args;

    ret->status = status;
    va_start(args, fmt);
    format_line(ret->detail, sizeof(ret->detail), fmt, args);
    va_end(args);
}

void hutch_doctor_fix(struct doctor_finding *ret, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    format_line(ret->fix, sizeof(ret->fix), fmt, args);
    va_end(args);
}

void hutch_doctor_costs(struct doctor_finding *ret, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    format_line(ret->costs, sizeof(ret->costs), fmt, args);
    va_end(args);
}

void hutch_doctor_failed(const struct doctor_host *host, struct doctor_finding *ret, int errnum, const char *fmt, ...)
{
    struct denial_cause cause;
    char doing[200];
    va_list args;

    va_start(args, fmt);
    format_line(doing, sizeof(doing), fmt, args);
    va_end(args);
    if (hutch_denial_explain_inside(&host->facts, errnum, &cause)) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "%s: %s: %s", doing, strerrordesc_np(errnum), cause.why);
        hutch_doctor_fix(ret, "%s", cause.fix);
    } else if (errnum == ENOSYS) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "%s: %s (too old a kernel, or a seccomp filter around hutch hides it)",
                           doing, strerrordesc_np(errnum));
        hutch_denial_explain_userns(&host->facts, ENOSYS, &cause);
        hutch_doctor_fix(ret, "a kernel from Linux 5.15 on; where there is one: %s", cause.fix);
    } else {
        hutch_doctor_found(ret, DOCTOR_MISSING, "%s%s%s", doing, errnum ? ": " : "",
                           errnum ? strerrordesc_np(errnum) : "");
    }
}

static void read_distribution(char *ret, size_t size)
{
    FILE *f = fopen("/etc/os-release", "re");
    char line[256];

    ret[0] = '\0';
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "PRETTY_NAME=\"%95[^\"\n]", ret) == 1)
            break;
    if (f)
        fclose(f);
    ret[size - 1] = '\0';
}

int hutch_doctor_look(struct doctor_host *ret, struct hutch_err *err)
{
    struct passwd *pw;
    uint64_t number;

    memset(ret, 0, sizeof(*ret));
    ret->cgroup = (struct cgroup_base)CGROUP_BASE_INIT;
    if (getrandom(&number, sizeof(number), 0) != sizeof(number))
        return hutch_err_set(err, errno, "draw a name");
    snprintf(ret->scratch_name, sizeof(ret->scratch_name), "hutch-doctor-%016" PRIx64, number);
    if (hutch_spec_init(&ret->ids, err) < 0)
        return -1;
    uname(&ret->uts);
    read_distribution(ret->distribution, sizeof(ret->distribution));
    ret->uid = geteuid();
    pw = getpwuid(ret->uid);
    snprintf(ret->user, sizeof(ret->user), "%s", pw ? pw->pw_name : "");
    hutch_denial_read_facts("", &ret->facts);
    ret->has_plan = hutch_userns_plan(&ret->plan, &ret->plan_err) == 0;
    ret->has_user_ns = true;
    if (hutch_home_path(&ret->home, &ret->home_err) < 0)
        ret->home = NULL;
    if (hutch_policy_dir(&ret->policy_dir, &ret->policy_err) < 0)
        ret->policy_dir = NULL;
    hutch_cgroup_find_base(&ret->cgroup);
    return 0;
}

void hutch_doctor_host_done(struct doctor_host *host)
{
    hutch_spec_done(&host->ids);
    hutch_cgroup_base_done(&host->cgroup);
    free(host->home);
    free(host->policy_dir);
    host->home = host->policy_dir = NULL;
}

/* One child and the two pipes to it. */
struct child {
    pid_t pid;
    int go_w, result_r;
};

static int make_pipes(int go[2], int result[2])
{
    if (pipe2(go, O_CLOEXEC) < 0)
        return -1;
    if (pipe2(result, O_CLOEXEC) < 0) {
        close(go[0]);
        close(go[1]);
        return -1;
    }
    return 0;
}

typedef void child_fn(const struct doctor_host *host, const void *arg, struct doctor_finding *ret);

static _Noreturn void child_main(const struct doctor_host *host, bool in_userns, int go_r, int result_w, child_fn *fn,
                                 const void *arg)
{
    struct doctor_finding finding = { .status = DOCTOR_MISSING };
    struct hutch_err err;
    char go;

    setsid(); /* a process group of its own, so that all of it can be killed at once */
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (TEMP_FAILURE_RETRY(read(go_r, &go, 1)) != 1)
        _exit(1);
    if (in_userns && hutch_userns_enter(&host->ids, &host->plan, &err) < 0) {
        hutch_doctor_failed(host, &finding, err.errnum, "%.190s", err.msg);
    } else {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* the change of identity has cleared it */
        fn(host, arg, &finding);
    }
    _exit(hutch_fd_write_all(result_w, &finding, sizeof(finding)) < 0);
}

/* What a child that told nothing died of. */
static void explain_end(const struct doctor_host *host, int status, struct doctor_finding *ret)
{
    int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    struct denial_cause cause;

    if (sig == SIGSYS) {
        hutch_doctor_found(ret, DOCTOR_MISSING,
                           "trying it was answered with SIGSYS: a seccomp filter around hutch forbids it");
        hutch_denial_explain_userns(&host->facts, ENOSYS, &cause);
        hutch_doctor_fix(ret, "%s", cause.fix);
    } else if (sig) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "trying it ended with %s",
                           sigdescr_np(sig) ? sigdescr_np(sig) : "a signal");
    } else {
        hutch_doctor_found(ret, DOCTOR_MISSING, "trying it ended without an answer (status %d)", WEXITSTATUS(status));
    }
}

static void collect(const struct doctor_host *host, struct child *child, unsigned timeout_ms,
                    struct doctor_finding *ret)
{
    struct doctor_finding finding;
    struct pollfd pfd = { .fd = child->result_r, .events = POLLIN };
    double deadline = hutch_clock_ms() + timeout_ms, left;
    int status = 0, ready = 0;

    while ((left = deadline - hutch_clock_ms()) > 0 && (ready = poll(&pfd, 1, (int)left + 1)) < 0 && errno == EINTR)
        ;
    /* It writes all of a finding at once and a pipe holds it, so what is there to read is whole, or the end. */
    if (ready > 0 && hutch_fd_read_full(child->result_r, &finding, sizeof(finding)) == (ssize_t)sizeof(finding)) {
        *ret = finding;
        ret->detail[sizeof(ret->detail) - 1] = ret->costs[sizeof(ret->costs) - 1] = ret->fix[sizeof(ret->fix) - 1] =
            '\0';
    }
    kill(-child->pid, SIGKILL);
    kill(child->pid, SIGKILL); /* it may not have a process group yet */
    TEMP_FAILURE_RETRY(waitpid(child->pid, &status, 0));
    if (ready <= 0)
        hutch_doctor_found(ret, DOCTOR_MISSING, "trying it brought no answer within %u ms", timeout_ms);
    else if (!ret->detail[0] && ret->status == DOCTOR_MISSING)
        explain_end(host, status, ret);
}

/* Runs @fn in a child, in a user namespace with @namespaces when @place says so. */
static void try_in_child(const struct doctor_host *host, enum doctor_place place, unsigned long namespaces,
                         unsigned timeout_ms, child_fn *fn, const void *arg, struct doctor_finding *ret)
{
    bool in_userns = place == DOCTOR_IN_USERNS;
    struct child child;
    struct denial_cause cause;
    struct hutch_err err;
    int go[2], result[2];

    memset(ret, 0, sizeof(*ret));
    ret->status = DOCTOR_MISSING;
    if (make_pipes(go, result) < 0) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "make a pipe: %s", strerrordesc_np(errno));
        return;
    }
    child.pid = (pid_t)syscall(SYS_clone, (in_userns ? CLONE_NEWUSER | namespaces : 0) | SIGCHLD, NULL, NULL, NULL,
                               NULL);
    if (child.pid == 0) {
        close(go[1]);
        close(result[0]);
        child_main(host, in_userns, go[0], result[1], fn, arg);
    }
    close(go[0]);
    close(result[1]);
    child.go_w = go[1];
    child.result_r = result[0];
    if (child.pid < 0) {
        int e = errno;

        if (in_userns && !(e == EINVAL && namespaces) && !(e == ENOSPC && namespaces)) {
            hutch_denial_explain_userns(&host->facts, e, &cause);
            hutch_doctor_found(ret, DOCTOR_MISSING, "make the namespaces: %s: %s", strerrordesc_np(e), cause.why);
            hutch_doctor_fix(ret, "%s", cause.fix);
        } else {
            hutch_doctor_found(ret, DOCTOR_MISSING, "make a process%s: %s%s", in_userns ? " with namespaces" : "",
                               strerrordesc_np(e),
                               e == EINVAL   ? " (not compiled into this kernel)"
                               : e == ENOSPC ? " (the limit is user.max_*_namespaces, not the disk)"
                                             : "");
        }
    } else if (in_userns && hutch_userns_write_maps(child.pid, &host->ids, &host->plan, &err) < 0) {
        hutch_doctor_failed(host, ret, 0, "%.190s", err.msg);
        if (err.errnum == EROFS)
            hutch_doctor_fix(ret, "sudo mount -o remount,rw /proc    (bubblewrap: --proc /proc)");
        else if (hutch_denial_explain_inside(&host->facts, err.errnum, &cause))
            hutch_doctor_fix(ret, "%s", cause.fix);
        kill(child.pid, SIGKILL);
        TEMP_FAILURE_RETRY(waitpid(child.pid, NULL, 0));
    } else if (hutch_fd_write_all(child.go_w, "", 1) < 0) {
        hutch_doctor_found(ret, DOCTOR_MISSING, "let the child go: %s", strerrordesc_np(errno));
        kill(child.pid, SIGKILL);
        TEMP_FAILURE_RETRY(waitpid(child.pid, NULL, 0));
    } else {
        collect(host, &child, timeout_ms, ret);
    }
    close(child.go_w);
    close(child.result_r);
    /* One that a killed child left. */
    hutch_cgroup_destroy_named(&host->cgroup, host->scratch_name, TRIAL_CLEANUP_MS, &err);
}

static void run_probe(const struct doctor_host *host, const void *arg, struct doctor_finding *ret)
{
    const struct doctor_check *check = arg;

    check->probe(host, ret);
}

void hutch_doctor_try(struct doctor_host *host, const struct doctor_check *check, unsigned timeout_ms,
                      struct doctor_finding *ret)
{
    if (check->place == DOCTOR_IN_USERNS && !host->has_user_ns) {
        memset(ret, 0, sizeof(*ret));
        ret->is_consequence = true;
        hutch_doctor_found(ret, DOCTOR_MISSING, "not tried: it takes %s",
                           host->has_plan ? "a user namespace" : "an identity");
    } else {
        try_in_child(host, check->place, check->namespaces, timeout_ms, run_probe, check, ret);
    }
    if (check->is_basis && ret->status == DOCTOR_MISSING)
        host->has_user_ns = false;
    if (ret->status == DOCTOR_OK || ret->status == DOCTOR_NOT_NEEDED) {
        ret->costs[0] = ret->fix[0] = '\0';
        return;
    }
    if (!ret->costs[0])
        snprintf(ret->costs, sizeof(ret->costs), "%s", check->costs);
    if (!ret->fix[0])
        snprintf(ret->fix, sizeof(ret->fix), "%s", check->fix);
}

static int build_trial_spec(const struct doctor_host *host, const char *policy, struct sandbox_spec *spec,
                            struct hutch_err *err)
{
    static const char *const argv[] = { "true" };

    if (!host->policy_dir) {
        *err = host->policy_err;
        return -1;
    }
    if (hutch_usual_mounts_add(spec, err) < 0 || hutch_policy_load(policy, host->policy_dir, spec, err) < 0 ||
        hutch_spec_set_list(&spec->argv, argv, ARRAY_SIZE(argv), err) < 0)
        return -1;
    hutch_usual_mounts_size(spec);
    spec->root_kind = ROOT_HOST;
    /* An ordinary user's sandbox has ids of its own by its data directory, and a trial has none: hutch_probe_identity()
     * tells whether a run would. */
    if (!host->plan.is_mapped_away && spec->layers[LAYER_OWN_UID] == NEED_TRY)
        spec->layers[LAYER_OWN_UID] = NEED_OFF;
    return 0;
}

/* "memory (by supervisor), landlock (not offered by this kernel)": what the run would have less than was asked for. */
static void list_weaker(const struct sandbox_spec *spec, const struct sandbox_enforcement *e, char *ret, size_t size)
{
    size_t len = 0;

    ret[0] = '\0';
    for (size_t i = 0; i < LIMIT_COUNT; i++) {
        bool is_weaker = spec->limits[i] && hutch_limit_rows[i].enforcers & 1u << ENFORCER_CGROUP &&
                         !(e->limits[i] & 1u << ENFORCER_CGROUP);

        for (unsigned who = 0; is_weaker && who < ENFORCER_COUNT; who++)
            if (e->limits[i] & 1u << who && len < size)
                len += (size_t)snprintf(ret + len, size - len, "%s%s (by %s)", len ? ", " : "",
                                        hutch_limit_name(i), hutch_enforcer_name(who));
    }
    for (size_t i = 0; i < LAYER_COUNT; i++)
        if (spec->layers[i] != NEED_OFF && !e->layer_active[i] && len < size)
            len += (size_t)snprintf(ret + len, size - len, "%s%s (%s)", len ? ", " : "", hutch_layer_name(i),
                                    e->layer_detail[i]);
}

static int start_trial(const struct doctor_host *host, const struct sandbox_spec *spec, struct sandbox *sb,
                       struct hutch_err *err)
{
    auto_fd null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct sandbox_io io = { .stdin_r = null_fd, .stdout_w = null_fd, .stderr_w = null_fd, .report_w = -1 };

    if (null_fd < 0)
        return hutch_err_set(err, errno, "open '/dev/null'");
    return hutch_sandbox_start(spec, &host->cgroup, host->scratch_name, &io, sb, err);
}

/* To the end of `true`, or to the message that says why it does not get there. */
static int follow_trial(struct sandbox *sb, struct hutch_err *err)
{
    struct init_msg msg;
    int rc;

    while ((rc = hutch_sandbox_receive(sb, &msg, err)) > 0) {
        if (msg.kind == INIT_SETUP_FAILED || msg.kind == INIT_EXEC_FAILED) {
            *err = msg.err;
            return -1;
        }
        if (msg.kind != INIT_ENDED)
            continue;
        if (WIFSIGNALED(msg.ended.status))
            return hutch_err_set(err, 0, "'true' was killed inside: %s", sigdescr_np(WTERMSIG(msg.ended.status)));
        if (msg.ended.status != 0)
            return hutch_err_set(err, 0, "'true' ended with status %d inside", WEXITSTATUS(msg.ended.status));
        return 0;
    }
    return rc < 0 ? -1 : hutch_err_set(err, 0, "the sandbox's init ended without a word");
}

/* In a child: the policy's name in, the trial's outcome as a finding out: what is weaker travels in fix, as it may be
 * long, and the level in costs. */
static void run_trial(const struct doctor_host *host, const void *arg, struct doctor_finding *ret)
{
    struct sandbox sb = SANDBOX_INIT;
    struct sandbox_spec spec = { 0 };
    struct hutch_err err = { 0 }, ignored;
    int rc = -1;

    if (hutch_spec_init(&spec, &err) == 0 && build_trial_spec(host, arg, &spec, &err) == 0 &&
        start_trial(host, &spec, &sb, &err) == 0) {
        rc = follow_trial(&sb, &err);
        list_weaker(&spec, &sb.enforcement, ret->fix, sizeof(ret->fix)); /* of some, init tells when it has tried */
        hutch_doctor_costs(ret, "%s", hutch_level_name(sb.enforcement.layer_active[LAYER_OWN_PROC] ? LEVEL_FULL
                                                                                                    : LEVEL_NO_PROC));
        hutch_sandbox_finish(&sb, NULL, &ignored);
    }
    hutch_spec_done(&spec);
    hutch_doctor_found(ret, rc < 0 ? DOCTOR_MISSING : DOCTOR_OK, "%s", err.msg);
}

void hutch_doctor_try_policy(struct doctor_host *host, const char *name, struct doctor_trial *ret)
{
    struct doctor_finding finding;

    try_in_child(host, DOCTOR_HERE, 0, DOCTOR_TIMEOUT_MS + TRIAL_CLEANUP_MS, run_trial, name, &finding);
    ret->runs = finding.status == DOCTOR_OK;
    snprintf(ret->reason, sizeof(ret->reason), "%s", ret->runs ? "" : finding.detail);
    snprintf(ret->weaker, sizeof(ret->weaker), "%.507s", ret->runs ? finding.fix : "");
    snprintf(ret->level, sizeof(ret->level), "%.15s", ret->runs ? finding.costs : "refused");
}
