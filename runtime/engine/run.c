#include "runtime/engine/run.h"

#include "runtime/engine/file_memory.h"
#include "runtime/engine/run_files.h"
#include "runtime/engine/run_limits.h"
#include "runtime/engine/run_queue.h"
#include "runtime/engine/slot_data.h"
#include "runtime/run/verdict.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REFILL_AFTER_MS 2 /* short runs have the processor to themselves */
#define DRAIN_TURNS 64    /* times STREAM_BUF: more than a pipe can hold */

static const struct slot_events slot_events;

/* --- life --------------------------------------------------------------------------------------------------------- */

/* It has what it wanted, or wants it no more. */
static void stop_clock(struct engine_run *run)
{
    run->t_waiting = 0;
    hutch_loop_set_deadline(&run->runs->core->loop, &run->clock, LOOP_NEVER);
}

static void refuse(struct engine_run *run, const struct hutch_err *why)
{
    stop_clock(run);
    run->kind->refuse(run, why);
}

static void on_slot(void *owner, struct slot *slot)
{
    struct engine_run *run = owner;

    run->slot = slot;
    hutch_slot_take(slot, run->data_dir, run->volume, &slot_events, run);
}

static void on_no_slot(void *owner, const struct hutch_err *why)
{
    struct engine_run *run = owner;

    refuse(run, why);
}

static void on_input_room(void *owner, short revents);
static void on_due(void *owner, double now);

struct engine_run *hutch_run_create(struct runs *runs, uint64_t tenant, unsigned weight)
{
    struct engine_run *run = calloc(1, sizeof(*run));

    if (!run)
        return NULL;
    run->tenant = hutch_tenant_join(&runs->tenants, tenant, weight);
    if (!run->tenant) {
        free(run);
        return NULL;
    }
    run->runs = runs;
    run->wait = (struct pool_wait){ .on_slot = on_slot, .on_refused = on_no_slot, .owner = run };
    run->input = (struct run_input)RUN_INPUT_INIT;
    run->input.on_room = on_input_room;
    run->input.owner = run;
    hutch_run_files_init(run);
    run->clock = (struct deadline)DEADLINE_INIT(on_due, run);
    hutch_result_init(&run->result);
    return run;
}

void hutch_run_free(struct engine_run *run)
{
    if (!run)
        return;
    if (run->kind && run->kind->free)
        run->kind->free(run);
    hutch_pool_leave(&run->wait);
    hutch_look_cancel(&run->look);
    stop_clock(run);
    hutch_input_done(&run->input);
    free(run->job);
    free(run->data_dir);
    hutch_run_files_done(run);
    hutch_run_transfer_done(&run->transfer);
    hutch_result_done(&run->result);
    hutch_template_unref(run->template);
    hutch_tenant_leave(run->tenant);
    hutch_loop_free_later(&run->runs->core->loop, &run->doomed, run, free);
}

void hutch_run_leave_slot(struct engine_run *run)
{
    hutch_input_stop(&run->input);
    hutch_look_cancel(&run->look);
    run->slot = NULL;
}

/* --- results ------------------------------------------------------------------------------------------------------ */

static void fill_public(const struct engine_run *run, struct hutch_run_details *details, struct hutch_result *ret)
{
    hutch_result_publish(&run->result, details, ret);
    ret->was_prepared = run->was_prepared;
    ret->restarts = (int)run->restarts;
    ret->fetched = run->transfer.fetched;
    ret->n_fetched = run->transfer.n_fetched;
    ret->zygote = run->is_exec ? NULL : run->runs->pools->configs->list[run->zygote_index].name;
}

/* The last that is done for a run. */
static void deliver(struct engine_run *run)
{
    struct runs *runs = run->runs;
    const struct hutch_cell_result *cell = NULL;
    struct hutch_run_details details;
    struct hutch_result result;

    if (run->stage == RUN_ENDING)
        TAILQ_REMOVE(&runs->ending, run, link);
    else
        hutch_run_leave_place(run);
    runs->finished++;
    run->result.total_ms = hutch_clock_ms() - run->t_submitted;
    if (run->kind->finish)
        cell = run->kind->finish(run);
    fill_public(run, &details, &result);
    result.cell = cell;
    if (run->on_result)
        run->on_result(run->user, run->id, &result);
    hutch_run_free(run);
}

