#include "sandbox/init.h"

#include "sandbox/clock.h"
#include "sandbox/exec.h"
#include "sandbox/fd.h"
#include "sandbox/fdpass.h"
#include "sandbox/kill_all_but.h"
#include "sandbox/pause.h"
#include "sandbox/sample.h"
#include "sandbox/sockets.h"
#include "sandbox/spec.h"
#include "sandbox/steps.h"
#include "sandbox/watched.h"

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
#include <time.h>

#define LOOK_CPU_MS 5    /* between two looks at CPU time while some of it is being lost, and as much again by chance */
#define LOOK_MEMORY_MS 2 /* between two looks at memory, however little is left */
#define LOOK_SHARE  20   /* looks take one part in so many of the time */
#define FILL_PER_MS (4u << 20) /* bytes that one processor can touch for the first time in a millisecond, at most */
#define SHOW_MS 500 /* between two updates of /proc/meminfo where a group counts and no samples are taken … */
#define SHOW_IDLE_MS 1000 /* … and between those of a sandbox that has checks instead */
#define REAP_MAX 64 /* between two checks of the clock and of the supervisor */

struct init_step {
    const char *doing;
    int (*apply)(struct init_job *job, struct hutch_err *err);
    unsigned layers; /* 1u << enum sandbox_layer: stand when it is done, if they were not waived */
};

#define LAYER(name) (1u << LAYER_##name)

static const struct init_step build_steps[] = {
    { "tie init to the supervisor",     hutch_step_die_with_supervisor, 0 },
    { "wait for the id maps",           hutch_step_wait_for_maps, 0 },
    { "forget the command line",        hutch_step_forget_command_line, 0 }, /* while the host's proc is in sight */
    { "leave the caller's session",     hutch_step_start_session, 0 }, /* and with it the scheduling group */
    { "shed the caller's scheduling",   hutch_step_shed_scheduling, 0 },
    { "take on the sandbox's identity", hutch_step_enter_identity, 0 }, /* before anything is made with its uid */
    /* When init is in its group: the root. */
    { "enter a cgroup namespace",       hutch_step_enter_cgroup_ns, LAYER(CGROUP_NS) },
    /* While proc/sys can be written. */
    { "bound the network's buffers",    hutch_step_bound_buffers, LAYER(NET_BUFFERS) },
    /* Before the mount tree is built, which has a file with the name that programs see. */
    { "name the host",                  hutch_step_name_host, LAYER(HOST_NAME) },
    /* While the host's proc is in sight; pivots. */
    { "build the mount tree",           hutch_step_build_mounts,
      LAYER(READONLY_ROOT) | LAYER(OWN_INODES) | LAYER(OWN_PROC) },
    { "show the sandbox's memory",      hutch_step_show_memory, 0 },
    { "find the data directory",        hutch_step_find_data, 0 },
    { "bring up the network",           hutch_step_raise_loopback, 0 },
    { "close inherited descriptors",    hutch_step_close_inherited, 0 }, /* after the mounts: descriptors hold them */
    { "find the sandbox's processes",   hutch_step_find_processes, 0 }, /* where no procfs of its own shows them */
    { "make the Landlock ruleset",      hutch_step_make_ruleset, 0 }, /* of the finished tree; for the worker only */
    { "take the system call filter",    hutch_step_take_seccomp, 0 }, /* compiled meanwhile; likewise */
};

/* Before any foreign code runs: a waiting init takes them when it is given its worker, and says so. */
static const struct init_step lock_steps[] = {
    /* The last step that needed one is done. */
    { "drop capabilities",              hutch_step_drop_caps, LAYER(CAPABILITIES) },
    { "set no_new_privs",               hutch_step_set_no_new_privs, LAYER(NO_NEW_PRIVS) },
    { "shield init from the worker",    hutch_step_shield_self, 0 }, /* late: changed ids and capabilities reset it */
};

/* The last, when no process is left to be made: a child would inherit it. */
static const struct init_step filter_steps[] = {
    { "filter init's own calls",        hutch_step_filter_self, 0 },
};

