#include "runtime/run/verdict.h"

#include "runtime/lang/program.h"
#include "runtime/lang/python_error.h"
#include "runtime/run/limit_hint.h"
#include "runtime/run/supervisor.h"
#include "sandbox/clock.h"
#include "sandbox/inside.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

const char *hutch_verdict_text(enum hutch_verdict verdict)
{
    switch (verdict) {
    case HUTCH_OK:
        return "ok";
    case HUTCH_ERROR:
        return "error";
    case HUTCH_TIMEOUT:
        return "timeout";
    case HUTCH_CPU_TIME:
        return "cpu_time";
    case HUTCH_OUT_OF_MEMORY:
        return "out_of_memory";
    case HUTCH_OUTPUT_LIMIT:
        return "output_limit";
    case HUTCH_KILLED:
        return "killed";
    case HUTCH_DENIED:
        return "denied";
    case HUTCH_SETUP_FAILED:
        return "setup_failed";
    }
    return "unknown";
}

static void set_verdict(struct supervisor *s, enum hutch_verdict verdict, const char *fmt, ...) HUTCH_PRINTF(3, 4);
static void set_verdict(struct supervisor *s, enum hutch_verdict verdict, const char *fmt, ...)
{
    va_list ap;

    s->result->verdict = verdict;
    va_start(ap, fmt);
    vsnprintf(s->result->message, sizeof(s->result->message), fmt, ap);
    va_end(ap);
}

/* Hutch ends what is over a limit by SIGKILL. A program that ends well by itself in the meantime has the same result:
 * an exit code of 0 would say that nothing is missing, and which of the two was first is chance. */
static void set_killed(struct run_result *res)
{
    res->exit_code = -1;
    res->signal = SIGKILL;
}

/* Whether the program was asked to end, and had time for it: then the way in which it ended is its answer. */
static bool was_asked(enum end_reason reason)
{
    return reason == END_TIMEOUT || reason == END_SIGNAL;
}

static void decide_own_end(struct supervisor *s)
{
    struct run_result *res = s->result;
    int sig = WIFSIGNALED(s->status) ? WTERMSIG(s->status) : 0;
    uint64_t cpu_limit = s->limits[LIMIT_CPU_TIME], cpu_used = res->cpu_user_ms + res->cpu_system_ms;

    if (WIFEXITED(s->status)) {
        res->exit_code = WEXITSTATUS(s->status);
        if (cpu_limit && cpu_used > cpu_limit) { /* between the last look and its end */
            if (res->exit_code == 0)
                set_killed(res);
            set_verdict(s, HUTCH_CPU_TIME, "the program used more than %" PRIu64 " ms of CPU time", cpu_limit);
            return;
        }
        res->verdict = res->exit_code == 0 ? HUTCH_OK : HUTCH_ERROR;
        return;
    }
    res->signal = sig;
    if (sig == SIGSYS)
        set_verdict(s, HUTCH_DENIED, "the program made a system call that is never allowed");
    /* The kernel's own, RLIMIT_CPU - unless the numbers say that the program sent it to itself. */
    else if (sig == SIGXCPU && cpu_limit && cpu_used >= cpu_limit)
        set_verdict(s, HUTCH_CPU_TIME, "the program used more than %" PRIu64 " ms of CPU time", cpu_limit);
    else if (sig == SIGKILL)
        set_verdict(s, HUTCH_KILLED, "the program was killed by SIGKILL, and not by hutch");
    else
        res->verdict = HUTCH_ERROR;
}

static void decide_setup(struct supervisor *s)
{
    char installed[128] = "";

    s->result->exit_code = !s->exec_failed ? 125 : s->setup_err.errnum == ENOENT ? 127 : 126;
    if (s->exec_failed && s->setup_err.errnum == ENOENT && s->tree)
        hutch_program_list_installed(s->tree, installed, sizeof(installed));
    set_verdict(s, HUTCH_SETUP_FAILED, "%s%s%s", s->setup_err.msg,
                installed[0] ? "; the languages of this image: " : "", installed);
}

