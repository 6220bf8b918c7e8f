#include "sandbox/sandbox.h"

#include "sandbox/attach.h"
#include "sandbox/fd.h"
#include "sandbox/fdpass.h"
#include "sandbox/ids.h"
#include "sandbox/landlock.h"
#include "sandbox/log.h"
#include "sandbox/proc_number.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define DESTROY_TIMEOUT_MS 5000
#define WAITING_PIDS 1 /* a worker that a zygote has forked has its memory holder beside it: rootfs/helper/helper.c */
#define MEMORY_MIN (4ull << 20) /* init, the dynamic linker and libc, in the same cgroup */

static int require_sane(const struct sandbox_spec *spec, bool is_waiting, struct hutch_err *err)
{
    static const enum sandbox_layer always[] = {
        LAYER_USER_NS,   LAYER_MOUNT_NS,      LAYER_PID_NS,       LAYER_IPC_NS,      LAYER_UTS_NS,
        LAYER_CGROUP_NS, LAYER_READONLY_ROOT, LAYER_CAPABILITIES, LAYER_NO_NEW_PRIVS, LAYER_OWN_PROC,
        LAYER_HOST_NAME, LAYER_NET_BUFFERS,
    };

    for (size_t i = 0; i < ARRAY_SIZE(always); i++)
        if (spec->layers[always[i]] == NEED_OFF)
            return hutch_err_set(err, 0, "layer '%s' cannot be switched off", hutch_layer_name(always[i]));
    if (spec->uid_inside == 0 || spec->gid_inside == 0)
        return hutch_err_set(err, 0, "uid and gid 0 are not given to code inside a sandbox");
    if (spec->limits[LIMIT_MEMORY] && spec->limits[LIMIT_MEMORY] < MEMORY_MIN)
        return hutch_err_set(err, 0, "a memory limit of %" PRIu64 " bytes is too small for any program: at least %llu "
                                     "are needed", spec->limits[LIMIT_MEMORY], MEMORY_MIN);
    for (size_t i = 0; i < spec->n_files; i++)
        if (!hutch_mounts_has_place(spec, spec->files[i].target))
            return hutch_err_set(err, 0, "the file '%s' is below no tmpfs of the sandbox", spec->files[i].target);
    if (!is_waiting && (!spec->argv || !spec->argv[0]))
        return hutch_err_set(err, 0, "there is no program to run");
    if (spec->layers[LAYER_NET_NS] == NEED_REQUIRE && spec->network == NETWORK_HOST)
        return hutch_err_set(err, 0, "layer 'net_namespace' is required, and network 'host' would go without it");
    return 0;
}

/* A group for the sandbox where there can be one. Without, when only tried for, says why in the layer's detail. */
static int make_cgroup(const struct sandbox_spec *spec, const struct cgroup_base *base, const char *name,
                       struct sandbox *sb, struct hutch_err *err)
{
    enum sandbox_need need = spec->layers[LAYER_CGROUP];
    char *detail = sb->enforcement.layer_detail[LAYER_CGROUP];

    if (need == NEED_OFF)
        return 0;
    if (base->dirfd >= 0 && hutch_cgroup_create(base, name, spec, &sb->cgroup, err) == 0) {
        snprintf(detail, sizeof(sb->enforcement.layer_detail[0]), "%.95s", base->why_not);
        return 0;
    }
    if (base->dirfd < 0)
        hutch_err_set(err, 0, "%s", base->why_not);
    if (need == NEED_REQUIRE)
        return hutch_err_wrap(err, "the policy requires a cgroup");
    snprintf(detail, sizeof(sb->enforcement.layer_detail[0]), "%.95s", err->msg);
    hutch_log_debug("sandbox: no cgroup: %s", err->msg);
    return 0;
}

