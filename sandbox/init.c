#include "init.h"

#include "caps.h"
#include "clock.h"
#include "fd.h"
#include "netns.h"
#include "sample.h"
#include "spec.h"
#include "worker.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define REAP_MAX 64 /* between two looks at the clock and at the supervisor */

/* Fixed numbers for what init keeps, so that everything above can be closed at once. */
enum { KEEP_STDIN = 0, KEEP_STDOUT, KEEP_STDERR, KEEP_CONTROL, KEEP_REPORT, KEEP_COUNT };

static int die_with_supervisor(struct init_job *job, struct hutch_err *err)
{
    hutch_fd_closep(&job->parent_fd); /* or the socket would not close when the supervisor dies */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return hutch_err_set(err, errno, "ask to die with the supervisor");
    return 0;
}

static int wait_for_maps(struct init_job *job, struct hutch_err *err)
{
    int go;
    ssize_t n = TEMP_FAILURE_RETRY(recv(job->control_fd, &go, sizeof(go), 0));

    if (n != sizeof(go) || go != INIT_GO)
        _exit(1); /* the supervisor is gone, or has given up and knows why */
    (void)err;
    return 0;
}

/* init began as a copy of the supervisor, and /proc/1/cmdline shows that one's arguments - paths of the host among them -
 * to everybody. proc(5) tells where they and the environment lie: fields 48 to 51 of /proc/self/stat. */
static int forget_command_line(struct init_job *job, struct hutch_err *err)
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

static int enter_identity(struct init_job *job, struct hutch_err *err)
{
    return hutch_userns_enter(job->spec, &job->ids, err);
}

static int enter_cgroup_ns(struct init_job *job, struct hutch_err *err)
{
    (void)job;
    if (unshare(CLONE_NEWCGROUP) < 0)
        return hutch_err_set(err, errno, "make a cgroup namespace");
    return 0;
}

static int build_mounts(struct init_job *job, struct hutch_err *err)
{
    return hutch_mounts_build(job->spec, &job->ids, &job->sources, err);
}

/* What descriptors into the data directory are known by, once it is mounted. */
static int find_data(struct init_job *job, struct hutch_err *err)
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
static int shed_privileges_of_scheduling(struct init_job *job, struct hutch_err *err)
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

static int name_host(struct init_job *job, struct hutch_err *err)
{
    if (sethostname(job->spec->hostname, strlen(job->spec->hostname)) < 0)
        return hutch_err_set(err, errno, "set the host name '%s'", job->spec->hostname);
    return 0;
}

static int bound_buffers(struct init_job *job, struct hutch_err *err)
{
    return job->spec->network == NETWORK_NONE ? hutch_netns_bound_buffers(err) : 0;
}

static int raise_loopback(struct init_job *job, struct hutch_err *err)
{
    return job->spec->network == NETWORK_NONE ? hutch_netns_loopback_up(err) : 0;
}