static void find_verdict(struct supervisor *s, const struct sandbox_end *end)
{
    const uint64_t *limits = s->limits;
    struct run_result *res = s->result;

    if (s->setup_failed) {
        decide_setup(s);
        return;
    }
    if (s->reason != END_OWN && !s->has_ended)
        set_killed(res);
    else if (s->has_ended && WIFSIGNALED(s->status))
        res->signal = WTERMSIG(s->status);
    else if (s->has_ended && WEXITSTATUS(s->status) == 0 && s->reason != END_OWN && !was_asked(s->reason))
        set_killed(res);
    else if (s->has_ended)
        res->exit_code = WEXITSTATUS(s->status);
    /* The cgroup's count is the kernel's own; it ended everything at once, init too. */
    if (end->cgroup.oom_kills > 0 && (!s->has_ended || WIFSIGNALED(s->status))) {
        res->signal = SIGKILL;
        set_verdict(s, HUTCH_OUT_OF_MEMORY, "out of memory: the limit is %" PRIu64 " bytes, enforced by the cgroup",
                    limits[LIMIT_MEMORY]);
        return;
    }
    switch (s->reason) {
    case END_TIMEOUT:
        set_verdict(s, HUTCH_TIMEOUT, "the run took longer than %" PRIu64 " ms", limits[LIMIT_WALL]);
        return;
    case END_CPU_TIME:
        set_verdict(s, HUTCH_CPU_TIME, "the program used more than %" PRIu64 " ms of CPU time", limits[LIMIT_CPU_TIME]);
        return;
    case END_MEMORY:
        set_verdict(s, HUTCH_OUT_OF_MEMORY,
                    "out of memory: %s%" PRIu64 " bytes were in use and the limit is %" PRIu64
                    ", enforced by the supervisor",
                    s->last.is_memory_upper_bound ? "at most " : "", s->last.memory_bytes, limits[LIMIT_MEMORY]);
        return;
    case END_HIDDEN:
        set_verdict(s, HUTCH_KILLED, "what the processes hold cannot be counted: one of them made itself unreadable");
        return;
    case END_UNCOUNTED:
        set_verdict(s, HUTCH_KILLED, "what the processes hold cannot be counted: there is too much to look at");
        return;
    case END_IN_FLIGHT:
        set_verdict(s, HUTCH_KILLED,
                    "%" PRIu64 " descriptors were on their way through sockets, which no program needs: the kernel "
                    "counts them for all sandboxes together, and lets through as many as 'open_files' says, %" PRIu64,
                    s->last.in_flight, limits[LIMIT_OPEN_FILES]);
        return;
    case END_INPUT:
        res->has_hutch_failed = true;
        set_verdict(s, HUTCH_KILLED, "read standard input: %s", strerrordesc_np(s->in.source_errno));
        return;
    case END_OUTPUT:
        set_verdict(s, HUTCH_OUTPUT_LIMIT, "the program wrote more than %" PRIu64 " bytes to %s", s->out.limit,
                    s->out.is_over_limit ? "stdout" : "stderr");
        return;
    case END_DATA:
        set_verdict(s, HUTCH_OUTPUT_LIMIT, INSIDE_DATA_DIR " holds more than %" PRIu64 " bytes or %" PRIu64 " files",
                    limits[LIMIT_DATA_SIZE], limits[LIMIT_DATA_FILES]);
        return;
    case END_FILES_IN_MEMORY:
        set_verdict(s, HUTCH_KILLED,
                    "the files in " INSIDE_DATA_DIR " of all sandboxes take too much of this host's memory together, "
                    "and this one had the most");
        return;
    case END_SIGNAL:
        set_verdict(s, HUTCH_KILLED, "hutch was told to stop by SIG%s", sigabbrev_np(s->passed_signal));
        return;
    case END_CANCELLED:
        set_verdict(s, HUTCH_KILLED, "the run was cancelled");
        return;
    case END_HOST:
        res->has_hutch_failed = true;
        set_verdict(s, HUTCH_KILLED, "hutch could not go on with the run: %s", s->host_err.msg);
        return;
    case END_OWN:
    case END_SETUP:
    case END_COUNT:
        break;
    }
    if (s->has_ended) {
        decide_own_end(s);
    } else if (s->t_started > 0 || s->out.seen > 0 || s->err_out.seen > 0) { /* its output can overtake init's word */
        res->signal = SIGKILL;
        set_verdict(s, HUTCH_KILLED, "the sandbox was killed from outside");
    } else {
        res->exit_code = 125;
        set_verdict(s, HUTCH_SETUP_FAILED, "the sandbox was killed from outside before it was ready");
    }
}