void hutch_runs_deliver_ending(struct runs *runs)
{
    struct engine_run *last = TAILQ_LAST(&runs->ending, run_list), *run;

    if (!last)
        return;
    do { /* no further than that: a callback may add to them */
        run = TAILQ_FIRST(&runs->ending);
        deliver(run);
    } while (run != last);
}

/* Out of whatever it is in, with the result that it has by now; delivered by the next turn. */
static void end(struct engine_run *run)
{
    struct runs *runs = run->runs;

    if (run->stage == RUN_ENDING)
        return;
    hutch_pool_leave(&run->wait);
    stop_clock(run);
    if (run->stage == RUN_QUEUED)
        hutch_run_leave_queue(run);
    else
        hutch_run_leave_place(run);
    run->stage = RUN_ENDING;
    TAILQ_INSERT_TAIL(&runs->ending, run, link);
    hutch_loop_wake(&runs->core->loop);
}

/* The result of a run whose code never ran. */
static void write_result(struct engine_run *run, enum hutch_verdict verdict, int exit_code, const char *message)
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

void hutch_run_fail(struct engine_run *run, const struct hutch_err *why)
{
    write_result(run, HUTCH_SETUP_FAILED, 125, why->msg);
    end(run);
}

/* A sandbox of the pool went before the run began. */
static void refill_pool(const struct engine_run *run)
{
    if (!run->template)
        hutch_pool_refill_in(run->runs->pools, run->pool_index, 0);
}

void hutch_run_withdraw(struct engine_run *run)
{
    struct slot *slot = run->slot;

    hutch_pool_leave(&run->wait);
    stop_clock(run);
    if (!slot)
        return;
    hutch_run_leave_slot(run);
    hutch_slot_discard(slot);
    refill_pool(run);
}

void hutch_run_cancel(struct engine_run *run)
{
    if (run->stage == RUN_ENDING)
        return;
    run->is_cancelled = true;
    if (run->stage == RUN_RUNNING) {
        hutch_slot_stop(run->slot, END_CANCELLED);
        return;
    }
    hutch_run_withdraw(run);
    write_result(run, HUTCH_KILLED, -1, "the run was cancelled before it began");
    end(run);
}

void hutch_run_signal(struct engine_run *run, int sig)
{
    if (run->stage != RUN_RUNNING) {
        hutch_run_cancel(run);
        return;
    }
    hutch_supervisor_pass_signal(run->slot->supervisor, sig);
    hutch_loop_advance_deadline(&run->runs->core->loop, &run->slot->clock, 0); /* its patience has an end */
}

/* --- the end of a run --------------------------------------------------------------------------------------------- */

static void judge(struct engine_run *run)
{
    struct slot *slot = run->slot;
    struct supervisor *s = slot->supervisor;
    struct sandbox_end end_of_slot = { .usage = s->usage };
    const struct sandbox_cgroup *cg = &slot->sb.cgroup;
    const struct sandbox_cgroup none = CGROUP_INIT;
    struct hutch_err err;

    /* Its numbers take some reads; where no controller counts there are none worth that. */
    if (slot->has_usage)
        end_of_slot.cgroup = slot->usage;
    else
        hutch_cgroup_read_usage(cg->controllers ? cg : &none, &end_of_slot.cgroup);
    /* 0 where the group is gone already */
    end_of_slot.cgroup.oom_kills -= s->told_oom_kills < end_of_slot.cgroup.oom_kills ? s->told_oom_kills
                                                                                     : end_of_slot.cgroup.oom_kills;
    if (hutch_verdict_decide(s, &end_of_slot, &err) < 0 && !run->result.message[0])
        snprintf(run->result.message, sizeof(run->result.message), "%s", err.msg);
    if (s->has_ended)
        return;
    /* It was killed, and the one that reaps it may not have said a word. A sample has user and system together. */
    if (end_of_slot.cgroup.cpu_user_us == UINT64_MAX && !slot->is_reaped) {
        run->result.cpu_user_ms = s->last.cpu_ms ? s->last.cpu_ms : HUTCH_UNKNOWN;
        run->result.cpu_system_ms = s->last.cpu_ms ? 0 : HUTCH_UNKNOWN;
    }
    if (run->result.memory_peak_bytes == 0)
        run->result.memory_peak_bytes = HUTCH_UNKNOWN;
}