/* The counted limits must come from the cgroup when the policy says so. */
static int require_limits(const struct sandbox_spec *spec, const struct cgroup_base *base, const struct sandbox *sb,
                          struct hutch_err *err)
{
    static const struct { enum sandbox_limit limit; unsigned bit; } counted[] = {
        { LIMIT_MEMORY, CGROUP_MEMORY }, { LIMIT_PIDS, CGROUP_PIDS }, { LIMIT_CPUS, CGROUP_CPU },
    };

    if (spec->limits_need != NEED_REQUIRE)
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(counted); i++)
        if (spec->limits[counted[i].limit] && !(sb->cgroup.controllers & counted[i].bit))
            return hutch_err_set(err, 0, "the policy requires that a cgroup enforces the limit '%s', and none can: %s",
                                 hutch_limit_name(counted[i].limit), base->why_not);
    return 0;
}

static void describe(const struct sandbox_spec *spec, const struct init_job *job, struct sandbox *sb)
{
    struct sandbox_enforcement *e = &sb->enforcement;
    bool has_seccomp = spec->layers[LAYER_SECCOMP] != NEED_OFF;
    unsigned by_cgroup = sb->cgroup.controllers;

    for (size_t i = 0; i < LAYER_COUNT; i++)
        e->layer_active[i] = true;
    e->layer_active[LAYER_NET_NS] = spec->network == NETWORK_NONE;
    if (spec->network == NETWORK_HOST)
        snprintf(e->layer_detail[LAYER_NET_NS], sizeof(e->layer_detail[0]), "the host's network is shared");
    e->layer_active[LAYER_NET_BUFFERS] = spec->network == NETWORK_NONE;
    e->layer_active[LAYER_SECCOMP] = has_seccomp;
    e->layer_active[LAYER_LANDLOCK] = job->landlock_abi > 0;
    if (spec->layers[LAYER_LANDLOCK] != NEED_OFF)
        snprintf(e->layer_detail[LAYER_LANDLOCK], sizeof(e->layer_detail[0]),
                 job->landlock_abi ? "ABI %d" : "not offered by this kernel", job->landlock_abi);
    e->layer_active[LAYER_CGROUP] = sb->cgroup.dirfd >= 0;
    e->layer_active[LAYER_OWN_UID] = job->has_own_id;
    if (job->has_own_id)
        snprintf(e->layer_detail[LAYER_OWN_UID], sizeof(e->layer_detail[0]), "uid %u of the host", job->ids.host_uid);
    else if (!e->layer_detail[LAYER_OWN_UID][0])
        snprintf(e->layer_detail[LAYER_OWN_UID], sizeof(e->layer_detail[0]), "shared: uid %u of the host",
                 job->ids.host_uid);

    if (spec->limits[LIMIT_MEMORY])
        e->limits[LIMIT_MEMORY] = by_cgroup & CGROUP_MEMORY ? 1u << ENFORCER_CGROUP : 0; /* by the supervisor then */
    if (spec->limits[LIMIT_PIDS])
        e->limits[LIMIT_PIDS] = 1u << ENFORCER_RLIMIT | (by_cgroup & CGROUP_PIDS ? 1u << ENFORCER_CGROUP : 0);
    if (spec->limits[LIMIT_CPUS])
        e->limits[LIMIT_CPUS] = by_cgroup & CGROUP_CPU                ? 1u << ENFORCER_CGROUP
                                : has_seccomp && job->plan.rlimits.pin ? 1u << ENFORCER_AFFINITY
                                                                      : 1u << ENFORCER_NONE;
    if (spec->limits[LIMIT_CPU_TIME])
        e->limits[LIMIT_CPU_TIME] = 1u << ENFORCER_RLIMIT;
    if (spec->limits[LIMIT_FILE_SIZE])
        e->limits[LIMIT_FILE_SIZE] = 1u << ENFORCER_RLIMIT;
    if (spec->limits[LIMIT_OPEN_FILES])
        e->limits[LIMIT_OPEN_FILES] = 1u << ENFORCER_RLIMIT;
    if (spec->limits[LIMIT_TMP_SIZE])
        e->limits[LIMIT_TMP_SIZE] = 1u << ENFORCER_KERNEL;
}