static void send_msg(const struct init_job *job, const struct init_msg *msg)
{
    /* A supervisor that is gone cannot be told; init ends with the socket's hang-up. */
    if (TEMP_FAILURE_RETRY(send(job->control_fd, msg, sizeof(*msg), MSG_NOSIGNAL)) < 0)
        _exit(1);
}

/* False when the supervisor has not read what it was sent before: a sample may be left out. */
static bool try_send_msg(const struct init_job *job, const struct init_msg *msg)
{
    if (TEMP_FAILURE_RETRY(send(job->control_fd, msg, sizeof(*msg), MSG_NOSIGNAL | MSG_DONTWAIT)) >= 0)
        return true;
    if (errno != EAGAIN)
        _exit(1);
    return false;
}

static uint32_t built; /* 1u << enum sandbox_layer: what the steps so far have built */

static _Noreturn void report_setup_failure(const struct init_job *job, const char *doing, const struct hutch_err *err)
{
    struct init_msg msg = { .kind = INIT_SETUP_FAILED, .err = *err, .built = built, .waived = job->waived };

    hutch_err_wrap(&msg.err, "%s", doing);
    send_msg(job, &msg);
    _exit(1);
}

/* The worker executes nothing before a byte comes through @ret_gate_w. */
static pid_t start_worker(const struct init_job *job, int *ret_errpipe_r, int *ret_gate_w)
{
    struct hutch_err err;
    int pipefd[2], gate[2], null_fd;
    pid_t pid;

    if (pipe2(pipefd, O_CLOEXEC) < 0 || pipe2(gate, O_CLOEXEC) < 0) {
        hutch_err_set(&err, errno, "make a pipe");
        report_setup_failure(job, "start the worker", &err);
    }
    pid = fork();
    if (pid < 0) {
        hutch_err_set(&err, errno, "fork");
        report_setup_failure(job, "start the worker", &err);
    }
    if (pid == 0) {
        char none;

        close(pipefd[0]);
        close(gate[1]);
        if (hutch_fd_read_full(gate[0], &none, 1) != 1)
            _exit(1); /* init has ended before it was confined */
        hutch_exec_main(job, pipefd[1]);
    }
    close(pipefd[1]);
    close(gate[0]);
    /* Only the worker holds its streams: when it closes one, the other end sees it. */
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = KEEP_STDIN; i <= KEEP_STDERR; i++)
        if (null_fd < 0 || dup3(null_fd, i, O_CLOEXEC) < 0)
            close(i);
    if (null_fd > KEEP_REPORT)
        close(null_fd);
    if (job->report_fd >= 0)
        close(job->report_fd);
    *ret_errpipe_r = pipefd[0];
    *ret_gate_w = gate[1];
    return pid;
}

/* Before the worker executes anything: a program that is killed at once has run in what this tells of. */
static void tell_built(const struct init_job *job)
{
    const struct init_msg msg = { .kind = INIT_BUILT, .waived = job->waived };

    send_msg(job, &msg);
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
    msg.built = built;
    msg.waived = job->waived;
    close(errpipe_r);
    send_msg(job, &msg);
    if (msg.kind != INIT_STARTED)
        _exit(1);
}

/* Processes besides the worker that init was told about. */
struct others {
    pid_t exempt; /* INIT_EXEMPT; 0: none */
    struct watched watched;
};

static void forget_reaped(const struct init_job *job, struct others *others, pid_t pid, int status)
{
    struct init_msg msg = { .kind = INIT_PROCESS_ENDED, .process = { .pid = pid, .status = status } };

    if (pid == others->exempt)
        others->exempt = 0; /* its number may be another's from now on */
    if (hutch_watched_take(&others->watched, pid))
        send_msg(job, &msg);
}

/* Reaps what has ended, up to REAP_MAX: code inside can make orphans as fast as they are reaped, and must not keep init
 * from everything else. True when the worker was among it; *@ret_more when there may be more. */
