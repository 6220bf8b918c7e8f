#include "runtime/engine/engine_priv.h"

#include "runtime/run/verdict.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/log.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define REFILL_AFTER_MS 2 /* short runs have the processor to themselves */
#define INPUT_TURNS 16
#define DRAIN_TURNS 64    /* times STREAM_BUF: more than a pipe can hold */

void hutch_run_free(struct engine_run *run)
{
    if (!run)
        return;
    hutch_interpreter_free(run->interpreter);
    hutch_cell_run_free(run->cell_run);
    free(run->job);
    free(run->input);
    hutch_fd_closep(&run->source_fd);
    free(run->data_dir);
    hutch_file_list_done(&run->before);
    hutch_result_done(&run->result);
    hutch_template_unref(run->template);
    free(run);
}

/* --- results ------------------------------------------------------------------------------------------------------ */

static void fill_public(const struct engine_run *run, struct hutch_run_details *details, struct hutch_result *ret)
{
    hutch_result_publish(&run->result, details, ret);
    ret->was_prepared = run->was_prepared;
    ret->restarts = (int)run->restarts;
    ret->zygote = run->is_exec ? NULL : run->engine->confs[run->zygote_index].name;
    ret->cell = run->cell_run ? hutch_cell_run_result(run->cell_run) : NULL;
}

/* The last that is done for a run. */
static void deliver(struct engine_run *run)
{
    struct hutch_engine *engine = run->engine;
    struct hutch_run_details details;
    struct hutch_result result;

    if (run->stage == RUN_ENDING) {
        TAILQ_REMOVE(&engine->ending, run, link);
    } else {
        TAILQ_REMOVE(&engine->active, run, link);
        engine->n_active--;
    }
    engine->finished++;
    run->result.total_ms = hutch_clock_ms() - run->t_submitted;
    if (run->cell_run)
        hutch_cell_run_finish(run->cell_run);
    fill_public(run, &details, &result);
    if (run->on_result)
        run->on_result(run->user, run->id, &result);
    hutch_run_free(run);
}

void hutch_run_deliver_ending(struct hutch_engine *engine)
{
    struct engine_run *last = TAILQ_LAST(&engine->ending, run_list), *run;

    if (!last)
        return;
    do { /* no further than that: a callback may add to them */
        run = TAILQ_FIRST(&engine->ending);
        deliver(run);
    } while (run != last);
}

static void leave_pool(struct engine_run *run)
{
    struct pool *pool = &run->engine->pools[run->zygote_index];

    if (!run->is_in_pool)
        return;
    TAILQ_REMOVE(&pool->waiting, run, waiting);
    run->is_in_pool = false;
    pool->n_waiting--;
}

/* Out of whatever it is in, with the result that it has by now; delivered by the next dispatch. */
static void end(struct engine_run *run)
{
    struct hutch_engine *engine = run->engine;

    if (run->stage == RUN_ENDING)
        return;
    leave_pool(run);
    if (run->stage == RUN_QUEUED) {
        TAILQ_REMOVE(&engine->queue, run, link);
        engine->n_queued--;
    } else {
        TAILQ_REMOVE(&engine->active, run, link);
        engine->n_active--;
    }
    run->stage = RUN_ENDING;
    TAILQ_INSERT_TAIL(&engine->ending, run, link);
    hutch_loop_wake(&engine->loop);
}

static void say(struct engine_run *run, enum hutch_verdict verdict, int exit_code, const char *message)
{
    double now = hutch_clock_ms();
    struct run_result *r = &run->result;

    r->verdict = verdict;
    r->exit_code = exit_code;
    snprintf(r->message, sizeof(r->message), "%s", message);
    r->queued_ms = (run->t_active > 0 ? run->t_active : now) - run->t_submitted;
    r->prepared_ms = run->t_active > 0 ? now - run->t_active : 0;
    for (size_t i = 0; i < LIMIT_COUNT; i++)
        r->limits[i].asked = run->limits[i];
}

void hutch_run_refuse(struct engine_run *run, const struct hutch_err *why)
{
    if (run->session) {
        leave_pool(run);
        hutch_session_on_refused(run->session, why);
        return;
    }
    say(run, HUTCH_SETUP_FAILED, 125, why->msg);
    end(run);
}

void hutch_run_withdraw(struct engine_run *run)
{
    leave_pool(run);
    if (run->slot)
        hutch_slot_discard(run->slot);
}

