#include "run.h"

#include "collect.h"
#include "fd.h"
#include "log.h"
#include "pyreport.h"
#include "sandbox.h"
#include "state.h"
#include "stream.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define SETUP_TIMEOUT_MS   30000 /* a sandbox takes milliseconds; this is for a host that hangs */
#define DATA_LOOK_MS       250   /* between two looks at /mnt/data, more when a look takes long */
#define DATA_LOOK_SHARE    10    /* a look may take one part in so many of the time */
#define DATA_MAX_FAILURES  4
#define CPU_LOOK_MS        100
#define CAPTURE_MAX        (256u << 20) /* bytes of a stream that are kept in memory where no limit is set */
#define HIDDEN_MAX         5  /* samples in a row: once or twice it is a process on its way out */
#define CUT_MAX            10 /* samples in a row, each of a quarter of a second of CPU time */
#define KILL_AFTER_SIGNAL_MS 2000

/* Why the supervisor ended a run; the first reason stands. */
enum end_reason { END_OWN, END_TIMEOUT, END_CPU_TIME, END_MEMORY, END_HIDDEN, END_INPUT, END_OUTPUT, END_DATA, END_SIGNAL, END_SETUP, END_COUNT };

struct run {
    const struct run_request *request;
    struct run_result *result;
    struct run_state state;
    struct cgroup_base cgroup_base;
    struct sandbox sandbox;
    int data_dirfd;
    struct file_list before;

    struct out_stream out, err_out;
    struct in_stream in;
    int report_fd;
    char *report;     /* PYREPORT_MAX + 1 bytes */
    size_t report_len;

    double t0, t_started, t_ended; /* ms, CLOCK_MONOTONIC; 0: not yet */
    enum end_reason reason;
    int passed_signal;  /* END_SIGNAL: which */
    double kill_at;     /* after SIGTERM; 0: not set */
    double next_data, next_cpu;
    unsigned hidden_in_a_row; /* samples in which a process was unreadable */
    unsigned cut_in_a_row;    /* samples that took too long */
    unsigned data_failures; /* looks at /mnt/data in a row that failed */

    bool has_ended;     /* INIT_ENDED came */
    bool is_init_gone;  /* the control socket closed */
    int status;
    bool setup_failed, exec_failed;
    struct hutch_err setup_err;
    struct init_sample peak, last;
};

static double now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static int make_pipe(int *ret_mine, int *ret_theirs, bool i_read, struct hutch_err *err)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return hutch_err_set(err, errno, "make a pipe");
    *ret_mine = fds[i_read ? 0 : 1];
    *ret_theirs = fds[i_read ? 1 : 0];
    if (fcntl(*ret_mine, F_SETFL, O_NONBLOCK) < 0)
        return hutch_err_set(err, errno, "make a pipe non-blocking");
    return 0;
}

static int prepare_data(struct run *r, struct hutch_err *err)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };
    auto_free char *fresh = NULL;
    const char *dir = r->request->data_dir;

    if (!dir) {
        if (hutch_state_make_data(&r->state, &fresh, err) < 0)
            return -1;
        dir = fresh;
    }
    /* What is mounted is opened the same way, so that both are the same directory. */
    r->data_dirfd = (int)syscall(SYS_openat2, AT_FDCWD, dir, &how, sizeof(how));
    if (r->data_dirfd < 0)
        return hutch_err_set(err, errno, "open the data directory '%s'", dir);
    if (hutch_spec_set_string(&r->result->directory, dir, err) < 0)
        return -1;
    if (!hutch_spec_add_mount(r->request->spec, MOUNT_BIND, dir, RUN_DATA_DIR, MOUNT_IDMAP | MOUNT_DATA, err))
        return -1;
    return hutch_collect_snapshot(r->data_dirfd, &bounds, &r->before, err);
}