static pid_t clone_init(const struct sandbox_spec *spec, int cgroup_fd, int *ret_pidfd)
{
    struct clone_args args = {
        .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PIDFD,
        .pidfd = (__u64)(uintptr_t)ret_pidfd,
        .exit_signal = SIGCHLD,
    };

    if (spec->network == NETWORK_NONE)
        args.flags |= CLONE_NEWNET;
    if (cgroup_fd >= 0) {
        args.flags |= CLONE_INTO_CGROUP; /* Linux 5.7; it never runs outside its limits */
        args.cgroup = (__u64)cgroup_fd;
    }
    return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

/* Who counts what the cgroup does not. */
static void plan_fallbacks(const struct sandbox_spec *spec, struct init_job *job, struct sandbox *sb)
{
    unsigned by_cgroup = sb->cgroup.controllers;

    hutch_rlimits_plan(spec, by_cgroup & CGROUP_CPU, &job->plan.rlimits);
    if (job->is_waiting && spec->limits[LIMIT_PIDS])
        job->plan.rlimits.max[RLIMIT_NPROC] += WAITING_PIDS;
    job->wants_samples = !(by_cgroup & CGROUP_MEMORY) || !(by_cgroup & CGROUP_PIDS) ||
                         (spec->limits[LIMIT_CPU_TIME] && sb->cgroup.dirfd < 0) || spec->limits[LIMIT_DATA_SIZE];
    job->counts_shared = !(by_cgroup & CGROUP_MEMORY);
    sb->wants_samples = job->wants_samples;
    hutch_meminfo_done(&job->meminfo);
    job->meminfo.limit = spec->limits[LIMIT_MEMORY];
    if (by_cgroup & CGROUP_MEMORY &&
        hutch_cgroup_open_memory(&sb->cgroup, &job->meminfo.current_fd, &job->meminfo.stat_fd) < 0)
        job->meminfo.limit = 0; /* nobody counts for it */
}

/* Clones into the cgroup; when only that is forbidden and the policy can do without, again outside of it. */
static pid_t clone_somewhere(const struct sandbox_spec *spec, struct init_job *job, struct sandbox *sb,
                             struct hutch_err *err)
{
    struct hutch_err ignored;
    pid_t pid;
    int e;

    plan_fallbacks(spec, job, sb);
    pid = clone_init(spec, sb->cgroup.dirfd, &sb->pidfd);
    e = errno;

    if (pid < 0 && sb->cgroup.dirfd >= 0 && spec->layers[LAYER_CGROUP] != NEED_REQUIRE &&
        spec->limits_need != NEED_REQUIRE && (e == EACCES || e == EBUSY || e == EOPNOTSUPP || e == ENOENT)) {
        hutch_cgroup_destroy(&sb->cgroup, DESTROY_TIMEOUT_MS, &ignored);
        snprintf(sb->enforcement.layer_detail[LAYER_CGROUP], sizeof(sb->enforcement.layer_detail[0]),
                 "a process cannot be made inside it: %s", strerrordesc_np(e));
        sb->cgroup.controllers = 0;
        plan_fallbacks(spec, job, sb);
        pid = clone_init(spec, -1, &sb->pidfd);
        e = errno;
    }
    if (pid < 0)
        hutch_err_set(err, e, "make the sandbox's namespaces%s", hutch_userns_hint(e));
    return pid;
}

const char *const hutch_sandbox_uncounted[] = { "memfd_create", "memfd_secret", NULL };

int hutch_sandbox_compile(const struct sandbox_spec *spec, unsigned controllers, struct seccomp_program *ret,
                          struct hutch_err *err)
{
    struct seccomp_rules rules = spec->seccomp;

    if (spec->limits[LIMIT_MEMORY] && !(controllers & CGROUP_MEMORY))
        rules.withheld = hutch_sandbox_uncounted;
    if (hutch_seccomp_compile(&rules, ret, err) < 0)
        return hutch_err_wrap(err, "compile the seccomp profile");
    return 0;
}

/* Compiles the filter while init is busy with its mounts, which takes about as long, and sends it the program. init
 * starts no worker without it. */
static int send_seccomp(const struct sandbox_spec *spec, struct sandbox *sb, struct hutch_err *err)
{
    struct seccomp_program program = { 0 };
    ssize_t n, size;
    int rc = 0;

    if (hutch_sandbox_compile(spec, sb->cgroup.controllers, &program, err) < 0)
        return -1;
    size = (ssize_t)(program.n_insns * sizeof(*program.insns));
    n = TEMP_FAILURE_RETRY(send(sb->control_fd, program.insns, (size_t)size, MSG_NOSIGNAL));
    if (n != size && errno != EPIPE) /* EPIPE: init has ended, and its last message says why */
        rc = hutch_err_set(err, errno, "send the seccomp program");
    snprintf(sb->enforcement.layer_detail[LAYER_SECCOMP], sizeof(sb->enforcement.layer_detail[0]), "%zu instructions",
             program.n_insns);
    hutch_seccomp_program_done(&program);
    return rc;
}

/* -1 with errno. */
static int send_order(const struct sandbox *sb, const struct init_order *order)
{
    ssize_t n;

    if (sb->control_fd < 0) {
        errno = EPIPE;
        return -1;
    }
    n = TEMP_FAILURE_RETRY(send(sb->control_fd, order, sizeof(*order), MSG_DONTWAIT | MSG_NOSIGNAL));
    return n == sizeof(*order) ? 0 : -1;
}

/* The cgroup has room for the limit and for init. */
static int make_room(const struct sandbox_spec *spec, struct sandbox *sb, struct hutch_err *err)
{
    char text[24];

    if (!(sb->cgroup.controllers & CGROUP_PIDS))
        return 0;
    snprintf(text, sizeof(text), "%" PRIu64, spec->limits[LIMIT_PIDS] + 1 + WAITING_PIDS);
    return hutch_fd_write_file_at(sb->cgroup.dirfd, "pids.max", text, err);
}

int hutch_sandbox_lower(struct sandbox *sb, const uint64_t *built, const uint64_t *limits, struct hutch_err *err)
{
    struct init_order order = { .what = INIT_LIMIT_MEMORY, .amount = limits[LIMIT_MEMORY] };

    if (hutch_cgroup_lower(&sb->cgroup, built, limits, WAITING_PIDS, err) < 0)
        return -1;
    hutch_rlimits_lower(&sb->plan.rlimits, built, limits);
    if (limits[LIMIT_MEMORY] >= built[LIMIT_MEMORY]) /* it enforces, and shows, no other */
        return 0;
    return send_order(sb, &order) < 0 ? hutch_err_set(err, errno, "tell the sandbox's init its limits") : 1;
}

static int share_id(const struct sandbox_spec *spec, const struct hutch_err *why, struct sandbox *sb,
                    struct hutch_err *err)
{
    if (spec->layers[LAYER_OWN_UID] == NEED_REQUIRE)
        return hutch_err_set(err, 0, "the policy requires a host uid of the sandbox's own: %s", why->msg);
    snprintf(sb->enforcement.layer_detail[LAYER_OWN_UID], sizeof(sb->enforcement.layer_detail[0]), "shared: %.80s",
             why->msg);
    return 0;
}

/* The caller's choice, or one of the range that root has. Without either it is shared with other sandboxes. */
static int choose_id(const struct sandbox_spec *spec, const struct sandbox_io *io, struct init_job *job,
                     struct sandbox *sb, struct hutch_err *err)
{
    struct hutch_err why = { 0 };

    if (io->own_uid) {
        job->ids.host_uid = io->own_uid;
        job->ids.host_gid = io->own_gid;
        job->has_own_id = true;
    } else if (spec->layers[LAYER_OWN_UID] == NEED_OFF) {
        return 0;
    } else if (io->why_shared) {
        hutch_err_set(&why, 0, "%s", io->why_shared);
    } else if (job->ids.range.count > 1) {
        job->has_own_id = hutch_ids_borrow(&job->ids, &sb->id_fd, &why) == 0;
    } else {
        hutch_ids_explain(job->ids.is_mapped_away, &why);
    }
    return job->has_own_id ? 0 : share_id(spec, &why, sb, err);
}

/* Where the child is another user than the caller: it could not reach the sources. And for root, where a file system
 * cannot map the owner of one for one mount, what the sandbox makes there would belong to an id that is another one's
 * next. So it has the id that all share. */
static int open_sources(const struct sandbox_spec *spec, struct init_job *job, struct sandbox *sb,
                        struct hutch_err *err)
{
    struct hutch_err why;

    if ((!job->ids.is_mapped_away && !job->has_own_id) || !job->ids.can_mount)
        return 0;
    if (hutch_mounts_open_sources(spec, &job->ids, &job->sources, err) < 0)
        return -1;
    if (!job->has_own_id || !job->sources.lacks_map)
        return 0;
    hutch_err_set(&why, 0, IDS_UNMAPPED);
    if (share_id(spec, &why, sb, err) < 0)
        return -1;
    hutch_fd_closep(&sb->id_fd);
    job->has_own_id = false;
    job->ids.host_uid = job->ids.range.uid;
    job->ids.host_gid = job->ids.range.gid;
    hutch_mounts_sources_done(&job->sources);
    if (hutch_mounts_sources_init(spec, &job->sources, err) < 0)
        return -1;
    return hutch_mounts_open_sources(spec, &job->ids, &job->sources, err);
}

int hutch_sandbox_start(const struct sandbox_spec *spec, const struct cgroup_base *base, const char *name,
                        const struct sandbox_io *io, struct sandbox *ret, struct hutch_err *err)
{
    struct sandbox sb = SANDBOX_INIT;
    struct init_job job = { .spec = spec,
                            .sources = MOUNT_SOURCES_INIT,
                            .landlock_fd = -1,
                            .meminfo = MEMINFO_INIT,
                            .is_waiting = io->is_waiting,
                            .control_fd = -1,
                            .parent_fd = -1,
                            .stdio = { io->stdin_r, io->stdout_w, io->stderr_w },
                            .report_fd = io->report_w };
    int pair[2] = { -1, -1 };
    struct hutch_err ignored;
    pid_t number; /* in /proc */

    if (require_sane(spec, io->is_waiting, err) < 0 || hutch_userns_plan(&job.ids, err) < 0)
        return -1;
    if (spec->layers[LAYER_LANDLOCK] != NEED_OFF)
        job.landlock_abi = hutch_landlock_abi();
    if (spec->layers[LAYER_LANDLOCK] == NEED_REQUIRE && job.landlock_abi == 0)
        return hutch_err_set(err, 0, "the policy requires Landlock, and this kernel does not offer it "
                                     "(is 'landlock' in its lsm= list?)");
    job.seccomp.insns = calloc(BPF_MAXINSNS, sizeof(*job.seccomp.insns)); /* where init puts what it is sent */
    if (!job.seccomp.insns) {
        hutch_err_set(err, ENOMEM, "make room for the seccomp program");
        goto fail;
    }
    if (choose_id(spec, io, &job, &sb, err) < 0 || hutch_mounts_sources_init(spec, &job.sources, err) < 0)
        goto fail;
    if (open_sources(spec, &job, &sb, err) < 0)
        goto fail;
    job.plan.has_landlock = job.landlock_abi > 0;
    job.plan.has_seccomp = spec->layers[LAYER_SECCOMP] != NEED_OFF;
    if (make_cgroup(spec, base, name, &sb, err) < 0 || require_limits(spec, base, &sb, err) < 0)
        goto fail;
    if (io->is_waiting && make_room(spec, &sb, err) < 0)
        goto fail;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        hutch_err_set(err, errno, "make the control socket");
        goto fail;
    }
    job.parent_fd = pair[0];
    job.control_fd = pair[1];
    sb.pid = clone_somewhere(spec, &job, &sb, err);
    if (sb.pid == 0)
        hutch_init_main(&job);
    if (sb.pid < 0)
        goto fail;
    sb.control_fd = pair[0];
    pair[0] = -1;
    describe(spec, &job, &sb);
    if (hutch_proc_number(sb.pidfd, &number, err) < 0 || hutch_userns_write_maps(number, spec, &job.ids, err) < 0)
        goto fail;
    if (io->is_waiting && hutch_attach_open(number, &sb.mnt_ns_fd, err) < 0) /* while /proc/PID is the caller's */
        goto fail;
    sb.plan = job.plan;
    if (io->own_uid) {
        sb.plan.uid = spec->uid_inside;
        sb.plan.gid = spec->gid_inside;
    }
    sb.plan.has_cgroup = sb.cgroup.dirfd >= 0;
    sb.plan.namespaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP |
                         (spec->network == NETWORK_NONE ? CLONE_NEWNET : 0);
    if (hutch_sandbox_order(&sb, INIT_GO, 0) < 0) {
        hutch_err_set(err, errno, "let the sandbox's init go");
        goto fail;
    }
    if (job.plan.has_seccomp && !io->is_waiting && send_seccomp(spec, &sb, err) < 0)
        goto fail;
    hutch_mounts_sources_done(&job.sources);
    hutch_seccomp_program_done(&job.seccomp);
    hutch_meminfo_done(&job.meminfo);
    close(pair[1]);
    *ret = sb;
    return 0;
fail:
    hutch_mounts_sources_done(&job.sources);
    hutch_seccomp_program_done(&job.seccomp);
    hutch_meminfo_done(&job.meminfo);
    hutch_fd_closep(&pair[0]);
    hutch_fd_closep(&pair[1]);
    if (hutch_sandbox_finish(&sb, NULL, &ignored) < 0)
        hutch_log_debug("sandbox: %s", ignored.msg);
    return -1;
}