void hutch_run_cancel(struct engine_run *run)
{
    if (run->stage == RUN_ENDING)
        return;
    run->is_cancelled = true;
    if (run->stage == RUN_RUNNING) {
        hutch_supervisor_end(run->slot->supervisor, END_CANCELLED);
        return;
    }
    hutch_run_withdraw(run);
    say(run, HUTCH_KILLED, -1, "the run was cancelled before it began");
    end(run);
}

int hutch_run_signal(struct hutch_engine *engine, uint64_t id, int sig)
{
    struct engine_run *run;

    TAILQ_FOREACH(run, &engine->active, link)
        if (run->id == id && run->stage == RUN_RUNNING) {
            hutch_supervisor_pass_signal(run->slot->supervisor, sig);
            hutch_loop_advance_deadline(&engine->loop, &run->slot->clock, 0); /* its patience has an end */
            return 1;
        }
    return hutch_engine_cancel(engine, id);
}

/* --- the end of a run ---------------------------------------------------------------------------------------------- */

/* Nothing in it, not even what was there and is gone: then there is nothing to say and nothing to keep. */
static bool is_empty(int dirfd)
{
    char entries[1024] __attribute__((aligned(8)));

    return syscall(SYS_getdents64, dirfd, entries, sizeof(entries)) == 48; /* "." and "..", 24 bytes each */
}

static void collect(struct slot *slot)
{
    struct engine_run *run = slot->run;
    struct hutch_engine *engine = slot->engine;
    struct run_result *r = &run->result;
    char id[STATE_ID_LEN + 1];
    struct hutch_err why;

    hutch_supervisor_collect(slot->supervisor, slot->data_dirfd, &run->before);
    if (run->data_dir) {
        if (hutch_spec_set_string(&r->directory, run->data_dir, &why) < 0)
            hutch_supervisor_admit_loss(slot->supervisor, &why);
        return;
    }
    if (!run->keep_data || (r->files.added.n == 0 && !r->files.truncated))
        return;
    snprintf(id, sizeof(id), "%.8s%08x", engine->state.id, slot->id);
    if (hutch_state_keep_directory(&engine->state, engine->data_root_fd, slot->data_name, id, &r->directory, &why) < 0)
        hutch_supervisor_admit_loss(slot->supervisor, &why);
}

static void judge(struct slot *slot)
{
    struct supervisor *s = slot->supervisor;
    struct engine_run *run = slot->run;
    struct sandbox_end end_of_slot = { .usage = s->usage };
    const struct sandbox_cgroup *cg = &slot->sb.cgroup;
    const struct sandbox_cgroup none = CGROUP_INIT;
    struct hutch_err err;

    /* Its numbers take some reads; where no controller counts there are none worth that. */
    if (slot->has_usage)
        end_of_slot.cgroup = slot->usage;
    else
        hutch_cgroup_read_usage(cg->controllers ? cg : &none, &end_of_slot.cgroup);
    if (hutch_verdict_decide(s, &end_of_slot, &err) < 0)
        hutch_log_debug("engine: %s", err.msg);
    if (s->has_ended)
        return;
    /* It was killed, and who reaps it may not have said a word. A sample has user and system together. */
    if (end_of_slot.cgroup.cpu_user_us == UINT64_MAX && !slot->is_reaped) {
        run->result.cpu_user_ms = s->last.cpu_ms ? s->last.cpu_ms : HUTCH_UNKNOWN;
        run->result.cpu_system_ms = s->last.cpu_ms ? 0 : HUTCH_UNKNOWN;
    }
    if (run->result.memory_peak_bytes == 0)
        run->result.memory_peak_bytes = HUTCH_UNKNOWN;
}

static void finish(struct slot *slot, bool has_files)
{
    struct engine_run *run = slot->run;

    hutch_watch_remove(&slot->source); /* its descriptor is closed with the run */
    judge(slot);
    if (run->session) {
        run->slot = NULL;
        hutch_session_on_death(run->session);
    } else {
        if (has_files)
            collect(slot);
        deliver(run);
    }
    slot->run = NULL;
    hutch_slot_discard(slot);
}

void hutch_run_on_death(struct slot *slot)
{
    finish(slot, slot->supervisor->has_ended || slot->run->data_dir || !is_empty(slot->data_dirfd));
}

static void on_death(struct watch *w, uint32_t events)
{
    (void)events;
    hutch_run_on_death(w->owner);
}