void hutch_run_deliver(struct engine_run *run, bool has_files)
{
    if (has_files)
        hutch_run_files_collect(run);
    hutch_run_transfer_fetch(run, has_files);
    hutch_input_stop(&run->input);
    deliver(run);
}

static void finish(struct engine_run *run, bool has_files)
{
    struct slot *slot = run->slot;

    judge(run);
    run->kind->die(run, has_files); /* which leaves the slot */
    hutch_slot_discard(slot);
}

static void on_landed(struct engine_run *run, const struct hutch_err *why)
{
    (void)why; /* the run has it */
    finish(run, true);
}

static void land_files(struct engine_run *run)
{
    if (hutch_run_files_land(run, on_landed))
        finish(run, true);
}

static void on_looked(struct engine_run *run, const struct hutch_err *why)
{
    (void)why;
    land_files(run);
}

void hutch_run_looked(struct engine_run *run, const struct disk_reply *reply)
{
    hutch_run_files_take_count(run, reply);
    finish(run, true);
}

static void on_dead(void *owner, struct slot *slot)
{
    struct engine_run *run = owner;
    bool has_files = slot->supervisor->has_ended || run->data_dir || !hutch_run_files_are_none(run);

    if (!has_files)
        finish(run, false);
    else if (run->on_look == on_landed || hutch_run_files_look(run, on_looked)) /* landing: this is a second call */
        land_files(run);
}

static void drain(struct supervisor *s)
{
    struct hutch_err err;

    hutch_supervisor_drain(s);
    for (int i = 0; i < DRAIN_TURNS && !hutch_supervisor_is_drained(s); i++) {
        struct pollfd p[SUPERVISOR_FDS];

        hutch_supervisor_poll(s, p);
        p[SUPERVISOR_OUT].revents = p[SUPERVISOR_ERR].revents = POLLIN;
        if (hutch_supervisor_turn(s, p, &err) < 0) {
            hutch_supervisor_fail(s, &err);
            break;
        }
    }
}

static void restart(struct engine_run *run, const struct hutch_err *why)
{
    struct core *core = run->runs->core;
    struct hutch_err err;

    if (run->stage == RUN_ENDING)
        return;
    if (run->strikes > CORE_MAX_RESTARTS || run->input.has_read_source || core->is_broken) {
        if (why) {
            err = *why;
        } else {
            hutch_err_set(&err, 0, "its sandbox was broken from outside, %u times%s", run->strikes,
                          run->input.has_read_source ? ", after some of its input had been read" : "");
            hutch_core_blame_hung(core, run->t_active, &err);
        }
        refuse(run, core->is_broken && !why ? &core->why : &err);
        return;
    }
    run->restarts++;
    run->runs->restarted++;
    hutch_run_files_done(run);
    if (run->kind->reset)
        run->kind->reset(run);
    hutch_run_activate(run);
}

static void on_failed(void *owner, struct slot *slot, const struct hutch_err *why)
{
    struct engine_run *run = owner;
    struct pools *pools = run->runs->pools;
    unsigned index = run->pool_index;
    bool is_from_pool = !run->template;

    hutch_run_leave_slot(run);
    /* Those that were there before may have been killed together, and there is an end to them. */
    if (slot->t_prepared == 0 || slot->t_prepared > run->t_active)
        run->strikes++;
    restart(run, why);
    if (is_from_pool)
        hutch_pool_refill_in(pools, index, 0);
}

static void on_refused(void *owner, struct slot *slot, const struct hutch_err *why)
{
    struct engine_run *run = owner;

    (void)slot;
    hutch_run_leave_slot(run);
    refill_pool(run);
    refuse(run, why);
}