static int close_inherited(struct init_job *job, struct hutch_err *err)
{
    int *keep[KEEP_COUNT] = { &job->stdio[0], &job->stdio[1], &job->stdio[2], &job->control_fd, &job->report_fd };

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

static int take_seccomp(struct init_job *job, struct hutch_err *err)
{
    ssize_t n, max = (ssize_t)(BPF_MAXINSNS * sizeof(*job->seccomp.insns));

    if (job->spec->layers[LAYER_SECCOMP] == NEED_OFF)
        return 0;
    n = TEMP_FAILURE_RETRY(recv(job->control_fd, job->seccomp.insns, (size_t)max, MSG_TRUNC));
    if (n == 0)
        _exit(1); /* the supervisor is gone, or has given up and knows why */
    if (n < 0 || n > max || n % (ssize_t)sizeof(*job->seccomp.insns))
        return hutch_err_set(err, n < 0 ? errno : EPROTO, "receive the seccomp program");
    job->seccomp.n_insns = (size_t)n / sizeof(*job->seccomp.insns);
    return 0;
}

static int drop_caps(struct init_job *job, struct hutch_err *err)
{
    (void)job;
    return hutch_caps_drop_all(err);
}

static int set_no_new_privs(struct init_job *job, struct hutch_err *err)
{
    (void)job;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return hutch_err_set(err, errno, "set no_new_privs");
    return 0;
}

static int shield_self(struct init_job *job, struct hutch_err *err)
{
    struct pollfd pfd = { .fd = job->control_fd };

    /* The worker has our uid: not dumpable means no ptrace, no /proc/1/{mem,fd,root,environ}: proc(5), ptrace(2). */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return hutch_err_set(err, errno, "make init undumpable");
    /* Changing uid and capabilities has cleared it: prctl(2). A supervisor that died before is seen on the socket. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return hutch_err_set(err, errno, "ask to die with the supervisor");
    if (poll(&pfd, 1, 0) > 0 && (pfd.revents & POLLHUP))
        _exit(1);
    return 0;
}

static const struct {
    const char *doing;
    int (*apply)(struct init_job *job, struct hutch_err *err);
} init_steps[] = {
    { "tie init to the supervisor",     die_with_supervisor },
    { "wait for the id maps",           wait_for_maps },
    { "forget the command line",        forget_command_line }, /* while the host's proc is in sight */
    { "shed the caller's scheduling",   shed_privileges_of_scheduling },
    { "take on the sandbox's identity", enter_identity },   /* an unprivileged host uid, before anything is made */
    { "enter a cgroup namespace",       enter_cgroup_ns },  /* now, when it is in its group: that becomes the root */
    { "bound the network's buffers",    bound_buffers },    /* while proc/sys can be written */
    { "build the mount tree",           build_mounts },     /* proc needs the host's proc in sight: ends with pivot */
    { "find the data directory",        find_data },
    { "name the host",                  name_host },
    { "bring up the network",           raise_loopback },
    { "close inherited descriptors",    close_inherited },  /* after the mounts, which are held as descriptors */
    { "take the system call filter",    take_seccomp },     /* compiled meanwhile; for the worker, not for init */
    { "drop capabilities",              drop_caps },        /* the last step that needed one is done */
    { "set no_new_privs",               set_no_new_privs },
    { "shield init from the worker",    shield_self },      /* last: capabilities and uid changes reset these flags */
};

static void send_msg(const struct init_job *job, const struct init_msg *msg)
{
    /* A supervisor that is gone cannot be told; the socket's hang-up ends us. */
    if (TEMP_FAILURE_RETRY(send(job->control_fd, msg, sizeof(*msg), MSG_NOSIGNAL)) < 0)
        _exit(1);
}

static _Noreturn void fail(const struct init_job *job, const char *doing, const struct hutch_err *err)
{
    struct init_msg msg = { .kind = INIT_SETUP_FAILED, .err = *err };

    hutch_err_wrap(&msg.err, "%s", doing);
    send_msg(job, &msg);
    _exit(1);
}

static pid_t start_worker(const struct init_job *job, int *ret_errpipe_r)
{
    struct hutch_err err;
    int pipefd[2], null_fd;
    pid_t pid;

    if (pipe2(pipefd, O_CLOEXEC) < 0) {
        hutch_err_set(&err, errno, "make a pipe");
        fail(job, "start the worker", &err);
    }
    pid = fork();
    if (pid < 0) {
        hutch_err_set(&err, errno, "fork");
        fail(job, "start the worker", &err);
    }
    if (pid == 0) {
        close(pipefd[0]);
        hutch_worker_main(job, pipefd[1]);
    }
    close(pipefd[1]);
    /* The worker's streams are his alone: when he closes one, the other end sees it. */
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = KEEP_STDIN; i <= KEEP_STDERR; i++)
        if (null_fd < 0 || dup3(null_fd, i, O_CLOEXEC) < 0)
            close(i);
    if (null_fd > KEEP_REPORT)
        close(null_fd);
    if (job->report_fd >= 0)
        close(job->report_fd);
    *ret_errpipe_r = pipefd[0];
    return pid;
}