void hutch_run_await_death(struct slot *slot)
{
    struct hutch_err err;

    if (hutch_watch_add(&slot->death, &slot->engine->loop, slot->sb.pidfd, EPOLLIN, on_death, slot, &err) < 0)
        hutch_run_on_death(slot);
}

static void drain(struct supervisor *s)
{
    struct hutch_err err;

    hutch_supervisor_drain(s);
    for (int i = 0; i < DRAIN_TURNS && !hutch_supervisor_is_drained(s); i++) {
        struct pollfd p[SUPERVISOR_FDS];

        hutch_supervisor_poll(s, p);
        p[SUPERVISOR_OUT].revents = p[SUPERVISOR_ERR].revents = POLLIN;
        if (hutch_supervisor_turn(s, p, &err) < 0)
            break;
    }
}

/* An interpreter that ended by itself before it could execute a cell will do so again; one that was killed will not. */
static void fail_interpreter(struct slot *slot)
{
    struct supervisor *s = slot->supervisor;
    struct engine_run *run = slot->run;
    struct hutch_err why;
    const char *words;

    if (!s->has_ended || !WIFEXITED(s->status)) {
        hutch_slot_fail(slot, NULL);
        return;
    }
    words = run->interpreter->why[0] ? run->interpreter->why : run->interpreter->last_words;
    hutch_err_set(&why, 0, "the interpreter ended with exit code %d before it could execute a cell%s%s", WEXITSTATUS(s->status),
                  words[0] ? ": " : "", words);
    hutch_slot_discard(slot);
    hutch_run_refuse(run, &why);
}

static void be_over(struct slot *slot)
{
    struct supervisor *s = slot->supervisor;
    struct engine_run *run = slot->run;
    bool has_begun = s->t_started > 0 && !s->setup_failed;

    drain(s);
    if (run->interpreter) {
        hutch_interpreter_finish(run->interpreter);
        if (!run->interpreter->is_ready && s->reason == END_OWN) { /* no code of anybody's has run */
            fail_interpreter(slot);
            return;
        }
    }
    /* Killed before anything was executed; or before the worker had read its job, which the socket remembers, and the program could not
     * bring about once it is read. */
    if (((!has_begun && !s->setup_failed) || s->report_errno == ECONNRESET || slot->lost_job) && s->reason == END_OWN &&
        s->out.seen == 0 && s->err_out.seen == 0) {
        hutch_slot_fail(slot, NULL);
        return;
    }
    if (!has_begun || (s->has_ended && !run->data_dir && is_empty(slot->data_dirfd))) {
        finish(slot, false);
        return;
    }
    /* Files are looked at when nobody is left who could change them; and what a killed program used, only who reaps it knows. */
    hutch_sandbox_kill(&slot->sb);
    if (slot->sb.cgroup.controllers && !s->has_ended) { /* reaping it takes the cgroup away, and with it the word on who killed */
        hutch_cgroup_read_usage(&slot->sb.cgroup, &slot->usage);
        slot->has_usage = true;
    }
    hutch_slot_set_state(slot, SLOT_DYING);
    if (s->has_ended || !hutch_slot_reap(slot))
        hutch_run_await_death(slot);
}

/* --- its execution ---------------------------------------------------------------------------------------------------- */

static void on_data(void *user, const struct out_stream *s, const char *data, size_t len)
{
    struct slot *slot = user;
    struct engine_run *run = slot->run;

    if (run->interpreter)
        hutch_interpreter_hear(run->interpreter, s == &slot->supervisor->out ? 1 : 2, data, len);
    else
        run->on_output(run->user, run->id, s == &slot->supervisor->out ? 1 : 2, data, len);
}

static void send_job(struct slot *slot)
{
    const struct engine_run *run = slot->run;

    while (slot->job_sent < run->job_len && slot->supervisor->report_fd >= 0) {
        ssize_t n = TEMP_FAILURE_RETRY(send(slot->supervisor->report_fd, run->job + slot->job_sent, run->job_len - slot->job_sent,
                                            MSG_NOSIGNAL | MSG_DONTWAIT));

        if (n < 0 && errno == EAGAIN) {
            hutch_watch_change(&slot->job, EPOLLIN | EPOLLOUT | EPOLLET);
            return;
        }
        if (n < 0) { /* it is dead: init tells */
            slot->lost_job = true;
            break;
        }
        slot->job_sent += (size_t)n;
    }
    hutch_watch_change(&slot->job, EPOLLIN | EPOLLET);
}