static void waive(struct sandbox_enforcement *e, enum sandbox_layer layer, const char *what, int errnum)
{
    e->layer_active[layer] = false;
    if (errnum)
        snprintf(e->layer_detail[layer], sizeof(e->layer_detail[0]), "%s: %s", what, strerrordesc_np(errnum));
}

/* Only init can tell, which has tried. */
static void note_waived(struct sandbox *sb, const struct init_waived *waived)
{
    struct sandbox_enforcement *e = &sb->enforcement;

    if (waived->shares_inodes)
        waive(e, LAYER_OWN_INODES, "an overlay cannot be mounted", waived->overlay_errnum);
    if (waived->proc_errnum)
        waive(e, LAYER_OWN_PROC, "the /proc around hutch is partly covered", waived->proc_errnum);
    if (waived->host_name_errnum)
        waive(e, LAYER_HOST_NAME, "that of the container around hutch", waived->host_name_errnum);
    if (waived->buffers_errnum)
        waive(e, LAYER_NET_BUFFERS, "/proc/sys/net cannot be written", waived->buffers_errnum);
}

/* A sandbox that was not finished has what it had by then. The namespaces are clone(2)'s, and the rest is what init's
 * message says. */
static void note_unfinished(struct sandbox *sb, uint32_t built)
{
    static const enum sandbox_layer late[] = {
        LAYER_READONLY_ROOT, LAYER_CGROUP_NS, LAYER_CAPABILITIES, LAYER_NO_NEW_PRIVS, LAYER_SECCOMP, LAYER_LANDLOCK,
        LAYER_OWN_INODES, LAYER_OWN_PROC, LAYER_HOST_NAME, LAYER_NET_BUFFERS,
    };

    for (size_t i = 0; i < ARRAY_SIZE(late); i++)
        if (!(built & 1u << late[i]))
            sb->enforcement.layer_active[late[i]] = false;
}

