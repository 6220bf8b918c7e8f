#include "runtime/run/supervisor.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/log.h"
#include "runtime/lang/python_error.h"

#include <linux/sockios.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#define SETUP_TIMEOUT_MS   30000 /* a sandbox takes milliseconds; this is for a host that hangs */
#define SAMPLED_IDLE_MS    60000 /* between two checks of the data directory, where samples say what has changed */
#define DATA_MAX_FAILURES  4
#define CPU_INTERVAL_MS    100
#define COUNT_MS           1000 /* a count that is ordered comes by then, or is made here: no limit waits longer */
#define CAPTURE_MAX        (256u << 20) /* bytes of a stream that are kept in memory where no limit is set */
#define HIDDEN_MAX         5  /* samples in a row: once or twice it is a process on its way out */
#define CUT_MAX            10 /* samples in a row, each of a quarter of a second of CPU time */
#define KILL_AFTER_SIGNAL_MS 2000
#define GONE_AFTER_KILL_MS 2000 /* it hangs in the kernel, where no signal ends it: its owner does not wait for it */
#define IN_FLIGHT_MORE     512 /* descriptors beyond open_files: two messages that pass the kernel's check at once */

/* All but its memory. */
static void forget(struct supervisor *s)
{
    memset(s, 0, offsetof(struct supervisor, report));
    if (s->report_size > PYREPORT_MAX + 1) { /* a value was here */
        char *usual = realloc(s->report, PYREPORT_MAX + 1);

        s->report = usual ? usual : s->report;
        s->report_size = usual ? PYREPORT_MAX + 1 : s->report_size;
    }
    s->report_fd = s->data_dirfd = -1;
    hutch_out_stream_init(&s->out);
    hutch_out_stream_init(&s->err_out);
    hutch_in_stream_init(&s->in);
}

struct supervisor *hutch_supervisor_create(struct hutch_err *err)
{
    struct supervisor *s = malloc(sizeof(*s));
    char *report = malloc(PYREPORT_MAX + 1);

    if (!s || !report) {
        free(s);
        free(report);
        hutch_err_set(err, ENOMEM, "start a run");
        return NULL;
    }
    s->report = report;
    s->report_size = PYREPORT_MAX + 1;
    forget(s);
    return s;
}

static void close_report(struct supervisor *s)
{
    if (s->report_fd >= 0 && s->on_close && s->on_close(s->user, s->report_fd))
        s->report_fd = -1;
    hutch_fd_closep(&s->report_fd);
}

void hutch_supervisor_reset(struct supervisor *s)
{
    close_report(s);
    hutch_out_stream_close(&s->out);
    hutch_out_stream_close(&s->err_out);
    hutch_in_stream_close(&s->in);
    forget(s);
}

void hutch_supervisor_free(struct supervisor *s)
{
    if (!s)
        return;
    hutch_supervisor_reset(s);
    free(s->report);
    free(s);
}

static void bound(struct out_stream *stream, uint64_t limit)
{
    bool is_kept = stream->sink_fd < 0 && !stream->on_data;

    stream->limit = !limit && is_kept ? CAPTURE_MAX : limit;
}

void hutch_supervisor_set_limits(struct supervisor *s, const uint64_t limits[LIMIT_COUNT], uint64_t grace_ms)
{
    memcpy(s->limits, limits, sizeof(s->limits));
    s->grace_ms = grace_ms;
    bound(&s->out, limits[LIMIT_OUTPUT]);
    bound(&s->err_out, limits[LIMIT_OUTPUT]);
}

static void note_layers(struct supervisor *s, const struct sandbox_enforcement *e)
{
    for (size_t i = 0; i < LAYER_COUNT; i++) {
        s->result->layers[i].is_active = e->layer_active[i];
        memcpy(s->result->layers[i].detail, e->layer_detail[i], sizeof(s->result->layers[i].detail));
    }
}