/* Nothing more comes from the sandbox but the death of its processes. */
static void be_over(struct engine_run *run)
{
    struct slot *slot = run->slot;
    struct supervisor *s = slot->supervisor;
    bool has_begun = s->t_started > 0 && !s->setup_failed;
    struct hutch_err why;
    enum run_outcome outcome;

    drain(s);
    outcome = run->kind->conclude(run, &why);
    if (outcome == OUTCOME_REFUSE) {
        hutch_run_withdraw(run);
        refuse(run, &why);
        return;
    }
    /* Killed before anything was executed; or before the worker had read its job, which the socket remembers, and the
     * program could not bring about once it is read. */
    if (outcome == OUTCOME_AGAIN ||
        (((!has_begun && !s->setup_failed) || s->report_errno == ECONNRESET || run->lost_job) && s->reason == END_OWN &&
         s->out.seen == 0 && s->err_out.seen == 0)) {
        hutch_slot_fail(slot, NULL);
        return;
    }
    /* Files are looked at when no process is left that could change them; and what a killed program used, only the one
     * that reaps it knows. */
    if (!has_begun || (s->has_ended && !run->data_dir && hutch_run_files_are_none(run)))
        finish(run, false);
    else
        hutch_slot_end(slot);
}

/* What its processes wrote before they were killed is in the pipes, whose other ends are still open. */
static void read_pipes(struct supervisor *s)
{
    const struct out_stream *streams[] = { &s->out, &s->err_out };
    static const int which[] = { SUPERVISOR_OUT, SUPERVISOR_ERR };

    for (size_t i = 0; i < ARRAY_SIZE(streams); i++)
        for (int turns = 0; turns < DRAIN_TURNS && streams[i]->pipe_fd >= 0; turns++) {
            struct pollfd p[SUPERVISOR_FDS];
            uint64_t seen = streams[i]->seen;
            struct hutch_err err;

            for (size_t j = 0; j < SUPERVISOR_FDS; j++)
                p[j] = (struct pollfd){ .fd = -1 };
            p[which[i]] = (struct pollfd){ .fd = 0, .revents = POLLIN };
            if (hutch_supervisor_turn(s, p, &err) < 0 || streams[i]->seen == seen)
                break;
        }
}

/* Judged as if the sandbox had ended with its worker; nothing of that stays for what comes after. */
static void be_outlived(struct engine_run *run)
{
    struct supervisor *s = run->slot->supervisor;
    struct cgroup_usage usage = { 0 };
    struct run_result *r = &run->result;

    s->was_outlived = false;
    read_pipes(s);
    s->has_ended = true;
    judge(run);
    s->has_ended = false;
    run->kind->on_outlived(run);
    if (run->slot->sb.cgroup.controllers) {
        hutch_cgroup_read_usage(&run->slot->sb.cgroup, &usage);
        s->told_oom_kills = usage.oom_kills;
    }
    r->verdict = HUTCH_OK;
    r->signal = 0;
    r->exit_code = -1;
    r->message[0] = '\0';
}

/* Nothing that was to outlive the worker is of use: its end is that of the sandbox. */
static void be_over_with_worker(struct engine_run *run)
{
    struct supervisor *s = run->slot->supervisor;

    s->was_outlived = false;
    s->has_ended = true;
    s->t_ended = hutch_clock_ms();
    be_over(run);
}

/* --- its course in a sandbox -------------------------------------------------------------------------------------- */

static void on_data(void *user, const struct out_stream *s, const char *data, size_t len)
{
    struct slot *slot = user;
    struct engine_run *run = slot->owner;

    run->kind->hear(run, s == &slot->supervisor->out ? 1 : 2, data, len);
}

static void on_process(void *user, const struct init_msg *msg)
{
    struct slot *slot = user;
    struct engine_run *run = slot->owner;

    run->kind->on_process(run, msg);
}