static void note_limits(struct run *r)
{
    static const enum sandbox_limit watched[] = { LIMIT_CPU_TIME, LIMIT_WALL, LIMIT_OUTPUT, LIMIT_DATA_SIZE, LIMIT_DATA_FILES };
    const struct sandbox_spec *spec = r->request->spec;
    const struct sandbox_enforcement *e = &r->sandbox.enforcement;

    for (size_t i = 0; i < LIMIT_COUNT; i++) {
        r->result->limits[i].asked = spec->limits[i];
        r->result->limits[i].enforcers = e->limits[i];
    }
    for (size_t i = 0; i < ARRAY_SIZE(watched); i++)
        if (spec->limits[watched[i]])
            r->result->limits[watched[i]].enforcers |= 1u << ENFORCER_SUPERVISOR;
    if (spec->limits[LIMIT_MEMORY] && r->sandbox.wants_samples && !(e->limits[LIMIT_MEMORY] & 1u << ENFORCER_CGROUP))
        r->result->limits[LIMIT_MEMORY].enforcers |= 1u << ENFORCER_SUPERVISOR;
    for (size_t i = 0; i < LAYER_COUNT; i++) {
        r->result->layers[i].asked = spec->layers[i];
        r->result->layers[i].is_active = e->layer_active[i];
        memcpy(r->result->layers[i].detail, e->layer_detail[i], sizeof(r->result->layers[i].detail));
    }
}

static int start(struct run *r, struct hutch_err *err)
{
    auto_fd in_r = -1, out_w = -1, err_w = -1, report_w = -1;
    struct sandbox_io io;

    if (hutch_pyreport_attach(r->request->spec, INIT_REPORT_FD, err) < 0)
        return -1;
    hutch_cgroup_find_base(&r->cgroup_base);
    if (hutch_state_note_cgroup(&r->state, &r->cgroup_base, err) < 0)
        return -1;
    if (make_pipe(&r->in.pipe_fd, &in_r, false, err) < 0 || make_pipe(&r->out.pipe_fd, &out_w, true, err) < 0 ||
        make_pipe(&r->err_out.pipe_fd, &err_w, true, err) < 0 || make_pipe(&r->report_fd, &report_w, true, err) < 0)
        return -1;
    io = (struct sandbox_io){ .stdin_r = in_r, .stdout_w = out_w, .stderr_w = err_w, .report_w = report_w };
    return hutch_sandbox_start(r->request->spec, &r->cgroup_base, r->state.cgroup_name, &io, &r->sandbox, err);
}

/* Ends the run for @reason, unless it is ending already. */
static void end_now(struct run *r, enum end_reason reason)
{
    if (r->reason == END_OWN)
        r->reason = reason;
    hutch_sandbox_kill(&r->sandbox);
}

/* Asks politely; the kill follows after @grace_ms. */
static void end_softly(struct run *r, enum end_reason reason, int sig, double grace_ms)
{
    if (r->reason == END_OWN)
        r->reason = reason;
    if (r->kill_at == 0)
        r->kill_at = now_ms() + grace_ms;
    hutch_sandbox_signal(&r->sandbox, sig);
}

static void hear_init(struct run *r)
{
    struct init_msg msg;
    struct hutch_err err;
    const uint64_t *limits = r->request->spec->limits;
    int rc = hutch_sandbox_receive(&r->sandbox, &msg, &err);

    if (rc <= 0) {
        r->is_init_gone = true;
        return;
    }
    switch (msg.kind) {
    case INIT_SETUP_FAILED:
    case INIT_EXEC_FAILED:
        r->setup_failed = true;
        r->exec_failed = msg.kind == INIT_EXEC_FAILED;
        r->setup_err = msg.err;
        break;
    case INIT_STARTED:
        r->t_started = now_ms();
        break;
    case INIT_SAMPLE:
        r->last = msg.sample;
        if (msg.sample.memory_bytes > r->peak.memory_bytes)
            r->peak.memory_bytes = msg.sample.memory_bytes;
        if (msg.sample.pids > r->peak.pids)
            r->peak.pids = msg.sample.pids;
        if (limits[LIMIT_MEMORY] && !(r->sandbox.cgroup.controllers & CGROUP_MEMORY) &&
            msg.sample.memory_bytes > limits[LIMIT_MEMORY])
            end_now(r, END_MEMORY);
        r->hidden_in_a_row = msg.sample.hidden ? r->hidden_in_a_row + 1 : 0;
        r->cut_in_a_row = msg.sample.is_cut_short ? r->cut_in_a_row + 1 : 0;
        if (r->hidden_in_a_row >= HIDDEN_MAX || r->cut_in_a_row >= CUT_MAX)
            end_now(r, END_HIDDEN);
        if (limits[LIMIT_DATA_SIZE] && msg.sample.unlinked_bytes > limits[LIMIT_DATA_SIZE])
            end_now(r, END_DATA);
        if (limits[LIMIT_CPU_TIME] && msg.sample.cpu_ms > limits[LIMIT_CPU_TIME])
            end_now(r, END_CPU_TIME);
        break;
    case INIT_ENDED:
        r->t_ended = now_ms();
        r->has_ended = true;
        r->status = msg.status;
        break;
    }
}