void hutch_supervisor_note_limits(struct supervisor *s, const struct sandbox_spec *spec)
{
    static const enum sandbox_limit watched[] = { LIMIT_CPU_TIME, LIMIT_WALL, LIMIT_OUTPUT, LIMIT_DATA_SIZE,
                                                  LIMIT_DATA_FILES };
    static const struct sandbox_enforcement nothing;
    const struct sandbox_enforcement *e = s->sandbox ? &s->sandbox->enforcement : &nothing;

    for (size_t i = 0; i < LIMIT_COUNT; i++) {
        s->result->limits[i].asked = s->limits[i];
        s->result->limits[i].enforcers = e->limits[i];
    }
    for (size_t i = 0; i < ARRAY_SIZE(watched); i++) {
        const bool is_data = watched[i] == LIMIT_DATA_SIZE || watched[i] == LIMIT_DATA_FILES;

        if (s->limits[watched[i]])
            s->result->limits[watched[i]].enforcers |=
                1u << (is_data && s->is_data_bounded ? ENFORCER_KERNEL : ENFORCER_SUPERVISOR);
    }
    if (s->limits[LIMIT_MEMORY] && s->sandbox && s->sandbox->wants_samples &&
        !(e->limits[LIMIT_MEMORY] & 1u << ENFORCER_CGROUP))
        s->result->limits[LIMIT_MEMORY].enforcers |= 1u << ENFORCER_SUPERVISOR;
    for (size_t i = 0; i < LAYER_COUNT; i++)
        s->result->layers[i].asked = spec->layers[i];
    note_layers(s, e);
    if (spec->gpu_found && !s->setup_failed)
        s->result->gpu = strdup(spec->gpu_found);
}

void hutch_supervisor_end(struct supervisor *s, enum end_reason reason)
{
    if (s->reason == END_OWN)
        s->reason = reason;
    if (!s->sandbox)
        return;
    hutch_sandbox_kill(s->sandbox);
    if (s->killed_at == 0)
        s->killed_at = hutch_clock_ms();
}

void hutch_supervisor_fail(struct supervisor *s, const struct hutch_err *why)
{
    if (s->reason == END_OWN)
        s->host_err = *why;
    hutch_supervisor_end(s, END_HOST);
}

/* Asks politely; the kill follows after @grace_ms. */
static void end_softly(struct supervisor *s, enum end_reason reason, int sig, double grace_ms)
{
    if (s->reason == END_OWN)
        s->reason = reason;
    if (s->kill_at == 0)
        s->kill_at = hutch_clock_ms() + grace_ms;
    hutch_sandbox_signal(s->sandbox, sig);
}