static void on_ready(void *owner, struct slot *slot, int which, short revents)
{
    struct engine_run *run = owner;
    struct supervisor *s = slot->supervisor;
    struct pollfd p[SUPERVISOR_FDS];
    bool had_started, was_killed, was_signalled;
    struct hutch_err err;

    if (which == SUPERVISOR_REPORT && revents & POLLOUT && run->kind->on_writable)
        run->kind->on_writable(run);
    for (size_t i = 0; i < SUPERVISOR_FDS; i++)
        p[i] = (struct pollfd){ .fd = -1 };
    p[which] = (struct pollfd){ .fd = 0, .revents = revents }; /* the number does not matter, as long as it is one */
    had_started = s->t_started > 0;
    was_killed = s->killed_at > 0;
    if (hutch_supervisor_turn(s, p, &err) < 0)
        hutch_supervisor_fail(s, &err);
    /* what init executes has limits that count from now, and what is killed a last deadline */
    if ((!had_started && s->t_started > 0) || (!was_killed && s->killed_at > 0))
        hutch_loop_advance_deadline(&run->runs->core->loop, &slot->clock, 0);
    was_signalled = s->was_signalled;
    s->was_signalled = false;
    if (hutch_supervisor_is_over(s))
        be_over(run);
    else if (s->was_outlived && run->kind->can_outlive)
        run->kind->can_outlive(run) ? be_outlived(run) : be_over_with_worker(run);
    else if (s->has_followed && run->kind->on_followed)
        run->kind->on_followed(run);
    else if (was_signalled && run->kind->on_signalled)
        run->kind->on_signalled(run);
    else if (s->idle_ms > 0) /* its next check may have come nearer */
        hutch_loop_advance_deadline(&run->runs->core->loop, &slot->clock, s->next_data);
}

static void on_input_room(void *owner, short revents)
{
    struct engine_run *run = owner;

    on_ready(run, run->slot, SUPERVISOR_IN, revents);
}

/* Tells the worker what to execute. From then on its code may run. */
static int start_worker(struct engine_run *run, struct hutch_err *err)
{
    struct slot *slot = run->slot;

    if (hutch_sandbox_order(&slot->sb, INIT_START, slot->holder_pid) < 0 || run->kind->start(run, err) < 0)
        return -1;
    hutch_supervisor_started(slot->supervisor);
    return 0;
}

/* Its limits hold. */
static void launch(struct engine_run *run)
{
    struct slot *slot = run->slot;
    struct supervisor *s = slot->supervisor;
    struct loop *loop = &run->runs->core->loop;
    /* before its code, so that it is there when the code looks, as with a file for standard input */
    bool has_input = run->input.len > 0;
    struct hutch_err err = { 0 };

    s->t0 = run->t_active;
    s->sandbox = &slot->sb;
    s->tree = slot->template->spec.rootfs_path;
    s->result = &run->result;
    s->data_dirfd = slot->data_dirfd;
    s->is_data_bounded = hutch_slot_is_bounded_by(slot, run->limits);
    s->out.capture = &run->result.out;
    s->err_out.capture = &run->result.err_out;
    if (run->kind->wants_output(run))
        s->out.on_data = s->err_out.on_data = on_data;
    if (run->kind->on_process)
        s->on_process = on_process;
    hutch_supervisor_set_limits(s, run->limits, run->grace_ms);
    if (has_input)
        hutch_input_start(&run->input, loop, s);
    if (!slot->is_exec && start_worker(run, &err) < 0) {
        hutch_slot_fail(slot, err.msg[0] ? &err : NULL);
        return;
    }
    run->stage = RUN_RUNNING;
    stop_clock(run);
    hutch_slot_set_state(slot, SLOT_RUNNING);
    if (slot->volume_fd >= 0 || slot->given)
        hutch_file_memory_watch(run->runs->slots);
    if (!has_input)
        hutch_input_start(&run->input, loop, s);
    run->result.queued_ms = run->t_active - run->t_submitted;
    hutch_supervisor_note_limits(s, &slot->template->spec);
    if (run->lowers_cpu)
        run->result.limits[LIMIT_CPU_TIME].enforcers |= 1u << ENFORCER_RLIMIT;
    if (run->lowers_file_size)
        run->result.limits[LIMIT_FILE_SIZE].enforcers |= 1u << ENFORCER_RLIMIT;
    if (run->template) {
        hutch_loop_advance_deadline(loop, &slot->clock, hutch_clock_ms() + hutch_supervisor_clocks(s));
    } else {
        hutch_loop_advance_deadline(loop, &slot->clock, hutch_clock_ms() + REFILL_AFTER_MS);
        hutch_pool_refill_in(run->runs->pools, run->pool_index, REFILL_AFTER_MS);
    }
}

static void begin(struct engine_run *run)
{
    struct hutch_err err;
    int rc = hutch_run_lower_limits(run, &err);

    if (rc < 0)
        hutch_slot_fail(run->slot, &err);
    else if (rc == 0)
        launch(run);
}