int hutch_sandbox_receive_fd(struct sandbox *sb, struct init_msg *ret, int *ret_fd, struct hutch_err *err)
{
    size_t n_fds = 0;
    ssize_t n;

    *ret_fd = -1;
    n = hutch_fdpass_receive(sb->control_fd, ret, sizeof(*ret), ret_fd, 1, &n_fds, 0);
    /* An init that ends before it has read all that it was sent leaves ECONNRESET, once, in front of its last message.
     * The kernel looks for a message first and for the end then: one that ends in between leaves that in front. */
    for (int i = 0; i < 2 && (n == 0 || (n < 0 && errno == ECONNRESET)); i++)
        n = hutch_fdpass_receive(sb->control_fd, ret, sizeof(*ret), ret_fd, 1, &n_fds, 0);
    if (n == 0 || (n < 0 && errno == ECONNRESET))
        return 0;
    if (n != sizeof(*ret)) {
        int e = n < 0 ? errno : EPROTO;

        hutch_fd_closep(ret_fd);
        return hutch_err_set(err, e, "hear from the sandbox's init");
    }
    if (ret->kind == INIT_BUILT || ret->kind == INIT_STARTED || ret->kind == INIT_EXEC_FAILED ||
        ret->kind == INIT_READY || ret->kind == INIT_SETUP_FAILED)
        note_waived(sb, &ret->waived);
    if (ret->kind == INIT_SETUP_FAILED)
        note_unfinished(sb, ret->built);
    return 1;
}