static void hear_signal(struct run *r)
{
    struct signalfd_siginfo info;

    while (read(r->request->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        bool is_second = r->passed_signal != 0;

        r->passed_signal = (int)info.ssi_signo;
        if (is_second || r->t_started == 0)
            end_now(r, END_SIGNAL);
        else
            end_softly(r, END_SIGNAL, r->passed_signal, KILL_AFTER_SIGNAL_MS);
    }
}

/* Takes all that is there. */
static void read_report(struct run *r)
{
    while (r->report_fd >= 0) {
        ssize_t n = TEMP_FAILURE_RETRY(read(r->report_fd, r->report + r->report_len, PYREPORT_MAX + 1 - r->report_len));

        if (n < 0 && errno == EAGAIN)
            return;
        if (n > 0)
            r->report_len += (size_t)n;
        if (n <= 0 || r->report_len > PYREPORT_MAX)
            hutch_fd_closep(&r->report_fd);
    }
}

static void look_at_data(struct run *r)
{
    const uint64_t *limits = r->request->spec->limits;
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    uint64_t bytes = 0, entries = 0;
    struct hutch_err err;
    double before = now_ms(), took;

    bounds.usage_bytes = limits[LIMIT_DATA_SIZE];
    bounds.usage_entries = limits[LIMIT_DATA_FILES];
    if (hutch_collect_usage(r->data_dirfd, &bounds, &bytes, &entries, &err) < 0) {
        hutch_log_debug("run: %s", err.msg);
        r->data_failures++;
    } else {
        r->data_failures = 0;
    }
    /* What cannot be counted again and again is not known to be within its bounds. */
    if (r->data_failures >= DATA_MAX_FAILURES ||
        (limits[LIMIT_DATA_SIZE] && bytes + r->last.unlinked_bytes > limits[LIMIT_DATA_SIZE]) ||
        (limits[LIMIT_DATA_FILES] && entries > limits[LIMIT_DATA_FILES]))
        end_now(r, END_DATA);
    took = now_ms() - before;
    r->next_data = now_ms() + (took * DATA_LOOK_SHARE > DATA_LOOK_MS ? took * DATA_LOOK_SHARE : DATA_LOOK_MS);
}

static void look_at_cpu(struct run *r)
{
    struct cgroup_usage usage;

    hutch_cgroup_read_usage(&r->sandbox.cgroup, &usage);
    if (usage.cpu_user_us != UINT64_MAX && usage.cpu_system_us != UINT64_MAX &&
        (usage.cpu_user_us + usage.cpu_system_us) / 1000 > r->request->spec->limits[LIMIT_CPU_TIME])
        end_now(r, END_CPU_TIME);
    r->next_cpu = now_ms() + CPU_LOOK_MS;
}

/* Does what is due, and returns how many milliseconds poll(2) may wait for the next. */
static int watch_clocks(struct run *r)
{
    const struct sandbox_spec *spec = r->request->spec;
    double now = now_ms(), next = now + 60000;

    if (r->t_started == 0) {
        if (now - r->t0 > SETUP_TIMEOUT_MS) {
            hutch_err_set(&r->setup_err, ETIMEDOUT, "wait for the sandbox to get ready");
            r->setup_failed = true;
            end_now(r, END_SETUP);
        }
        return 1000;
    }
    if (spec->limits[LIMIT_WALL]) {
        double deadline = r->t_started + (double)spec->limits[LIMIT_WALL];

        if (now >= deadline && r->reason == END_OWN)
            end_softly(r, END_TIMEOUT, SIGTERM, (double)spec->grace_ms);
        else if (r->reason == END_OWN && deadline < next)
            next = deadline;
    }
    if (r->kill_at > 0) {
        if (now >= r->kill_at)
            hutch_sandbox_kill(&r->sandbox);
        else if (r->kill_at < next)
            next = r->kill_at;
    }
    if (spec->limits[LIMIT_DATA_SIZE] || spec->limits[LIMIT_DATA_FILES]) {
        if (r->next_data == 0)
            r->next_data = now + DATA_LOOK_MS;
        if (now >= r->next_data)
            look_at_data(r);
        if (r->next_data < next)
            next = r->next_data;
    }
    if (spec->limits[LIMIT_CPU_TIME] && r->sandbox.cgroup.dirfd >= 0) {
        if (now >= r->next_cpu)
            look_at_cpu(r);
        if (r->next_cpu < next)
            next = r->next_cpu;
    }
    now = now_ms();
    return next <= now ? 0 : (int)(next - now) + 1;
}

enum { P_CONTROL, P_OUT, P_OUT_SINK, P_ERR, P_ERR_SINK, P_IN_SOURCE, P_IN, P_REPORT, P_SIGNAL, P_COUNT };

static int turn(struct run *r, int timeout_ms, struct hutch_err *err)
{
    struct pollfd p[P_COUNT] = {
        [P_CONTROL] = { .fd = r->is_init_gone ? -1 : r->sandbox.control_fd, .events = POLLIN },
        [P_REPORT] = { .fd = r->report_fd, .events = POLLIN },
        [P_SIGNAL] = { .fd = r->request->signal_fd, .events = POLLIN },
    };

    hutch_out_stream_poll(&r->out, &p[P_OUT], &p[P_OUT_SINK]);
    hutch_out_stream_poll(&r->err_out, &p[P_ERR], &p[P_ERR_SINK]);
    hutch_in_stream_poll(&r->in, &p[P_IN_SOURCE], &p[P_IN]);
    if (poll(p, P_COUNT, timeout_ms) < 0) {
        if (errno == EINTR)
            return 0;
        return hutch_err_set(err, errno, "wait for the sandbox");
    }
    if (p[P_CONTROL].revents)
        hear_init(r);
    if (p[P_SIGNAL].revents)
        hear_signal(r);
    if (p[P_REPORT].revents)
        read_report(r);
    hutch_in_stream_run(&r->in, &p[P_IN_SOURCE], &p[P_IN]);
    if (r->in.source_errno)
        end_now(r, END_INPUT);
    if (hutch_out_stream_run(&r->out, &p[P_OUT], &p[P_OUT_SINK]) < 0 ||
        hutch_out_stream_run(&r->err_out, &p[P_ERR], &p[P_ERR_SINK]) < 0)
        return hutch_err_set(err, ENOMEM, "keep the program's output");
    if (r->out.is_over_limit || r->err_out.is_over_limit)
        end_now(r, END_OUTPUT);
    return 0;
}

static int supervise(struct run *r, struct hutch_err *err)
{
    while (!r->has_ended && !r->is_init_gone)
        if (turn(r, watch_clocks(r), err) < 0)
            return -1;
    return 0;
}

/* The sandbox is dead, and what its pipes hold now is all that counts: a write end may have left the sandbox through a
 * socket in a shared directory, so no end of file is waited for. A sink that nobody empties holds us until a signal. */
static int drain(struct run *r, struct hutch_err *err)
{
    hutch_fd_closep(&r->in.pipe_fd);
    r->is_init_gone = true;
    hutch_out_stream_finish(&r->out);
    hutch_out_stream_finish(&r->err_out);
    if (r->report_fd >= 0)
        read_report(r);
    hutch_fd_closep(&r->report_fd);
    while (!hutch_out_stream_is_done(&r->out) || !hutch_out_stream_is_done(&r->err_out)) {
        int signal_before = r->passed_signal;

        if (turn(r, -1, err) < 0)
            return -1;
        if (r->passed_signal != signal_before)
            break;
    }
    return 0;
}

/* --- the result ------------------------------------------------------------------------------------------------- */

static void say(struct run *r, enum run_verdict verdict, const char *fmt, ...) HUTCH_PRINTF(3, 4);
static void say(struct run *r, enum run_verdict verdict, const char *fmt, ...)
{
    va_list ap;

    r->result->verdict = verdict;
    va_start(ap, fmt);
    vsnprintf(r->result->message, sizeof(r->result->message), fmt, ap);
    va_end(ap);
}

static void judge_own_end(struct run *r)
{
    struct run_result *res = r->result;
    int sig = WIFSIGNALED(r->status) ? WTERMSIG(r->status) : 0;
    uint64_t cpu_limit = r->request->spec->limits[LIMIT_CPU_TIME];

    if (WIFEXITED(r->status)) {
        res->exit_code = WEXITSTATUS(r->status);
        res->verdict = res->exit_code == 0 ? VERDICT_OK : VERDICT_ERROR;
        return;
    }
    res->signal = sig;
    if (sig == SIGSYS)
        say(r, VERDICT_DENIED, "the program made a system call that is never allowed");
    /* The kernel's own, RLIMIT_CPU - unless the numbers say that the program sent it to itself. */
    else if (sig == SIGXCPU && cpu_limit && res->cpu_user_ms + res->cpu_system_ms >= cpu_limit)
        say(r, VERDICT_CPU_TIME, "the program used more than %" PRIu64 " ms of CPU time", cpu_limit);
    else if (sig == SIGKILL)
        say(r, VERDICT_KILLED, "the program was killed by SIGKILL, and not by hutch");
    else
        res->verdict = VERDICT_ERROR;
}

static void judge(struct run *r, const struct sandbox_end *end)
{
    const uint64_t *limits = r->request->spec->limits;
    struct run_result *res = r->result;

    if (r->setup_failed) {
        say(r, VERDICT_SETUP_FAILED, "%s", r->setup_err.msg);
        res->exit_code = !r->exec_failed ? 125 : r->setup_err.errnum == ENOENT ? 127 : 126;
        return;
    }
    if (r->reason != END_OWN && !r->has_ended)
        res->signal = SIGKILL;
    else if (r->has_ended && WIFSIGNALED(r->status))
        res->signal = WTERMSIG(r->status);
    else if (r->has_ended)
        res->exit_code = WEXITSTATUS(r->status);
    /* The cgroup's count is the kernel's own; it ended everything at once, init too. */
    if (end->cgroup.oom_kills > 0 && (!r->has_ended || WIFSIGNALED(r->status))) {
        res->signal = SIGKILL;
        say(r, VERDICT_OUT_OF_MEMORY, "out of memory: the limit is %" PRIu64 " bytes, enforced by the cgroup",
            limits[LIMIT_MEMORY]);
        return;
    }
    switch (r->reason) {
    case END_TIMEOUT:
        say(r, VERDICT_TIMEOUT, "the run took longer than %" PRIu64 " ms", limits[LIMIT_WALL]);
        return;
    case END_CPU_TIME:
        say(r, VERDICT_CPU_TIME, "the program used more than %" PRIu64 " ms of CPU time", limits[LIMIT_CPU_TIME]);
        return;
    case END_MEMORY:
        say(r, VERDICT_OUT_OF_MEMORY,
            "out of memory: %" PRIu64 " bytes were in use and the limit is %" PRIu64 ", enforced by rlimit and supervisor",
            r->last.memory_bytes, limits[LIMIT_MEMORY]);
        return;
    case END_HIDDEN:
        say(r, VERDICT_KILLED, "what the processes hold cannot be counted: %s",
            r->hidden_in_a_row >= HIDDEN_MAX ? "one of them made itself unreadable" : "there is too much to look at");
        return;
    case END_INPUT:
        say(r, VERDICT_KILLED, "read standard input: %s", strerrordesc_np(r->in.source_errno));
        return;
    case END_OUTPUT:
        say(r, VERDICT_OUTPUT_LIMIT, "the program wrote more than %" PRIu64 " bytes to %s", r->out.limit,
            r->out.is_over_limit ? "stdout" : "stderr");
        return;
    case END_DATA:
        say(r, VERDICT_OUTPUT_LIMIT, RUN_DATA_DIR " holds more than %" PRIu64 " bytes or %" PRIu64 " files",
            limits[LIMIT_DATA_SIZE], limits[LIMIT_DATA_FILES]);
        return;
    case END_SIGNAL:
        say(r, VERDICT_KILLED, "hutch was told to stop by SIG%s", sigabbrev_np(r->passed_signal));
        return;
    case END_OWN:
    case END_SETUP:
    case END_COUNT:
        break;
    }
    if (r->has_ended) {
        judge_own_end(r);
    } else if (r->t_started > 0 || r->out.seen > 0 || r->err_out.seen > 0) { /* its output can overtake init's word */
        res->signal = SIGKILL;
        say(r, VERDICT_KILLED, "the sandbox was killed from outside");
    } else {
        res->exit_code = 125;
        say(r, VERDICT_SETUP_FAILED, "the sandbox was killed from outside before it was ready");
    }
}

static void note_usage(struct run *r, const struct sandbox_end *end)
{
    struct run_result *res = r->result;
    const struct cgroup_usage *cg = &end->cgroup;
    uint64_t rss = (uint64_t)end->usage.ru_maxrss * 1024;

    res->cpu_user_ms = (uint64_t)end->usage.ru_utime.tv_sec * 1000 + (uint64_t)end->usage.ru_utime.tv_usec / 1000;
    res->cpu_system_ms = (uint64_t)end->usage.ru_stime.tv_sec * 1000 + (uint64_t)end->usage.ru_stime.tv_usec / 1000;
    if (cg->cpu_user_us != UINT64_MAX && cg->cpu_system_us != UINT64_MAX) {
        res->cpu_user_ms = cg->cpu_user_us / 1000;
        res->cpu_system_ms = cg->cpu_system_us / 1000;
    }
    if (cg->memory_peak_bytes != UINT64_MAX)
        res->memory_peak_bytes = cg->memory_peak_bytes;
    else
        res->memory_peak_bytes = r->peak.memory_bytes > rss ? r->peak.memory_bytes : rss;
    if (cg->pids_peak != UINT64_MAX)
        res->pids_peak = cg->pids_peak > 0 ? cg->pids_peak - 1 : 0; /* without init */
    else if (r->peak.pids > 0)
        res->pids_peak = r->peak.pids;
}

/* A result without its list of files is still a result. */
static void admit_loss(struct run *r, const struct hutch_err *err)
{
    r->result->files.truncated = true;
    if (!r->result->message[0])
        snprintf(r->result->message, sizeof(r->result->message), "%s", err->msg);
}

static int collect(struct run *r, struct hutch_err *err)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    auto_free char *kept = NULL;
    const struct file_changes *files = &r->result->files;
    struct hutch_err why;

    if (r->data_dirfd < 0)
        return 0;
    if (!r->setup_failed && hutch_collect_changes(r->data_dirfd, &r->before, &bounds, &r->result->files, &why) < 0) {
        hutch_err_wrap(&why, "collect the files of the run");
        admit_loss(r, &why);
    }
    if (r->request->data_dir)
        return 0;
    if (files->added.n == 0 && !files->truncated) {
        free(r->result->directory);
        r->result->directory = NULL;
        return 0;
    }
    if (hutch_state_keep_data(&r->state, &kept, &why) < 0) {
        admit_loss(r, &why);
        return 0;
    }
    return hutch_spec_set_string(&r->result->directory, kept, err);
}