static void on_limited(void *owner, struct slot *slot)
{
    (void)slot;
    launch(owner);
}

/* The slot has opened by its path what the request was checked for by its path. */
static int check_data_dir(const struct engine_run *run, struct hutch_err *err)
{
    struct stat st;

    if (fstat(run->slot->data_dirfd, &st) < 0)
        return hutch_err_set(err, errno, "look at the data directory '%s'", run->data_dir);
    if (st.st_dev != run->data_dev || st.st_ino != run->data_ino)
        return hutch_err_set(err, 0, "'%s' was replaced while the run waited", run->data_dir);
    return 0;
}

static void withdraw_and_refuse(struct engine_run *run, const struct hutch_err *why)
{
    hutch_run_withdraw(run);
    refuse(run, why);
}

static void on_noted(struct engine_run *run, const struct hutch_err *why)
{
    if (why)
        withdraw_and_refuse(run, why);
    else
        begin(run);
}

/* They are there before the run, so they are nothing that it adds. */
static int put_files(struct engine_run *run, struct hutch_err *err)
{
    if (run->transfer.n_puts == 0)
        return 0;
    if (hutch_run_transfer_put(run, err) < 0)
        return -1;
    hutch_file_list_done(&run->before); /* without them */
    return run->data_dir && !run->slot->is_exec ? 0 : hutch_run_files_remember(run, err);
}

/* Of what init executes. */
static int on_furnish(void *owner, struct slot *slot, struct hutch_err *err)
{
    struct engine_run *run = owner;

    run->slot = slot;
    return put_files(run, err);
}

static void on_entered(void *owner, struct slot *slot)
{
    struct engine_run *run = owner;
    const bool has_list = !run->data_dir || run->keeps_list || slot->is_exec;
    struct hutch_err err;

    if (!slot->is_exec && ((run->data_dir && check_data_dir(run, &err) < 0) || put_files(run, &err) < 0))
        withdraw_and_refuse(run, &err);
    else if (!has_list)
        hutch_run_files_note(run, on_noted);
    else
        begin(run);
}

static void on_prepared(void *owner, struct slot *slot)
{
    on_slot(owner, slot); /* that was made for this run alone */
}

static const struct slot_events slot_events = {
    .on_prepared = on_prepared,
    .on_furnish = on_furnish,
    .on_entered = on_entered,
    .on_limited = on_limited,
    .on_ready = on_ready,
    .on_dead = on_dead,
    .on_refused = on_refused,
    .on_failed = on_failed,
};

/* --- before it ---------------------------------------------------------------------------------------------------- */

/* Whether its sandbox shares ids: its directory is the caller's, on disk. */
static bool shares_ids(const struct engine_run *run)
{
    return run->data_dir && !run->volume;
}

/* A sandbox for this run alone, by its own template. */
static int make_slot(struct engine_run *run, struct hutch_err *err)
{
    struct runs *runs = run->runs;

    runs->pools->on_demand++;
    run->slot = hutch_slot_create(runs->slots, run->template, run->zygote_index, run->is_exec, shares_ids(run),
                                  run->is_exec ? run->data_dir : NULL, &slot_events, run, err);
    if (!run->slot)
        return -1;
    if (run->is_exec && run->data_dir && (check_data_dir(run, err) < 0 || hutch_run_files_remember(run, err) < 0)) {
        hutch_run_withdraw(run);
        return -1;
    }
    hutch_slot_build(run->slot);
    return 0;
}

static void ask_pool(struct engine_run *run)
{
    run->wait.shares_ids = shares_ids(run);
    run->was_prepared = hutch_pool_has_idle(run->runs->pools, run->pool_index, run->wait.shares_ids);
    hutch_pool_ask(run->runs->pools, run->pool_index, &run->wait);
}

/* Until when it waits for a sandbox. The import of a library takes as long as it takes; and where others have theirs
 * from the same pool, its turn comes. */