/* What is over a limit in the data directory is either thrown away or said to be there. */
static void note_data(struct supervisor *s)
{
    struct run_result *res = s->result;
    size_t len = strlen(res->message);

    if (s->is_data_full)
        snprintf(res->message + len, sizeof(res->message) - len,
                 "%s" INSIDE_DATA_DIR " is full: %" PRIu64 " bytes or %" PRIu64 " files are its limits",
                 len ? "; " : "", s->limits[LIMIT_DATA_SIZE], s->limits[LIMIT_DATA_FILES]);
    if (s->is_data_over)
        snprintf(res->message + len, sizeof(res->message) - len, "; %s%s",
                 s->reason == END_DATA ? "" : INSIDE_DATA_DIR " is over its limit: ",
                 s->has_kept_data ? "its files were left there" : "none of its files were kept");
}

/* What a program that failed has run into, as far as it or the kernel tells. A sentence that is there says more. */
static void note_limits(struct supervisor *s)
{
    struct run_result *res = s->result;
    struct limit_hint hint = {
        .limits = s->limits,
        .was_pids_reached = s->limits[LIMIT_PIDS] && res->pids_peak != UINT64_MAX &&
                            res->pids_peak >= s->limits[LIMIT_PIDS],
        .is_data_full = s->is_data_full,
    };

    if (res->verdict != HUTCH_ERROR || res->message[0])
        return;
    hutch_limit_hint_set_exception(&hint, res->error.value, res->error.traceback);
    hint.texts[0].len = hutch_out_stream_tail(&s->err_out, &hint.texts[0].data);
    hutch_limit_hint_write(&hint, res->message, sizeof(res->message));
}

static void note_usage(struct supervisor *s, const struct sandbox_end *end)
{
    struct run_result *res = s->result;
    const struct cgroup_usage *cg = &end->cgroup;
    uint64_t rss = (uint64_t)end->usage.ru_maxrss * 1024;

    res->cpu_user_ms = (uint64_t)end->usage.ru_utime.tv_sec * 1000 + (uint64_t)end->usage.ru_utime.tv_usec / 1000;
    res->cpu_system_ms = (uint64_t)end->usage.ru_stime.tv_sec * 1000 + (uint64_t)end->usage.ru_stime.tv_usec / 1000;
    if (cg->cpu_user_us != UINT64_MAX && cg->cpu_system_us != UINT64_MAX) {
        res->cpu_user_ms = cg->cpu_user_us / 1000;
        res->cpu_system_ms = cg->cpu_system_us / 1000;
    } else {
        if (s->last.cpu_ms > res->cpu_user_ms + res->cpu_system_ms) /* a sample has both together */
            res->cpu_user_ms = s->last.cpu_ms - res->cpu_system_ms;
        res->is_cpu_lower_bound = s->last.is_cpu_lower_bound != 0;
    }
    if (cg->memory_peak_bytes != UINT64_MAX)
        res->memory_peak_bytes = cg->memory_peak_bytes;
    else
        res->memory_peak_bytes = s->peak.memory_bytes > rss ? s->peak.memory_bytes : rss;
    if (cg->pids_peak != UINT64_MAX)
        res->pids_peak = cg->pids_peak > 0 ? cg->pids_peak - 1 : 0; /* without init */
    else if (s->peak.pids > 0)
        res->pids_peak = s->peak.pids;
}

int hutch_verdict_decide(struct supervisor *s, const struct sandbox_end *end, struct hutch_err *err)
{
    double now = hutch_clock_ms();
    struct run_result *res = s->result;

    res->lost_output = s->out.sink_errno ? s->out.sink_errno : s->err_out.sink_errno;
    note_usage(s, end);
    find_verdict(s, end);
    note_data(s);
    res->prepared_ms = (s->t_started > 0 ? s->t_started : now) - s->t0;
    if (s->t_started > 0)
        res->run_ms = (s->t_ended > 0 ? s->t_ended : now) - s->t_started;
    /* Any process inside can write a report; where nothing failed there is no error to report. */
    if (res->verdict != HUTCH_OK && hutch_pyreport_parse(s->report, s->report_len, &res->error) < 0)
        return hutch_err_set(err, ENOMEM, "keep the error report");
    note_limits(s);
    return 0;
}