static bool reap_ended(const struct init_job *job, pid_t worker, pid_t *holder, struct others *others, int *ret_status,
                       bool *ret_more)
{
    bool is_worker_done = false;
    int status, n;

    for (n = 0; n < REAP_MAX; n++) {
        pid_t pid = waitpid(-1, &status, WNOHANG);

        if (pid < 0 && errno == ECHILD && !is_worker_done)
            _exit(1); /* the worker is gone without a status: an end, and no waiting for ever */
        if (pid <= 0)
            break;
        if (pid == *holder)
            *holder = 0; /* its number may be another's from now on */
        forget_reaped(job, others, pid, status);
        if (pid == worker) {
            *ret_status = status;
            is_worker_done = true;
        }
    }
    *ret_more = n == REAP_MAX;
    return is_worker_done;
}

static void take_steps(struct init_job *job, const struct init_step *steps, size_t n)
{
    struct hutch_err err = { 0 };

    for (size_t i = 0; i < n; i++) {
        if (steps[i].apply(job, &err) < 0)
            report_setup_failure(job, steps[i].doing, &err);
        built |= steps[i].layers;
    }
}

static void adopt_worker(struct init_job *job, pid_t pid, pid_t *worker)
{
    struct init_msg msg = { .kind = INIT_ADOPTED };
    struct hutch_err err;
    siginfo_t info;

    if (*worker > 0 || pid <= 1 || waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0) {
        hutch_err_set(&err, errno, "adopt process %d", pid);
        report_setup_failure(job, "take the worker", &err);
    }
    take_steps(job, lock_steps, ARRAY_SIZE(lock_steps));
    take_steps(job, filter_steps, ARRAY_SIZE(filter_steps));
    *worker = pid;
    send_msg(job, &msg);
}

static void know_data(struct init_job *job)
{
    struct init_msg msg = { .kind = INIT_ATTACHED };
    struct hutch_err err;

    if (hutch_step_find_data(job, &err) < 0)
        report_setup_failure(job, "find the data directory", &err);
    send_msg(job, &msg);
}

/* When samples are due, and whether the sandbox is checked before each: one that is idle needs none. */
struct sampling {
    double next;           /* hutch_clock_ms() */
    int check_interval_ms; /* INIT_CHECK_INTERVAL; 0: samples are taken without a check */
    double next_look;      /* hutch_sample_look(); 0: none is due before the next sample */
    bool has_lost_cpu;     /* since the last sample */
    uint64_t max_memory;   /* the sandbox's limit, whoever enforces it; 0: none */
    uint64_t memory_limit; /* what init enforces, by looks and samples; 0: none */
    uint64_t fill_per_ms;  /* with all processors of the sandbox */
    uint64_t memory_bytes; /* in use at the last look */
    double look_ms;        /* what that took; samples are longer, as what is inside can make them */
    pid_t first_born;      /* hutch_sample_last_born() when the code began */
};

static void know_limits(const struct init_job *job, struct sampling *sampling)
{
    uint64_t n_cpus = (job->spec->limits[LIMIT_CPUS] + 999) / 1000;
    cpu_set_t allowed;

    if (n_cpus == 0)
        n_cpus = sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? (uint64_t)CPU_COUNT(&allowed) : 1;
    sampling->fill_per_ms = n_cpus * FILL_PER_MS;
    sampling->max_memory = job->spec->limits[LIMIT_MEMORY];
    sampling->memory_limit = job->counts_shared ? sampling->max_memory : 0;
}

static void lower_memory(struct init_job *job, struct sampling *sampling, uint64_t bytes)
{
    struct init_msg msg = { .kind = INIT_LIMITED };

    if (bytes < sampling->max_memory) {
        sampling->max_memory = bytes;
        sampling->memory_limit = job->counts_shared ? bytes : 0;
        hutch_meminfo_lower(&job->meminfo, bytes);
    }
    send_msg(job, &msg);
}

/* Children that the kernel reaps count for what was last seen of them, so they are looked at more often. The moment is
 * drawn by lot: the code inside could end its children just before one that it knows. */