static double wait_until(const struct engine_run *run)
{
    const struct pools *pools = run->runs->pools;
    double setup_ms = run->runs->core->setup_ms, until = run->t_waiting + setup_ms, other;

    if (!run->template) {
        other = pools->list[run->pool_index].last_given + setup_ms;
        until = other > until ? other : until;
    }
    if (!run->is_exec) {
        other = hutch_zygotes_import_until(run->runs->slots->zygotes, run->zygote_index);
        until = other > until ? other : until;
    }
    return until;
}

static void on_due(void *owner, double now)
{
    struct engine_run *run = owner;
    struct core *core = run->runs->core;
    struct hutch_err err;
    char who[64];

    run->t_waiting += hutch_loop_stood_still(&core->loop);
    if (now < wait_until(run)) {
        hutch_loop_set_deadline(&core->loop, &run->clock, wait_until(run));
        return;
    }
    if (run->slot)
        hutch_slot_name_awaited(run->slot, who, sizeof(who));
    else
        hutch_pool_name_awaited(run->runs->pools, run->pool_index, who, sizeof(who));
    hutch_err_set(&err, 0, "no sandbox was ready within %g s: it waits for %s", core->setup_ms / 1e3, who);
    hutch_core_blame_hung(core, run->t_waiting, &err);
    hutch_run_withdraw(run);
    refuse(run, &err);
}

static void start_clock(struct engine_run *run)
{
    if (run->t_waiting == 0)
        run->t_waiting = hutch_clock_ms();
    hutch_loop_advance_deadline(&run->runs->core->loop, &run->clock, run->t_waiting + run->runs->core->setup_ms);
}

void hutch_run_activate(struct engine_run *run)
{
    struct runs *runs = run->runs;
    struct hutch_err err;

    run->stage = RUN_WAITING;
    run->job_sent = 0;
    run->lost_job = false;
    if (run->t_active == 0)
        run->t_active = hutch_clock_ms();
    start_clock(run);
    if (runs->core->is_broken)
        refuse(run, &runs->core->why);
    else if (run->template && make_slot(run, &err) < 0)
        refuse(run, &err);
    else if (!run->template)
        ask_pool(run);
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

void hutch_runs_init(struct runs *runs, struct pools *pools)
{
    *runs = (struct runs){ .core = pools->core, .slots = pools->slots, .pools = pools };
    hutch_tenants_init(&runs->tenants);
    TAILQ_INIT(&runs->active);
    TAILQ_INIT(&runs->ending);
}

static void free_all(struct run_list *list)
{
    struct engine_run *run;

    while ((run = TAILQ_FIRST(list))) {
        TAILQ_REMOVE(list, run, link);
        hutch_run_free(run);
    }
}

void hutch_runs_done(struct runs *runs)
{
    struct tenant *tenant;

    TAILQ_FOREACH(tenant, &runs->tenants.list, link)
        free_all(&tenant->queue);
    free_all(&runs->active);
    free_all(&runs->ending);
    hutch_tenants_done(&runs->tenants);
}

bool hutch_runs_have_work(const struct runs *runs)
{
    return !TAILQ_EMPTY(&runs->ending) || (runs->n_queued > 0 && runs->n_active < runs->max_running);
}

void hutch_runs_refuse_all(struct runs *runs)
{
    struct engine_run *run, *next;
    const struct tenant *tenant;

    for (run = TAILQ_FIRST(&runs->active); run; run = next) {
        next = TAILQ_NEXT(run, link);
        if (run->stage != RUN_WAITING)
            continue;
        hutch_run_withdraw(run);
        hutch_run_fail(run, &runs->core->why);
    }
    TAILQ_FOREACH(tenant, &runs->tenants.list, link)
        while (!TAILQ_EMPTY(&tenant->queue))
            hutch_run_fail(TAILQ_FIRST(&tenant->queue), &runs->core->why);
}

static struct engine_run *find_in(const struct run_list *list, uint64_t id)
{
    struct engine_run *run;

    TAILQ_FOREACH(run, list, link)
        if (run->id == id)
            return run;
    return NULL;
}

struct engine_run *hutch_run_find(struct runs *runs, uint64_t id)
{
    struct engine_run *run = find_in(&runs->active, id);
    const struct tenant *tenant;

    for (tenant = TAILQ_FIRST(&runs->tenants.list); !run && tenant; tenant = TAILQ_NEXT(tenant, link))
        run = find_in(&tenant->queue, id);
    return run;
}