static void hear_init(struct supervisor *s)
{
    struct init_msg msg;
    struct hutch_err err;
    const uint64_t *limits = s->limits;
    int rc = hutch_sandbox_receive(s->sandbox, &msg, &err);

    if (rc < 0 && err.errnum == EAGAIN)
        return;
    if (rc <= 0) {
        s->is_init_gone = true;
        if (!s->is_built && s->t_started == 0 && !s->setup_failed) /* without a word: nothing is known to have stood */
            for (size_t i = 0; i < LAYER_COUNT; i++)
                s->result->layers[i].is_active = false;
        return;
    }
    if (msg.kind == INIT_BUILT || msg.kind == INIT_STARTED || msg.kind == INIT_EXEC_FAILED ||
        msg.kind == INIT_SETUP_FAILED)
        note_layers(s, &s->sandbox->enforcement); /* init has told what it could have */
    switch (msg.kind) {
    case INIT_SETUP_FAILED:
    case INIT_EXEC_FAILED:
        hutch_err_receive(&msg.err, "process 1");
        s->setup_failed = true;
        s->exec_failed = msg.kind == INIT_EXEC_FAILED;
        s->setup_err = msg.err;
        break;
    case INIT_BUILT:
        s->is_built = true;
        break;
    case INIT_STARTED:
        hutch_supervisor_started(s);
        break;
    case INIT_SAMPLE:
        s->last = msg.sample;
        s->n_samples++;
        s->has_changed = true;
        if (s->idle_ms > 0 && s->next_data > hutch_clock_ms() + INIT_SAMPLE_MS)
            s->next_data = hutch_clock_ms() + INIT_SAMPLE_MS;
        if (msg.sample.memory_bytes > s->peak.memory_bytes)
            s->peak.memory_bytes = msg.sample.memory_bytes;
        if (msg.sample.pids > s->peak.pids)
            s->peak.pids = msg.sample.pids;
        if (limits[LIMIT_MEMORY] && !(s->sandbox->cgroup.controllers & CGROUP_MEMORY) &&
            msg.sample.memory_bytes > limits[LIMIT_MEMORY])
            hutch_supervisor_end(s, END_MEMORY);
        s->hidden_in_a_row = msg.sample.is_hidden ? s->hidden_in_a_row + 1 : 0;
        s->cut_in_a_row = msg.sample.is_cut_short ? s->cut_in_a_row + 1 : 0;
        if (s->hidden_in_a_row >= HIDDEN_MAX)
            hutch_supervisor_end(s, END_HIDDEN);
        if (s->cut_in_a_row >= CUT_MAX)
            hutch_supervisor_end(s, END_UNCOUNTED);
        if (limits[LIMIT_OPEN_FILES] && msg.sample.in_flight > limits[LIMIT_OPEN_FILES] + IN_FLIGHT_MORE)
            hutch_supervisor_end(s, END_IN_FLIGHT);
        if (limits[LIMIT_DATA_SIZE] && !s->is_data_bounded && msg.sample.unlinked_bytes > limits[LIMIT_DATA_SIZE])
            hutch_supervisor_end(s, END_DATA);
        if (limits[LIMIT_CPU_TIME] && msg.sample.cpu_ms > limits[LIMIT_CPU_TIME])
            hutch_supervisor_end(s, END_CPU_TIME);
        break;
    case INIT_FOLLOWED:
        s->has_followed = true;
        s->followed = msg.followed;
        break;
    case INIT_WATCHED:
    case INIT_PROCESS_ENDED:
        if (s->on_process)
            s->on_process(s->user, &msg);
        break;
    case INIT_SIGNALLED:
        s->n_signalled++;
        s->was_signalled = true;
        break;
    case INIT_PAUSED:
        s->is_still = msg.paused.is_still != 0;
        s->n_pauses += msg.paused.is_answer != 0;
        break;
    case INIT_OUTLIVED:
        s->was_outlived = true;
        s->status = msg.ended.status;
        s->usage = msg.ended.usage;
        break;
    case INIT_READY:
    case INIT_ADOPTED:
    case INIT_ATTACHED:
    case INIT_LIMITED:
        break; /* said before a run begins */
    case INIT_ENDED:
        s->t_ended = hutch_clock_ms();
        s->has_ended = true;
        s->status = msg.ended.status;
        s->usage = msg.ended.usage;
        if (msg.ended.cpu_ms > s->last.cpu_ms)
            s->last.cpu_ms = msg.ended.cpu_ms;
        s->last.is_cpu_lower_bound |= msg.ended.is_cpu_lower_bound;
        break;
    }
}

bool hutch_supervisor_is_signalling(const struct supervisor *s)
{
    return s->n_signalled != s->sandbox->n_signals;
}

void hutch_supervisor_pass_signal(struct supervisor *s, int sig)
{
    bool is_second = s->passed_signal != 0;
    /* A program that has printed has started, also where init has not had the time to tell. */
    bool has_started = s->t_started != 0 || s->out.seen > 0 || s->err_out.seen > 0;

    s->passed_signal = sig;
    if (is_second || !has_started)
        hutch_supervisor_end(s, END_SIGNAL);
    else
        end_softly(s, END_SIGNAL, sig, KILL_AFTER_SIGNAL_MS);
}