static void pump_input(struct slot *slot);

static void on_input(struct watch *w, uint32_t events)
{
    struct slot *slot = w->owner;

    if (slot->run->source_fd >= 0)
        pump_input(slot);
    else
        hutch_run_turn(slot, SUPERVISOR_IN, events & EPOLLERR ? POLLERR : POLLOUT);
}

/* As much as goes from the source to the program without waiting. The source may be a file, which an epoll set does not take: what
 * can be read is asked of poll(2), and the set wakes us for the rest. */
static void pump_input(struct slot *slot)
{
    struct in_stream *in = &slot->supervisor->in;
    struct hutch_err err;

    for (int i = 0; i < INPUT_TURNS && in->pipe_fd >= 0; i++) {
        struct pollfd p[2];

        hutch_in_stream_poll(in, &p[0], &p[1]);
        if (poll(p, ARRAY_SIZE(p), 0) <= 0)
            break;
        slot->run->has_read_source |= p[0].revents != 0;
        hutch_in_stream_run(in, &p[0], &p[1]);
        if (in->source_errno) {
            hutch_supervisor_end(slot->supervisor, END_INPUT);
            break;
        }
    }
    hutch_watch_remove(&slot->source);
    if (in->pipe_fd < 0 || in->source_errno)
        return;
    if (slot->in.fd < 0 && hutch_watch_add(&slot->in, &slot->engine->loop, in->pipe_fd, 0, on_input, slot, &err) < 0)
        hutch_log_debug("engine: %s", err.msg);
    if (in->end > in->start || hutch_watch_add(&slot->source, &slot->engine->loop, in->source_fd, EPOLLIN, on_input, slot, &err) < 0)
        hutch_watch_change(&slot->in, EPOLLOUT);
    else
        hutch_watch_change(&slot->in, 0); /* that nobody reads any more is always told */
}

/* What the pipe takes at once, and the rest when there is room. */
static void send_input(struct slot *slot)
{
    struct supervisor *s = slot->supervisor;
    struct pollfd none = { .fd = -1 }, p = { .fd = s->in.pipe_fd, .revents = POLLOUT };
    struct hutch_err err;

    if (slot->run->source_fd >= 0) {
        s->in.source_fd = slot->run->source_fd;
        pump_input(slot);
        return;
    }
    s->in.text = slot->run->input;
    s->in.end = slot->run->input_len;
    hutch_in_stream_run(&s->in, &none, &p);
    if (s->in.pipe_fd >= 0 &&
        hutch_watch_add(&slot->in, &slot->engine->loop, s->in.pipe_fd, EPOLLOUT, on_input, slot, &err) < 0)
        hutch_in_stream_close(&s->in);
}

void hutch_run_begin(struct slot *slot)
{
    struct hutch_engine *engine = slot->engine;
    struct engine_run *run = slot->run;
    struct supervisor *s = slot->supervisor;
    struct hutch_err err;
    double now;
    ssize_t n;

    s->t0 = run->t_active;
    s->sandbox = &slot->sb;
    s->result = &run->result;
    s->data_dirfd = slot->data_dirfd;
    s->out.capture = &run->result.out;
    s->err_out.capture = &run->result.err_out;
    if (run->on_output || run->session || run->cell_run)
        s->out.on_data = s->err_out.on_data = on_data;
    hutch_supervisor_set_limits(s, run->limits, run->grace_ms);
    if (run->input_len > 0) /* before its code, so that it is there when the code looks, as with a file for standard input */
        send_input(slot);
    if (!slot->is_exec) {
        if (hutch_sandbox_order(&slot->sb, INIT_START, slot->holder_pid, -1) < 0) {
            hutch_slot_fail(slot, NULL);
            return;
        }
        if (run->session || run->cell_run) {
            if ((run->session ? hutch_session_begin(run->session, slot, &err) : hutch_cell_run_begin(run->cell_run, slot, &err)) < 0) {
                hutch_slot_fail(slot, &err);
                return;
            }
        } else {
            n = send(s->report_fd, run->job, run->job_len, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0 && errno != EAGAIN) {
                hutch_slot_fail(slot, NULL);
                return;
            }
            slot->job_sent = n > 0 ? (size_t)n : 0;
            if (slot->job_sent < run->job_len)
                hutch_watch_change(&slot->job, EPOLLIN | EPOLLOUT | EPOLLET);
        }
        hutch_supervisor_started(s);
    }
    /* From here on its code may run. */
    run->stage = RUN_RUNNING;
    hutch_slot_set_state(slot, SLOT_RUNNING);
    if (run->input_len == 0)
        send_input(slot);
    run->result.queued_ms = run->t_active - run->t_submitted;
    hutch_supervisor_note_limits(s, &slot->template->spec);
    if (run->lowers_cpu)
        run->result.limits[LIMIT_CPU_TIME].enforcers |= 1u << ENFORCER_RLIMIT;
    if (run->lowers_file_size)
        run->result.limits[LIMIT_FILE_SIZE].enforcers |= 1u << ENFORCER_RLIMIT;
    now = hutch_clock_ms();
    hutch_loop_set_deadline(&engine->loop, &slot->clock, now + (slot->pool ? REFILL_AFTER_MS : hutch_supervisor_clocks(s)));
    if (slot->pool)
        hutch_loop_advance_deadline(&engine->loop, &slot->pool->clock, now + REFILL_AFTER_MS);
}

