#include "sandbox/steps.h"

#include "sandbox/caps.h"
#include "sandbox/fd.h"
#include "sandbox/init_filter.h"
#include "sandbox/landlock.h"
#include "sandbox/log.h"
#include "sandbox/netns.h"
#include "sandbox/procs.h"
#include "sandbox/spec.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

int hutch_step_die_with_supervisor(struct init_job *job, struct hutch_err *err)
{
    hutch_fd_closep(&job->parent_fd); /* or the socket would not close when the supervisor dies */
    if (job->is_waiting) /* the process that cloned init hands the other end of the socket on, and may end before
                          * init */
        return 0;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return hutch_err_set(err, errno, "ask to die with the supervisor");
    return 0;
}

/* A session of its own has a scheduling group of its own (sched_autogroup): what is done to it by way of
 * /proc/1/autogroup, while that can be written, does not reach the caller's other programs. sched(7). */
int hutch_step_start_session(struct init_job *job, struct hutch_err *err)
{
    (void)job;
    if (setsid() < 0)
        return hutch_err_set(err, errno, "start a session");
    return 0;
}

int hutch_step_wait_for_maps(struct init_job *job, struct hutch_err *err)
{
    struct init_order order;
    ssize_t n = TEMP_FAILURE_RETRY(recv(job->control_fd, &order, sizeof(order), 0));

    if (n != sizeof(order) || order.what != INIT_GO)
        _exit(1); /* the supervisor is gone, or has given up and knows why */
    (void)err;
    return 0;
}

/* init began as a copy of the supervisor, and /proc/1/cmdline shows that one's arguments - paths of the host among them
 * - to every process. proc(5) tells where they and the environment lie: fields 48 to 51 of /proc/self/stat. */
int hutch_step_forget_command_line(struct init_job *job, struct hutch_err *err)
{
    auto_fd fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    unsigned long at[4];
    char buf[2048], *p;
    ssize_t n = fd < 0 ? -1 : hutch_fd_read_full(fd, buf, sizeof(buf) - 1);

    (void)job;
    if (n < 0)
        return hutch_err_set(err, errno, "read '/proc/self/stat'");
    buf[n] = '\0';
    p = strrchr(buf, ')'); /* the end of field 2, which can hold anything */
    for (int field = 2; p && field < 48; field++)
        p = strchr(p + 1, ' ');
    if (!p || sscanf(p, "%lu %lu %lu %lu", &at[0], &at[1], &at[2], &at[3]) != 4)
        return hutch_err_set(err, 0, "'/proc/self/stat' does not say where the arguments are");
    for (int i = 0; i < 4; i += 2)
        if (at[i] && at[i + 1] > at[i])
            explicit_bzero((void *)at[i], at[i + 1] - at[i]);
    if (prctl(PR_SET_NAME, "hutch-init", 0, 0, 0) < 0)
        return hutch_err_set(err, errno, "name init");
    return 0;
}