/* Room for one byte more than may come, or for some of that. False: there is no memory. */
static bool make_room_for_report(struct supervisor *s, size_t max)
{
    size_t size = s->report_size * 2 < max + 1 ? s->report_size * 2 : max + 1;
    char *grown;

    if (s->report_len < s->report_size)
        return true;
    grown = realloc(s->report, size);
    if (!grown)
        return false;
    s->report = grown;
    s->report_size = size;
    return true;
}

/* Takes all that is there. */
static void read_report(struct supervisor *s)
{
    size_t max = s->report_max ? s->report_max : PYREPORT_MAX;

    while (s->report_fd >= 0) {
        size_t end = s->report_size < max + 1 ? s->report_size : max + 1;
        ssize_t n = TEMP_FAILURE_RETRY(read(s->report_fd, s->report + s->report_len, end - s->report_len));

        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0)
            s->report_errno = errno;
        else
            s->report_len += (size_t)n;
        if (n <= 0 || s->report_len > max || !make_room_for_report(s, max))
            close_report(s);
    }
}

/* The same moment for all that are idle. Where init samples, a sample says that something has changed. */
static double next_idle_check(const struct supervisor *s, double now)
{
    if (s->sandbox->wants_samples)
        return now + SAMPLED_IDLE_MS;
    return (double)((uint64_t)(now / s->idle_ms) + 1) * s->idle_ms;
}

void hutch_supervisor_set_idle(struct supervisor *s, double idle_ms)
{
    s->idle_ms = idle_ms;
    s->next_data = idle_ms > 0 ? next_idle_check(s, hutch_clock_ms()) : 0;
}

/* While nothing uses CPU time, no file gets larger. A cgroup's count has init in it, which uses none unless it
 * samples. */
static bool was_idle(struct supervisor *s)
{
    uint64_t before = s->checked_cpu_us;
    bool has_changed = s->has_changed;

    s->has_changed = false;
    if (s->sandbox->wants_samples)
        return !has_changed;
    s->checked_cpu_us = hutch_cgroup_read_cpu(&s->sandbox->cgroup);
    return s->checked_cpu_us != UINT64_MAX && s->checked_cpu_us == before;
}

static struct collect_bounds data_bounds(const struct supervisor *s)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;

    bounds.usage_bytes = s->limits[LIMIT_DATA_SIZE];
    bounds.usage_entries = s->limits[LIMIT_DATA_FILES];
    return bounds;
}

static bool is_data_over(const struct supervisor *s, uint64_t bytes, uint64_t entries)
{
    if (s->is_data_bounded)
        return false;
    return (s->limits[LIMIT_DATA_SIZE] && bytes > s->limits[LIMIT_DATA_SIZE]) ||
           (s->limits[LIMIT_DATA_FILES] && entries > s->limits[LIMIT_DATA_FILES]);
}

/* @why NULL: it was counted. */
static void note_count(struct supervisor *s, struct data_count *count, uint64_t max_walked, const struct hutch_err *why)
{
    if (why)
        hutch_log_debug("run: %s", why->msg);
    s->data_failures = why ? s->data_failures + 1 : 0;
    /* What cannot be counted again and again is not known to be within its bounds. */
    if (s->data_failures >= DATA_MAX_FAILURES ||
        is_data_over(s, count->bytes + s->last.unlinked_bytes, count->entries))
        hutch_supervisor_end(s, END_DATA);
    count->is_cut = why || count->entries >= max_walked;
    count->ended_ms = hutch_clock_ms();
    s->next_data =
        hutch_data_watch_next(&s->data_watch, count, s->limits[LIMIT_DATA_SIZE], s->limits[LIMIT_DATA_FILES]);
}