int hutch_sandbox_receive(struct sandbox *sb, struct init_msg *ret, struct hutch_err *err)
{
    auto_fd unwanted = -1;

    return hutch_sandbox_receive_fd(sb, ret, &unwanted, err);
}

int hutch_sandbox_order(struct sandbox *sb, enum init_order_kind what, int value)
{
    const struct init_order order = { .what = what, .value = value };

    return send_order(sb, &order);
}

int hutch_sandbox_signal_process(struct sandbox *sb, pid_t pid, int sig)
{
    const struct init_order order = { .what = INIT_SIGNAL_PROCESS, .value = sig, .pid = pid };

    return send_order(sb, &order);
}

void hutch_sandbox_signal(struct sandbox *sb, int sig)
{
    if (sb->control_fd < 0)
        return;
    if (hutch_sandbox_order(sb, INIT_SIGNAL, sig) == 0)
        sb->n_signals++;
    else
        hutch_log_debug("sandbox: signal %d did not get through: %s", sig, strerrordesc_np(errno));
}

void hutch_sandbox_kill(struct sandbox *sb)
{
    /* The kernel kills everything in a pid namespace whose init dies: pid_namespaces(7). */
    if (sb->pidfd >= 0)
        syscall(SYS_pidfd_send_signal, sb->pidfd, SIGKILL, NULL, 0);
}

int hutch_sandbox_finish(struct sandbox *sb, struct sandbox_end *ret, struct hutch_err *err)
{
    struct sandbox_end end = { 0 };
    int rc = 0;

    hutch_sandbox_kill(sb);
    if (sb->pid > 0)
        TEMP_FAILURE_RETRY(wait4(sb->pid, &end.init_status, 0, &end.usage));
    hutch_cgroup_read_usage(&sb->cgroup, &end.cgroup);
    if (hutch_cgroup_destroy(&sb->cgroup, DESTROY_TIMEOUT_MS, err) < 0)
        rc = -1;
    hutch_cgroup_done(&sb->cgroup);
    hutch_fd_closep(&sb->pidfd);
    hutch_fd_closep(&sb->control_fd);
    hutch_fd_closep(&sb->mnt_ns_fd);
    hutch_fd_closep(&sb->id_fd);
    sb->pid = -1;
    if (ret)
        *ret = end;
    return rc;
}