static double draw_wait(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return LOOK_CPU_MS * (1 + (double)((uint64_t)ts.tv_nsec * 2654435761u % 1024) / 1024);
}

/* The next look comes before what is left of the memory can be filled. A sandbox between two cells has none before a
 * check finds that it is awake. */
static void plan_look(struct sampling *sampling, bool is_awake)
{
    uint64_t used = sampling->memory_bytes;
    double wait = INIT_SAMPLE_MS, left;

    sampling->next_look = 0;
    if (sampling->check_interval_ms != 0 && !is_awake)
        return;
    if (sampling->memory_limit) {
        left = used < sampling->memory_limit ? (double)(sampling->memory_limit - used) : 0;
        left /= (double)sampling->fill_per_ms;
        wait = left > LOOK_MEMORY_MS ? left : LOOK_MEMORY_MS;
    }
    if (sampling->has_lost_cpu && wait > LOOK_CPU_MS)
        wait = draw_wait();
    if (wait < sampling->look_ms * LOOK_SHARE)
        wait = sampling->look_ms * LOOK_SHARE;
    if (wait < INIT_SAMPLE_MS)
        sampling->next_look = hutch_clock_ms() + wait;
}

static void set_check_interval(struct sampling *sampling, int ms)
{
    sampling->check_interval_ms = ms < 0 ? 0 : ms < INIT_CHECK_MAX_MS ? ms : INIT_CHECK_MAX_MS;
    sampling->next = hutch_clock_ms() + INIT_SAMPLE_MS; /* soon, whatever the interval is */
    sampling->look_ms = 0;
    plan_look(sampling, false);
}

/* What is over the limit on memory is ended here and now: the supervisor hears why before it hears of the end. */
static void take_sample(struct init_job *job, struct sampling *sampling, pid_t holder)
{
    struct init_msg msg = { .kind = INIT_SAMPLE };
    bool is_over, is_told;

    hutch_sample_take(job->data_dev, job->counts_shared, sampling->max_memory, holder, &msg.sample);
    is_over = sampling->memory_limit && msg.sample.memory_bytes > sampling->memory_limit;
    is_told = try_send_msg(job, &msg);
    if (is_over) {
        kill(-1, SIGKILL);
        if (!is_told)
            send_msg(job, &msg); /* the supervisor does not listen, as one that is stopped: it is told when it does */
    }
    sampling->has_lost_cpu = hutch_sample_loses_cpu();
    sampling->memory_bytes = msg.sample.memory_bytes;
    hutch_meminfo_update(&job->meminfo, msg.sample.memory_bytes);
    plan_look(sampling, true);
}

/* Where a group counts all that there is to count, its numbers are read now and then. */
static void show_memory(struct init_job *job, struct sampling *sampling)
{
    int idle_ms = sampling->check_interval_ms < SHOW_IDLE_MS ? SHOW_IDLE_MS : sampling->check_interval_ms;

    hutch_meminfo_update(&job->meminfo, 0);
    sampling->next = hutch_clock_ms() + (sampling->check_interval_ms == 0 ? SHOW_MS : idle_ms);
}

/* A look that finds too much memory in use is followed by a sample, which is exact. */
static void look(struct sampling *sampling, pid_t holder)
{
    double begun = hutch_clock_ms();
    struct init_sample sum;
    bool is_growing;

    hutch_sample_look(sampling->memory_limit > 0, holder, &sum); /* the next sample has the CPU time */
    is_growing = sum.memory_bytes > sampling->memory_bytes;
    sampling->memory_bytes = sum.memory_bytes;
    sampling->look_ms = hutch_clock_ms() - begun;
    plan_look(sampling, is_growing);
    if (sampling->memory_limit && sum.memory_bytes > sampling->memory_limit)
        sampling->next = 0;
}