static bool order_count(struct supervisor *s, double now)
{
    const struct collect_bounds bounds = data_bounds(s);

    s->is_counting = s->order_count && s->order_count(s->user, &bounds);
    s->count_begun_ms = now;
    return s->is_counting;
}

/* All of it, in one go: for what cannot be ordered, or does not come. */
static void count_here(struct supervisor *s)
{
    const struct collect_bounds bounds = data_bounds(s);
    struct data_count count = { .begun_ms = hutch_clock_ms() };
    struct hutch_err err;
    int rc = hutch_collect_usage(s->data_dirfd, &bounds, &count.bytes, &count.entries, &err);

    s->is_counting = false;
    note_count(s, &count, bounds.max_walked, rc < 0 ? &err : NULL);
}

static void check_data(struct supervisor *s)
{
    struct collect_bounds bounds = data_bounds(s);
    struct data_count count = { .begun_ms = hutch_clock_ms() };
    struct hutch_err err;
    int rc;

    if (s->order_count && s->data_watch.entries >= s->max_counted && order_count(s, count.begun_ms))
        return;
    if (s->order_count)
        bounds.max_walked = s->max_counted;
    else if (hutch_data_watch_is_first(&s->data_watch))
        bounds.max_walked = DATA_WATCH_FIRST_SIZE;
    rc = hutch_collect_usage(s->data_dirfd, &bounds, &count.bytes, &count.entries, &err);
    if (rc < 0 || !s->order_count || count.entries < s->max_counted)
        note_count(s, &count, bounds.max_walked, rc < 0 ? &err : NULL);
    else if (!order_count(s, count.begun_ms)) /* there is more than was counted */
        count_here(s);
}

void hutch_supervisor_take_count(struct supervisor *s, uint64_t bytes, uint64_t entries, double took_ms,
                                 const struct hutch_err *why)
{
    const struct collect_bounds bounds = data_bounds(s);
    struct data_count count = { .bytes = bytes, .entries = entries, .begun_ms = hutch_clock_ms() - took_ms };

    if (!s->is_counting) /* it was given up */
        return;
    s->is_counting = false;
    note_count(s, &count, bounds.max_walked, why);
}

void hutch_supervisor_lose_count(struct supervisor *s)
{
    s->is_counting = false;
    s->next_data = hutch_clock_ms();
}

static void check_cpu(struct supervisor *s)
{
    uint64_t used_us = hutch_cgroup_read_cpu(&s->sandbox->cgroup);

    if (used_us != UINT64_MAX && used_us / 1000 > s->limits[LIMIT_CPU_TIME])
        hutch_supervisor_end(s, END_CPU_TIME);
    s->next_cpu = hutch_clock_ms() + CPU_INTERVAL_MS;
}