/* The worker's setup report: nothing when execve(2) went through (or the worker was killed before). */
static void await_exec(const struct init_job *job, int errpipe_r)
{
    struct init_msg msg = { .kind = INIT_STARTED };
    ssize_t n = hutch_fd_read_full(errpipe_r, &msg, sizeof(msg));

    if (n != 0 && n != (ssize_t)sizeof(msg)) {
        msg.kind = INIT_SETUP_FAILED;
        hutch_err_set(&msg.err, n < 0 ? errno : EPROTO, "read the worker's setup report");
    }
    if (n == 0)
        msg.kind = INIT_STARTED;
    close(errpipe_r);
    send_msg(job, &msg);
    if (msg.kind != INIT_STARTED)
        _exit(1);
}

/* Reaps what has ended, up to REAP_MAX: code inside can make orphans as fast as they are reaped, and must not keep init from
 * everything else. True when the worker was among it; *@ret_more when there may be more. */
static bool reap(pid_t worker, int *ret_status, bool *ret_more)
{
    bool is_worker_done = false;
    int status, n;

    for (n = 0; n < REAP_MAX; n++) {
        pid_t pid = waitpid(-1, &status, WNOHANG);

        if (pid < 0 && errno == ECHILD && !is_worker_done)
            _exit(1); /* the worker is gone and nobody told us how: rather an end than waiting for ever */
        if (pid <= 0)
            break;
        if (pid == worker) {
            *ret_status = status;
            is_worker_done = true;
        }
    }
    *ret_more = n == REAP_MAX;
    return is_worker_done;
}

static void obey(const struct init_job *job, pid_t worker)
{
    int sig;
    ssize_t n = TEMP_FAILURE_RETRY(recv(job->control_fd, &sig, sizeof(sig), MSG_DONTWAIT));

    if (n == 0 || (n < 0 && errno != EAGAIN))
        _exit(1); /* the supervisor is gone: the kernel kills everything in a namespace that loses its init */
    if (n != sizeof(sig) || sig <= 0 || sig >= NSIG)
        return;
    kill(-worker, sig);
    kill(-worker, SIGCONT); /* a stopped process gets its signal too */
}

_Noreturn void hutch_init_main(const struct init_job *given)
{
    struct init_job job = *given;
    struct init_msg msg = { 0 };
    struct hutch_err err = { 0 };
    int64_t next_sample;
    int errpipe_r, signals;
    bool is_more = false;
    sigset_t chld;
    pid_t worker;

    for (size_t i = 0; i < ARRAY_SIZE(init_steps); i++)
        if (init_steps[i].apply(&job, &err) < 0)
            fail(&job, init_steps[i].doing, &err);

    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_SETMASK, &chld, NULL);
    signal(SIGCHLD, SIG_DFL); /* inherited as ignored, it would let the kernel reap the worker behind our back */
    signal(SIGPIPE, SIG_IGN);
    signals = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0) {
        hutch_err_set(&err, errno, "watch for children");
        fail(&job, "start the worker", &err);
    }
    worker = start_worker(&job, &errpipe_r);
    await_exec(&job, errpipe_r);
    next_sample = hutch_clock_ms() + INIT_SAMPLE_MS;
    for (;;) {
        struct pollfd pfds[] = { { .fd = signals, .events = POLLIN }, { .fd = job.control_fd, .events = POLLIN } };
        int64_t left = next_sample - hutch_clock_ms();
        int timeout_ms = !job.wants_samples ? -1 : left > 0 ? (int)left : 0;
        struct signalfd_siginfo info;

        poll(pfds, ARRAY_SIZE(pfds), is_more ? 0 : timeout_ms);
        /* By the clock, not when poll(2) runs out of time: a child that ends every few milliseconds would prevent that. */
        if (job.wants_samples && hutch_clock_ms() >= next_sample) {
            msg.kind = INIT_SAMPLE;
            hutch_sample_take(job.data_dev, job.counts_shared, job.spec->limits[LIMIT_MEMORY], &msg.sample);
            send_msg(&job, &msg);
            next_sample = hutch_clock_ms() + INIT_SAMPLE_MS;
        }
        if (pfds[1].revents)
            obey(&job, worker);
        if (pfds[0].revents && read(signals, &info, sizeof(info)) < 0 && errno != EAGAIN)
            _exit(1); /* rather than turn for ever */
        if (reap(worker, &msg.status, &is_more))
            break;
    }
    msg.kind = INIT_ENDED;
    send_msg(&job, &msg);
    _exit(0);
}