/* What all have used when the worker has ended. One that was alone is in init's own count. */
static void count_cpu(const struct init_job *job, const struct sampling *sampling, struct init_end *ended)
{
    struct init_sample sum;
    pid_t last_born;

    if (!job->wants_samples)
        return;
    last_born = hutch_sample_last_born();
    if (last_born > 0 && last_born == sampling->first_born)
        return;
    hutch_sample_look(false, 0, &sum);
    ended->cpu_ms = sum.cpu_ms;
    ended->is_cpu_lower_bound = sum.is_cpu_lower_bound || sum.is_cut_short;
}

/* Processes that a change of workers does not end, or the end of the worker. */
struct spared {
    pid_t pids[INIT_MAX_SPARED + 2];
    size_t n;
};

/* All but @spared, which has room for two more, and the one that is exempt. */
static void kill_others(struct spared spared, const struct others *others)
{
    if (others->exempt > 0)
        spared.pids[spared.n++] = others->exempt;
    hutch_kill_all_but(spared.pids, spared.n); /* what outlives that is bounded by the limits, as ever */
}

/* The numbers come from inside: a false one harms what runs in this sandbox, which its sender could do anyhow. Only a
 * child of init can be the worker, as init sees no other process end. */
static void follow_worker(struct init_job *job, pid_t pid, pid_t *worker, struct spared *spared,
                          const struct others *others)
{
    struct init_msg msg = { .kind = INIT_FOLLOWED };

    if (hutch_watched_is_living_child(pid)) {
        spared->pids[spared->n++] = pid;
        *worker = pid;
        msg.followed = pid;
        kill_others(*spared, others);
    }
    spared->n = 0;
    send_msg(job, &msg);
}

static void forget_dead(struct spared *kept)
{
    size_t n = 0;

    for (size_t i = 0; i < kept->n; i++)
        if (hutch_watched_is_living_child(kept->pids[i]))
            kept->pids[n++] = kept->pids[i];
    kept->n = n;
}

/* The worker has ended with @status. False when nothing was to be kept, or nothing of it is alive. */
static bool outlive_worker(const struct init_job *job, struct spared *kept, const struct others *others, int status)
{
    struct init_msg msg = { .kind = INIT_OUTLIVED, .ended.status = status };

    forget_dead(kept);
    if (kept->n == 0)
        return false;
    kill_others(*kept, others);
    getrusage(RUSAGE_CHILDREN, &msg.ended.usage);
    send_msg(job, &msg);
    return true;
}

static void pause_all(const struct init_job *job, bool begins)
{
    struct init_msg msg = { .kind = INIT_PAUSED, .paused.is_answer = 1 };

    if (begins)
        msg.paused.is_still = hutch_pause_begin();
    else
        hutch_pause_end();
    send_msg(job, &msg);
}

/* What was found to run is told once: @was_still is what was told last. */
static void check_pause(const struct init_job *job, bool *was_still)
{
    struct init_msg msg = { .kind = INIT_PAUSED, .paused.is_still = hutch_pause_check() };

    if (!msg.paused.is_still && *was_still && try_send_msg(job, &msg))
        *was_still = false;
}

/* A process executes its program when it is known that it is watched. */
static void watch_process(const struct init_job *job, struct others *others, pid_t pid)
{
    struct init_msg msg = { .kind = INIT_WATCHED, .process.pid = pid };

    msg.process.status = !hutch_watched_add(&others->watched, pid);
    send_msg(job, &msg);
}

/* True when the worker is about to get its code. */
static bool obey_order(struct init_job *job, pid_t *worker, pid_t *holder, struct sampling *sampling,
                       struct spared *spared, struct spared *kept, struct others *others, bool has_started)
{
    static const struct init_msg signalled = { .kind = INIT_SIGNALLED };
    struct init_order order;
    ssize_t n = TEMP_FAILURE_RETRY(recv(job->control_fd, &order, sizeof(order), MSG_DONTWAIT));