int hutch_supervisor_clocks(struct supervisor *s)
{
    const uint64_t *limits = s->limits;
    double now = hutch_clock_ms(), next = now + 60000;

    if (s->t_started == 0) {
        if (now - s->t0 > SETUP_TIMEOUT_MS) {
            hutch_err_set(&s->setup_err, ETIMEDOUT, "wait for the sandbox to get ready");
            s->setup_failed = true;
            hutch_supervisor_end(s, END_SETUP);
        }
        return 1000;
    }
    if (limits[LIMIT_WALL]) {
        double deadline = s->t_started + (double)limits[LIMIT_WALL];

        if (now >= deadline && s->reason == END_OWN)
            end_softly(s, END_TIMEOUT, s->timeout_signal ? s->timeout_signal : SIGTERM, (double)s->grace_ms);
        else if (s->reason == END_OWN && deadline < next)
            next = deadline;
    }
    if (s->kill_at > 0) {
        if (now >= s->kill_at)
            hutch_supervisor_end(s, s->reason);
        else if (s->kill_at < next)
            next = s->kill_at;
    }
    if (s->killed_at > 0) {
        if (now >= s->killed_at + GONE_AFTER_KILL_MS)
            s->is_init_gone = s->is_hung = true;
        else if (s->killed_at + GONE_AFTER_KILL_MS < next)
            next = s->killed_at + GONE_AFTER_KILL_MS;
    }
    if (s->is_counting && now >= s->count_begun_ms + COUNT_MS)
        count_here(s); /* others' orders are before it, or keep it from being sent */
    if (s->is_counting && s->count_begun_ms + COUNT_MS < next)
        next = s->count_begun_ms + COUNT_MS;
    if (s->data_dirfd >= 0 && !s->is_data_bounded && !s->is_counting &&
        (limits[LIMIT_DATA_SIZE] || limits[LIMIT_DATA_FILES])) {
        if (s->next_data == 0)
            s->next_data = hutch_data_watch_begin(&s->data_watch, now);
        if (now >= s->next_data) {
            if (s->idle_ms == 0 || !was_idle(s))
                check_data(s);
            else
                s->next_data = next_idle_check(s, now);
        }
        if (!s->is_counting && s->next_data < next)
            next = s->next_data;
    }
    if (s->is_data_bounded && s->idle_ms > 0 && now >= s->next_data)
        s->next_data = next_idle_check(s, now); /* nothing is to be checked, and the owner waits for it all the same */
    if (limits[LIMIT_CPU_TIME] && s->sandbox->cgroup.dirfd >= 0) {
        if (s->next_cpu == 0)
            s->next_cpu = now + CPU_INTERVAL_MS;
        if (now >= s->next_cpu)
            check_cpu(s);
        if (s->next_cpu < next)
            next = s->next_cpu;
    }
    now = hutch_clock_ms();
    return next <= now ? 0 : (int)(next - now) + 1;
}

void hutch_supervisor_poll(const struct supervisor *s, struct pollfd p[SUPERVISOR_FDS])
{
    p[SUPERVISOR_CONTROL] = (struct pollfd){ .fd = s->is_init_gone ? -1 : s->sandbox->control_fd, .events = POLLIN };
    p[SUPERVISOR_REPORT] = (struct pollfd){ .fd = s->report_fd, .events = POLLIN };
    hutch_out_stream_poll(&s->out, &p[SUPERVISOR_OUT], &p[SUPERVISOR_OUT_SINK]);
    hutch_out_stream_poll(&s->err_out, &p[SUPERVISOR_ERR], &p[SUPERVISOR_ERR_SINK]);
    hutch_in_stream_poll(&s->in, &p[SUPERVISOR_IN_SOURCE], &p[SUPERVISOR_IN]);
}

int hutch_supervisor_turn(struct supervisor *s, const struct pollfd p[SUPERVISOR_FDS], struct hutch_err *err)
{
    if (p[SUPERVISOR_CONTROL].revents)
        hear_init(s);
    if (p[SUPERVISOR_REPORT].revents)
        read_report(s);
    hutch_in_stream_run(&s->in, &p[SUPERVISOR_IN_SOURCE], &p[SUPERVISOR_IN]);
    if (s->in.source_errno)
        hutch_supervisor_end(s, END_INPUT);
    if (s->in.pipe_errno) { /* the program has seen a part of it, and takes that for all */
        hutch_err_set(err, s->in.pipe_errno, "write the program's standard input");
        hutch_supervisor_fail(s, err);
    }
    if (hutch_out_stream_run(&s->out, &p[SUPERVISOR_OUT], &p[SUPERVISOR_OUT_SINK]) < 0 ||
        hutch_out_stream_run(&s->err_out, &p[SUPERVISOR_ERR], &p[SUPERVISOR_ERR_SINK]) < 0)
        return hutch_err_set(err, ENOMEM, "keep the program's output");
    if (s->out.is_over_limit || s->err_out.is_over_limit)
        hutch_supervisor_end(s, END_OUTPUT);
    return 0;
}

void hutch_supervisor_started(struct supervisor *s)
{
    s->t_started = hutch_clock_ms();
}