int hutch_step_enter_identity(struct init_job *job, struct hutch_err *err)
{
    if (hutch_userns_enter(job->spec, &job->ids, err) < 0)
        return -1;
    /* A change of user makes init undumpable, prctl(2), and a process from outside joins by its /proc entries then no
     * more. Those who can are the zygote and the launcher, who own the user namespace. hutch_step_shield_self() ends
     * it before the worker runs foreign code. */
    if (job->is_waiting && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        return hutch_err_set(err, errno, "let a worker join");
    return 0;
}

int hutch_step_enter_cgroup_ns(struct init_job *job, struct hutch_err *err)
{
    (void)job;
    if (unshare(CLONE_NEWCGROUP) < 0)
        return hutch_err_set(err, errno, "make a cgroup namespace");
    return 0;
}

int hutch_step_build_mounts(struct init_job *job, struct hutch_err *err)
{
    int rc = hutch_mounts_build(job->spec, &job->ids, &job->sources, err);

    job->waived.shares_inodes = job->sources.shares_inodes;
    job->waived.overlay_errnum = job->sources.overlay_errnum;
    job->waived.proc_errnum = job->sources.proc_errnum;
    return rc;
}

/* Optional: where it cannot be, the file stays the host's, as it is without a limit. */
int hutch_step_show_memory(struct init_job *job, struct hutch_err *err)
{
    struct hutch_err why;

    (void)err;
    if (hutch_meminfo_show(job->spec, &job->meminfo, &why) < 0)
        hutch_log_debug("init: '/proc/meminfo' shows the host's memory: %s", why.msg);
    return 0;
}

/* What descriptors into the data directory are known by, once it is mounted. */
int hutch_step_find_data(struct init_job *job, struct hutch_err *err)
{
    struct stat st;

    for (size_t i = 0; i < job->spec->n_mounts; i++) {
        if (!(job->spec->mounts[i].flags & MOUNT_DATA))
            continue;
        if (stat(job->spec->mounts[i].target, &st) < 0)
            return hutch_err_set(err, errno, "look at '%s'", job->spec->mounts[i].target);
        job->data_dev = st.st_dev;
    }
    return 0;
}

/* What the caller may be allowed is not for the code inside: real-time scheduling, a better niceness, I/O class or
 * OOM score, a personality without address randomisation. All of it is inherited. */
int hutch_step_shed_scheduling(struct init_job *job, struct hutch_err *err)
{
    struct sched_param none = { 0 };
    auto_fd oom = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    char text[16] = "";

    (void)job;
    if (sched_setscheduler(0, SCHED_OTHER, &none) < 0)
        return hutch_err_set(err, errno, "take on ordinary scheduling");
    if (getpriority(PRIO_PROCESS, 0) < 0 && setpriority(PRIO_PROCESS, 0, 0) < 0)
        return hutch_err_set(err, errno, "take on ordinary niceness");
    if (syscall(SYS_ioprio_set, 1 /* IOPRIO_WHO_PROCESS */, 0, 0 /* IOPRIO_CLASS_NONE */) < 0)
        return hutch_err_set(err, errno, "take on ordinary I/O priority");
    if (personality(PER_LINUX) < 0)
        return hutch_err_set(err, errno, "take on the ordinary personality");
    if (oom < 0 || read(oom, text, sizeof(text) - 1) < 0)
        return hutch_err_set(err, errno, "read '/proc/self/oom_score_adj'");
    if (text[0] == '-' && pwrite(oom, "0", 1, 0) != 1)
        return hutch_err_set(err, errno, "take on an ordinary OOM score");
    return 0;
}

/* A step has failed with @err. Where that is a refusal by what is around hutch, as a container's filter or its
 * read-only /proc/sys, and the policy only tries, the sandbox goes without, and says so. */
static int waive(const struct init_job *job, enum sandbox_layer layer, int32_t *ret_errnum, struct hutch_err *err)
{
    bool is_refused = err->errnum == EPERM || err->errnum == EACCES || err->errnum == EROFS;

    if (!is_refused)
        return -1;
    if (job->spec->layers[layer] == NEED_REQUIRE)
        return hutch_err_wrap(err, "the policy requires it ('%s')", hutch_layer_name(layer));
    *ret_errnum = err->errnum;
    return 0;
}

int hutch_step_name_host(struct init_job *job, struct hutch_err *err)
{
    if (sethostname(job->spec->hostname, strlen(job->spec->hostname)) == 0)
        return 0;
    hutch_err_set(err, errno, "set the host name '%s'", job->spec->hostname);
    return waive(job, LAYER_HOST_NAME, &job->waived.host_name_errnum, err);
}

int hutch_step_bound_buffers(struct init_job *job, struct hutch_err *err)
{
    if (job->spec->network != NETWORK_NONE || hutch_netns_bound_buffers(err) == 0)
        return 0;
    return waive(job, LAYER_NET_BUFFERS, &job->waived.buffers_errnum, err);
}

int hutch_step_raise_loopback(struct init_job *job, struct hutch_err *err)
{
    return job->spec->network == NETWORK_NONE ? hutch_netns_loopback_up(err) : 0;
}

int hutch_step_close_inherited(struct init_job *job, struct hutch_err *err)
{
    int *keep[KEEP_COUNT] = {
        [KEEP_STDIN] = &job->stdio[0],
        [KEEP_STDOUT] = &job->stdio[1],
        [KEEP_STDERR] = &job->stdio[2],
        [KEEP_CONTROL] = &job->control_fd,
        [KEEP_REPORT] = &job->report_fd,
        [KEEP_MEMINFO] = &job->meminfo.file_fd,
        [KEEP_MEMORY_CURRENT] = &job->meminfo.current_fd,
        [KEEP_MEMORY_STAT] = &job->meminfo.stat_fd,
        [KEEP_OUTER_PROC] = &job->sources.outer_proc_fd,
    };

    for (int i = 0; i < KEEP_COUNT; i++) { /* above the fixed numbers first, or one dup3 could close the next source */
        int high = *keep[i] < 0 ? -1 : fcntl(*keep[i], F_DUPFD_CLOEXEC, 64);

        if (high < 0 && *keep[i] >= 0)
            return hutch_err_set(err, errno, "hold descriptor %d", *keep[i]);
        *keep[i] = high;
    }
    for (int i = 0; i < KEEP_COUNT; i++) {
        if (*keep[i] < 0) {
            close(i);
            continue;
        }
        if (dup3(*keep[i], i, O_CLOEXEC) < 0)
            return hutch_err_set(err, errno, "keep descriptor %d", i);
        *keep[i] = i;
    }
    if (syscall(SYS_close_range, KEEP_COUNT, ~0u, 0) < 0) /* Linux 5.9 */
        return hutch_err_set(err, errno, "close inherited descriptors");
    return 0;
}

int hutch_step_find_processes(struct init_job *job, struct hutch_err *err)
{
    return job->sources.outer_proc_fd < 0 ? 0 : hutch_procs_use_outer(job->sources.outer_proc_fd, err);
}

int hutch_step_take_seccomp(struct init_job *job, struct hutch_err *err)
{
    ssize_t n, max = (ssize_t)(BPF_MAXINSNS * sizeof(*job->seccomp.insns));

    if (!job->plan.has_seccomp || job->is_waiting) /* the filter comes with the worker */
        return 0;
    n = TEMP_FAILURE_RETRY(recv(job->control_fd, job->seccomp.insns, (size_t)max, MSG_TRUNC));
    if (n == 0)
        _exit(1); /* the supervisor is gone, or has given up and knows why */
    if (n < 0 || n > max || n % (ssize_t)sizeof(*job->seccomp.insns))
        return hutch_err_set(err, n < 0 ? errno : EPROTO, "receive the seccomp program");
    job->seccomp.n_insns = (size_t)n / sizeof(*job->seccomp.insns);
    return 0;
}

int hutch_step_make_ruleset(struct init_job *job, struct hutch_err *err)
{
    return job->landlock_abi
               ? hutch_landlock_make(job->spec, job->landlock_abi, job->is_waiting, &job->landlock_fd, err)
               : 0;
}

int hutch_step_drop_caps(struct init_job *job, struct hutch_err *err)
{
    (void)job;
    return hutch_caps_drop_all(err);
}

int hutch_step_set_no_new_privs(struct init_job *job, struct hutch_err *err)
{
    (void)job;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return hutch_err_set(err, errno, "set no_new_privs");
    return 0;
}

int hutch_step_shield_self(struct init_job *job, struct hutch_err *err)
{
    struct pollfd pfd = { .fd = job->control_fd };

    /* The worker has the same uid: not dumpable means no ptrace, no /proc/1/{mem,fd,root,environ}: proc(5),
     * ptrace(2). */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return hutch_err_set(err, errno, "make init undumpable");
    if (job->is_waiting)
        return 0;
    /* Changing uid and capabilities has cleared it: prctl(2). A supervisor that died before is seen on the socket. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return hutch_err_set(err, errno, "ask to die with the supervisor");
    if (poll(&pfd, 1, 0) > 0 && (pfd.revents & POLLHUP))
        _exit(1);
    return 0;
}

int hutch_step_filter_self(struct init_job *job, struct hutch_err *err)
{
    return job->plan.has_seccomp ? hutch_init_filter_load(err) : 0;
}