    if (n == 0 || (n < 0 && errno != EAGAIN))
        _exit(1); /* the supervisor is gone: the kernel kills everything in a namespace that loses its init */
    if (n != sizeof(order))
        return false;
    switch (order.what) {
    case INIT_SIGNAL:
        if (*worker > 0 && order.value > 0 && order.value < NSIG) {
            pid_t whom = kill(-*worker, 0) == 0 ? -*worker : *worker; /* one that was followed may lack a group */

            kill(whom, order.value);
            if (!hutch_pause_is_on())
                kill(whom, SIGCONT); /* a stopped process gets its signal too */
        }
        send_msg(job, &signalled);
        return false;
    case INIT_ADOPT:
        if (!has_started)
            adopt_worker(job, order.value, worker);
        return false;
    case INIT_ATTACH:
        if (!has_started && *worker > 0)
            know_data(job);
        return false;
    case INIT_LIMIT_MEMORY:
        if (!has_started && *worker > 0)
            lower_memory(job, sampling, order.amount);
        return false;
    case INIT_START:
        if (has_started || *worker <= 0)
            return false;
        *holder = order.value > 1 ? order.value : 0;
        return true;
    case INIT_SPARE:
        if (spared->n < INIT_MAX_SPARED)
            spared->pids[spared->n++] = order.value;
        return false;
    case INIT_FOLLOW:
        if (has_started)
            follow_worker(job, order.value, worker, spared, others);
        return false;
    case INIT_KEEP:
        if (kept->n == INIT_MAX_SPARED)
            forget_dead(kept);
        if (kept->n < INIT_MAX_SPARED)
            kept->pids[kept->n++] = order.value;
        return false;
    case INIT_EXEMPT:
        if (has_started && hutch_watched_is_living_child(order.value))
            others->exempt = order.value;
        return false;
    case INIT_WATCH:
        if (has_started)
            watch_process(job, others, order.value);
        return false;
    case INIT_SIGNAL_PROCESS:
        hutch_watched_signal(&others->watched, order.pid, order.value);
        return false;
    case INIT_CHECK_INTERVAL:
        set_check_interval(sampling, order.value);
        return false;
    case INIT_PAUSE:
        if (has_started)
            pause_all(job, order.value != 0);
        return false;
    }
    return false;
}

/* The worker may execute another program, or the memory holder may have been killed and another process have its
 * number. Then the memory of that process counts like any other's, and a holder that is left is killed. */
static void check_holder(pid_t worker, pid_t *holder)
{
    if (*holder > 0 && !hutch_sample_share_memory(worker, *holder)) {
        kill(*holder, SIGKILL);
        *holder = 0;
    }
}

/* Tells that the sandbox is built, and gives the ruleset away. */
static void announce_ready(struct init_job *job)
{
    struct init_msg msg = { .kind = INIT_READY };

    msg.waived = job->waived;
    if (hutch_fdpass_send(job->control_fd, &msg, sizeof(msg), &job->landlock_fd, job->landlock_fd >= 0, 0) < 0)
        _exit(1);
    hutch_fd_closep(&job->landlock_fd);
}