bool hutch_supervisor_is_over(const struct supervisor *s)
{
    return s->has_ended || s->is_init_gone;
}

/* The socket tells ECONNRESET when its other end was closed with orders unread. It may still be open in the process
 * that has handed it on; then the orders still lie in it. A pipe has no such count. */
static bool has_unread_orders(const struct supervisor *s)
{
    int n = 0;

    return ioctl(s->report_fd, SIOCOUTQ, &n) == 0 && n > 0;
}

void hutch_supervisor_drain(struct supervisor *s)
{
    bool is_unread = s->report_fd >= 0 && has_unread_orders(s);

    hutch_in_stream_close(&s->in);
    s->is_init_gone = true;
    hutch_out_stream_finish(&s->out);
    hutch_out_stream_finish(&s->err_out);
    if (s->report_fd >= 0)
        read_report(s);
    if (is_unread)
        s->report_errno = ECONNRESET;
    close_report(s);
}

bool hutch_supervisor_is_drained(const struct supervisor *s)
{
    return hutch_out_stream_is_done(&s->out) && hutch_out_stream_is_done(&s->err_out);
}

void hutch_supervisor_admit_loss(struct supervisor *s, const struct hutch_err *err)
{
    s->result->files.truncated = true;
    if (!s->result->message[0])
        snprintf(s->result->message, sizeof(s->result->message), "%s", err->msg);
}

struct collect_bounds hutch_supervisor_last_bounds(const struct supervisor *s)
{
    struct collect_bounds bounds = data_bounds(s);

    bounds.is_at_rest = true;
    return bounds;
}

void hutch_supervisor_take_last(struct supervisor *s, uint64_t bytes, uint64_t entries)
{
    s->is_data_over = is_data_over(s, bytes, entries);
    if (s->is_data_over && s->reason == END_OWN)
        s->reason = END_DATA;
}

bool hutch_supervisor_count_last(struct supervisor *s, uint64_t max_walked)
{
    struct collect_bounds bounds = hutch_supervisor_last_bounds(s);
    struct hutch_err why;
    uint64_t bytes, entries;
    struct statvfs fs;

    if (s->data_dirfd < 0 || s->setup_failed)
        return true;
    if (s->is_data_bounded && fstatvfs(s->data_dirfd, &fs) == 0)
        s->is_data_full = fs.f_bfree == 0 || fs.f_ffree == 0;
    if (max_walked > 0) { /* and no sooner: whether there is more is the question */
        bounds.max_walked = max_walked;
        bounds.usage_bytes = bounds.usage_entries = 0;
    }
    else if (!s->limits[LIMIT_DATA_SIZE] && !s->limits[LIMIT_DATA_FILES])
        return true;
    if (hutch_collect_usage(s->data_dirfd, &bounds, &bytes, &entries, &why) < 0)
        hutch_supervisor_admit_loss(s, &why);
    else if (max_walked > 0 && entries >= max_walked)
        return false;
    else
        hutch_supervisor_take_last(s, bytes, entries);
    return true;
}

void hutch_supervisor_admit_lost_files(struct supervisor *s, const struct hutch_err *err)
{
    hutch_supervisor_admit_loss(s, err);
    if (s->result->verdict != HUTCH_OK)
        return;
    s->result->verdict = HUTCH_KILLED;
    s->result->has_hutch_failed = true;
    snprintf(s->result->message, sizeof(s->result->message), "the files of the run are lost: %.440s", err->msg);
}

void hutch_supervisor_collect(struct supervisor *s, int data_dirfd, const struct file_list *before)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    struct hutch_err why;

    if (s->setup_failed || hutch_collect_changes(data_dirfd, before, &bounds, &s->result->files, &why) == 0)
        return;
    hutch_err_wrap(&why, "collect the files of the run");
    hutch_supervisor_admit_loss(s, &why);
}