static int finish(struct run *r, struct hutch_err *err)
{
    struct sandbox_end end = { 0 };
    struct hutch_err ignored;
    int rc = 0;

    if (r->sandbox.pid > 0 && hutch_sandbox_finish(&r->sandbox, &end, &ignored) < 0)
        hutch_log_debug("run: %s (the next start sweeps it)", ignored.msg);
    rc = drain(r, err);
    r->result->lost_output = r->out.sink_errno ? r->out.sink_errno : r->err_out.sink_errno;
    note_usage(r, &end);
    judge(r, &end);
    /* Anybody inside can write a report; where nothing failed there is no error to report. */
    if (r->report && r->result->verdict != VERDICT_OK && hutch_pyreport_parse(r->report, r->report_len, &r->result->error) < 0)
        rc = hutch_err_set(err, ENOMEM, "keep the error report");
    if (collect(r, err) < 0)
        rc = -1;
    r->result->prepared_ms = (r->t_started > 0 ? r->t_started : now_ms()) - r->t0;
    if (r->t_started > 0)
        r->result->run_ms = (r->t_ended > 0 ? r->t_ended : now_ms()) - r->t_started;
    return rc;
}

int hutch_run(const struct run_request *request, struct run_result *ret, struct hutch_err *err)
{
    struct run *r = calloc(1, sizeof(*r));
    struct hutch_err ignored;
    int rc = -1;

    if (!r)
        return hutch_err_set(err, ENOMEM, "start a run");
    r->request = request;
    r->result = ret;
    r->t0 = now_ms();
    r->state = (struct run_state)RUN_STATE_INIT;
    r->cgroup_base = (struct cgroup_base)CGROUP_BASE_INIT;
    r->sandbox = (struct sandbox)SANDBOX_INIT;
    r->before = (struct file_list)FILE_LIST_INIT;
    r->data_dirfd = r->report_fd = r->out.pipe_fd = r->err_out.pipe_fd = r->in.pipe_fd = -1;
    r->out.sink_fd = request->stdout_fd;
    r->out.capture = &ret->out;
    r->out.limit = r->err_out.limit = request->spec->limits[LIMIT_OUTPUT];
    if (!r->out.limit && request->stdout_fd < 0)
        r->out.limit = CAPTURE_MAX;
    if (!r->err_out.limit && request->stderr_fd < 0)
        r->err_out.limit = CAPTURE_MAX;
    r->err_out.sink_fd = request->stderr_fd;
    r->err_out.capture = &ret->err_out;
    r->in.source_fd = request->stdin_fd;
    r->report = malloc(PYREPORT_MAX + 1);
    if (!r->report) {
        hutch_err_set(err, ENOMEM, "start a run");
        goto out;
    }
    if (hutch_state_open(request->home, &r->state, err) < 0 || prepare_data(r, err) < 0 || start(r, err) < 0) {
        r->setup_failed = true;
        r->setup_err = *err;
    } else {
        note_limits(r);
        if (supervise(r, err) < 0)
            goto out;
    }
    if (r->sandbox.pid < 0)
        note_limits(r);
    rc = finish(r, err);
out:
    if (r->sandbox.pid > 0)
        hutch_sandbox_finish(&r->sandbox, NULL, &ignored);
    hutch_fd_closep(&r->data_dirfd);
    hutch_fd_closep(&r->report_fd);
    hutch_fd_closep(&r->out.pipe_fd);
    hutch_fd_closep(&r->err_out.pipe_fd);
    hutch_fd_closep(&r->in.pipe_fd);
    hutch_file_list_done(&r->before);
    hutch_cgroup_base_done(&r->cgroup_base);
    if (hutch_state_close(&r->state, &ignored) < 0)
        hutch_log_debug("run: %s (the next start sweeps it)", ignored.msg);
    free(r->report);
    ret->total_ms = now_ms() - r->t0;
    free(r);
    return rc;
}