_Noreturn void hutch_init_main(const struct init_job *given)
{
    struct init_job job = *given;
    struct init_msg msg = { 0 };
    struct hutch_err err;
    struct sampling sampling = { 0 };
    struct spared spared = { 0 }, kept = { 0 };
    struct others others = { 0 };
    int errpipe_r, gate_w, signals;
    bool is_more = false, was_still = true, has_started = !job.is_waiting, is_outlived = false;
    pid_t worker = -1, holder = 0;
    sigset_t chld;

    take_steps(&job, build_steps, ARRAY_SIZE(build_steps));
    know_limits(&job, &sampling);
    if (job.counts_shared && job.spec->network == NETWORK_NONE)
        hutch_sample_count_sockets(hutch_sockets_open(), /* without: they are not counted */
                                   job.waived.buffers_errnum ? 1 : SOCKETS_FEW);
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_SETMASK, &chld, NULL);
    signal(SIGCHLD, SIG_DFL); /* inherited as ignored, it would let the kernel reap the worker without init */
    signal(SIGPIPE, SIG_IGN);
    signals = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0) {
        hutch_err_set(&err, errno, "watch for children");
        report_setup_failure(&job, "start the worker", &err);
    }
    if (job.is_waiting) {
        announce_ready(&job);
    } else {
        take_steps(&job, lock_steps, ARRAY_SIZE(lock_steps));
        worker = start_worker(&job, &errpipe_r, &gate_w);
        take_steps(&job, filter_steps, ARRAY_SIZE(filter_steps));
        tell_built(&job);
        if (write(gate_w, "", 1) != 1)
            _exit(1);
        close(gate_w);
        await_exec(&job, errpipe_r);
    }
    set_check_interval(&sampling, 0);
    sampling.first_born = worker;
    for (;;) {
        struct pollfd pfds[] = { { .fd = signals, .events = POLLIN }, { .fd = job.control_fd, .events = POLLIN } };
        bool is_sampling = job.wants_samples && has_started;
        bool is_showing = !job.wants_samples && has_started && job.meminfo.file_fd >= 0;
        bool is_looking = is_sampling && sampling.next_look > 0 && sampling.next_look < sampling.next;
        double left = (is_looking ? sampling.next_look : sampling.next) - hutch_clock_ms();
        int timeout_ms = !is_sampling && !is_showing ? -1 : left > 0 ? (int)left + 1 : 0;
        bool is_paused = hutch_pause_is_on();
        struct signalfd_siginfo info;

        if (is_paused && (timeout_ms < 0 || timeout_ms > hutch_pause_wait_ms()))
            timeout_ms = hutch_pause_wait_ms();
        poll(pfds, ARRAY_SIZE(pfds), is_more ? 0 : timeout_ms);
        if (is_paused && hutch_pause_wait_ms() == 0)
            check_pause(&job, &was_still);
        else if (!is_paused)
            was_still = true;
        /* By the clock, not when poll(2) runs out of time: a child that ends every few milliseconds would prevent
         * that. */
        if (is_sampling && hutch_clock_ms() >= sampling.next) {
            bool is_due = sampling.check_interval_ms == 0 || !hutch_sample_is_idle();

            if (is_due) {
                check_holder(worker, &holder);
                take_sample(&job, &sampling, holder);
            }
            sampling.next = hutch_clock_ms() + (is_due ? INIT_SAMPLE_MS : sampling.check_interval_ms);
        } else if (is_looking && hutch_clock_ms() >= sampling.next_look) {
            look(&sampling, holder);
        } else if (is_showing && hutch_clock_ms() >= sampling.next) {
            show_memory(&job, &sampling);
        }
        if (pfds[1].revents && obey_order(&job, &worker, &holder, &sampling, &spared, &kept, &others, has_started)) {
            has_started = true;
            set_check_interval(&sampling, 0);
            sampling.first_born = job.wants_samples ? hutch_sample_last_born() : 0;
        }
        if (pfds[0].revents && read(signals, &info, sizeof(info)) < 0 && errno != EAGAIN)
            _exit(1); /* else the loop would turn for ever */
        /* Nothing is reaped before init knows its worker, whose end would be lost. */
        if ((worker > 0 || is_outlived) &&
            reap_ended(&job, worker, &holder, &others, &msg.ended.status, &is_more)) {
            pid_t ended = worker;

            /* What was ordered before its end comes first. */
            for (int i = 0; has_started && i < 2 * INIT_MAX_SPARED && poll(&pfds[1], 1, 0) > 0; i++)
                obey_order(&job, &worker, &holder, &sampling, &spared, &kept, &others, has_started);
            if (worker != ended)
                continue; /* another one is followed */
            is_outlived = outlive_worker(&job, &kept, &others, msg.ended.status);
            if (!is_outlived)
                break;
            worker = -1;
        }
    }
    msg.kind = INIT_ENDED;
    getrusage(RUSAGE_CHILDREN, &msg.ended.usage);
    count_cpu(&job, &sampling, &msg.ended);
    send_msg(&job, &msg);
    _exit(0);
}