void hutch_run_turn(struct slot *slot, int which, short revents)
{
    struct supervisor *s = slot->supervisor;
    struct pollfd p[SUPERVISOR_FDS];
    struct hutch_err err;

    if (which == SUPERVISOR_REPORT && revents & POLLOUT)
        send_job(slot);
    for (size_t i = 0; i < SUPERVISOR_FDS; i++)
        p[i] = (struct pollfd){ .fd = -1 };
    p[which] = (struct pollfd){ .fd = 0, .revents = revents }; /* the number does not matter, as long as it is one */
    if (hutch_supervisor_turn(s, p, &err) < 0)
        hutch_supervisor_end(s, END_OUTPUT);
    if (hutch_supervisor_is_over(s))
        be_over(slot);
    else if (s->has_followed)
        hutch_checkpoint_turn(slot->run->session);
    else if (s->rest_ms > 0) /* it may have stirred */
        hutch_loop_advance_deadline(&slot->engine->loop, &slot->clock, s->next_data);
}

/* --- before it ------------------------------------------------------------------------------------------------------ */

void hutch_run_activate(struct engine_run *run)
{
    struct hutch_engine *engine = run->engine;
    struct hutch_err err;

    run->stage = RUN_WAITING;
    if (run->t_active == 0)
        run->t_active = hutch_clock_ms();
    if (engine->is_broken) {
        hutch_run_refuse(run, &engine->why);
    } else if (!run->template) {
        hutch_pool_ask(&engine->pools[run->zygote_index], run);
    } else {
        engine->on_demand++;
        if (!hutch_slot_create(engine, NULL, run->template, run->zygote_index, run, &err))
            hutch_run_refuse(run, &err);
    }
}

void hutch_run_restart(struct engine_run *run, const struct hutch_err *why)
{
    struct hutch_engine *engine = run->engine;
    struct hutch_err err;

    if (run->stage == RUN_ENDING)
        return;
    if (run->strikes > ENGINE_MAX_RESTARTS || run->has_read_source || engine->is_broken) {
        if (why)
            err = *why;
        else
            hutch_err_set(&err, 0, "its sandbox was broken from outside, %u times%s", run->strikes,
                          run->has_read_source ? ", after some of its input had been read" : "");
        hutch_run_refuse(run, engine->is_broken && !why ? &engine->why : &err);
        return;
    }
    run->restarts++;
    engine->restarted++;
    hutch_file_list_done(&run->before);
    hutch_interpreter_free(run->interpreter);
    run->interpreter = NULL;
    hutch_run_activate(run);
}

void hutch_run_start_queued(struct hutch_engine *engine)
{
    while (engine->n_active < engine->max_running && !TAILQ_EMPTY(&engine->queue)) {
        struct engine_run *run = TAILQ_FIRST(&engine->queue);

        TAILQ_REMOVE(&engine->queue, run, link);
        engine->n_queued--;
        TAILQ_INSERT_TAIL(&engine->active, run, link);
        engine->n_active++;
        hutch_run_activate(run);
    }
}

void hutch_run_enqueue(struct engine_run *run)
{
    struct hutch_engine *engine = run->engine;

    run->stage = RUN_QUEUED;
    TAILQ_INSERT_TAIL(&engine->queue, run, link);
    engine->n_queued++;
    hutch_run_start_queued(engine);
}
