#include "runtime/session/session_priv.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/log.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAREWELL_MS 1000  /* from the end of its socket to that of its process */
#define SIGNAL_MS   1000  /* from an interrupt to the word of process 1 that it was sent */
#define KILLED_MS   5000  /* from its kill to the word that it is dead */

struct order *hutch_session_at_work(const struct session *s)
{
    return s->state == SESSION_BUSY && !s->is_calling ? TAILQ_FIRST(&s->orders) : NULL;
}

void hutch_session_ask_for_work(struct session *s)
{
    s->sessions->has_work = true;
    hutch_loop_wake(&s->sessions->core->loop);
}

struct supervisor *hutch_session_supervisor(struct session *s)
{
    return s->run->slot ? s->run->slot->supervisor : NULL;
}

void hutch_session_kill_interpreter(struct session *s)
{
    if (hutch_session_supervisor(s) && s->run->slot->state == SLOT_RUNNING)
        hutch_slot_stop(s->run->slot, END_CANCELLED);
}

void hutch_session_set_state(struct session *s, enum session_state state)
{
    struct sessions *sessions = s->sessions;

    sessions->n_seeking += (state == SESSION_SEEKING) - (s->state == SESSION_SEEKING);
    sessions->n_seating += (state == SESSION_SEATING) - (s->state == SESSION_SEATING);
    s->state = state;
    if (state == SESSION_IDLE || state == SESSION_PARKED) /* from here on it is idle, and its kept files are checked */
        hutch_loop_advance_deadline(&sessions->core->loop, &s->clock, 0);
    if (state == SESSION_SEEKING || sessions->n_seeking > 0)
        hutch_session_ask_for_work(s);
}

/* --- what its interpreter says ------------------------------------------------------------------------------------ */

static void start_next(struct session *s);

static void deliver_cell(struct session *s)
{
    bool parks = s->cell.parks;

    s->cell.parks = false;
    hutch_session_deliver_cell(s);
    hutch_session_set_state(s, parks ? SESSION_PARKED : SESSION_IDLE);
    if (parks)
        hutch_session_ask_for_work(s);
    else
        start_next(s);
}

static void on_listed(void *owner, const struct disk_reply *reply, const int *fds, size_t n_fds)
{
    struct session *s = owner;

    hutch_session_data_take_look(&s->data, reply, fds, n_fds);
    if (s->cell.is_over) {
        deliver_cell(s);
        return;
    }
    hutch_session_data_forget_changes(&s->data);
    start_next(s);
}

/* Another one is needed, or none. */
static void stop_listing(struct session *s)
{
    if (s->look.id != 0 && !s->cell.is_over)
        s->data.has_foreign = true; /* as it was when that was ordered */
    hutch_look_cancel(&s->look);
}

/* Has the disk worker find what has changed. False where there are few files, or it cannot. */
static bool list_files(struct session *s)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;

    bounds.is_at_rest = bounds.keeps_closed = true;
    s->look.on_done = on_listed;
    s->look.owner = s;
    return hutch_session_data_is_large(&s->data) &&
           hutch_session_data_look(&s->data, &s->run->runs->slots->looks, &s->look, DISK_STEP, &bounds);
}

static void finish_cell(struct session *s)
{
    hutch_session_conclude_cell(s);
    if (!list_files(s))
        deliver_cell(s);
}

static void on_event(void *user, const struct cell_event *event)
{
    struct session *s = user;
    struct order *order = hutch_session_at_work(s);
    const struct hutch_cell *cell = order && order->kind == ORDER_CELL && !s->cell.is_over ? &order->cell : NULL;

    switch (event->kind) {
    case CELL_READY:
        s->false_starts = 0;
        if (s->state == SESSION_SEATING)
            hutch_session_set_state(s, SESSION_IDLE);
        hutch_session_freeze(s);
        break;
    case CELL_OUTPUT:
    case CELL_BEGIN:
    case CELL_DONE:
    case CELL_INPUT:
    case CELL_CALL:
        hutch_session_hear_cell(s, cell, event);
        break;
    case CELL_OTHER:
        if (strcmp(event->is, "answer") == 0)
            hutch_question_hear(s, event);
        else if (order)
            hutch_checkpoint_hear(s, event);
        break;
    }
}

static void on_turn(void *user)
{
    struct session *s = user;
    struct interpreter *interpreter = s->interpreter;
    struct order *order = hutch_session_at_work(s);

    if (interpreter->is_refused || (interpreter->is_over && !s->cell.execution.is_done))
        return;
    if (s->state == SESSION_IDLE)
        start_next(s);
    else if (order && order->kind == ORDER_ASK)
        hutch_question_turn(s);
    else if (order && order->kind != ORDER_CELL)
        hutch_checkpoint_turn(s);
    else if (order && !s->cell.is_over && s->cell.execution.is_done)
        finish_cell(s);
    else if (order && !s->cell.is_over)
        hutch_session_bound_output(s);
    if (interpreter->has_left && s->kill_at == 0) { /* it may be about to end */
        s->kill_at = hutch_clock_ms() + FAREWELL_MS;
        hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, s->kill_at);
    }
}

/* Whether it was not killed: until its death is known it might still take a cell. */
static bool is_alive(struct session *s)
{
    struct supervisor *sup = hutch_session_supervisor(s);

    return sup && sup->reason == END_OWN && hutch_interpreter_is_there(s->interpreter);
}

/* Whether an interrupt of the cell before is still on its way: it would come to the next one. */
static bool waits_for_signal(struct session *s)
{
    const struct supervisor *sup = hutch_session_supervisor(s);

    if (!sup || !hutch_supervisor_is_signalling(sup)) {
        s->signal_until = 0;
        return false;
    }
    if (s->signal_until == 0)
        s->signal_until = hutch_clock_ms() + SIGNAL_MS;
    if (hutch_clock_ms() >= s->signal_until) /* process 1 hangs */
        return false;
    s->settle_at = s->signal_until;
    hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, s->settle_at);
    return true;
}

static void on_signalled(struct engine_run *run)
{
    start_next(run->kind_data);
}

static void start_next(struct session *s)
{
    struct order *order = TAILQ_FIRST(&s->orders);
    double unsettled;

    if (s->state != SESSION_IDLE || !order || s->is_calling || s->is_closing || s->is_restarting ||
        s->pause.is_on || !is_alive(s))
        return;
    if (s->look.id != 0 || waits_for_signal(s))
        return;
    unsettled = hutch_collect_unsettled_ms(&s->data.seen);
    if (unsettled > 0) {
        s->settle_at = hutch_clock_ms() + unsettled;
        hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, s->settle_at);
        return;
    }
    if (order->kind == ORDER_CELL) {
        if (!s->data.has_foreign || !list_files(s))
            hutch_session_start_cell(s, order);
        else
            s->data.has_foreign = false; /* what the caller changes from here on, he changes after that */
        return;
    }
    hutch_session_set_idle(s, false);
    hutch_session_set_state(s, SESSION_BUSY);
    if (order->kind == ORDER_ASK)
        hutch_question_begin(s, order);
    else
        hutch_checkpoint_begin(s, order);
}

void hutch_session_enqueue(struct session *s, struct order *order)
{
    order->t_queued = hutch_clock_ms();
    TAILQ_INSERT_TAIL(&s->orders, order, link);
    s->n_orders++;
    if (s->state == SESSION_LOST || s->state == SESSION_PARKED)
        hutch_session_ask_for_work(s);
    else
        start_next(s);
}

void hutch_session_answer_order(struct session *s, const struct hutch_reply *reply)
{
    struct order *order = TAILQ_FIRST(&s->orders);

    hutch_order_take_out(s, &s->orders, order);
    s->is_calling = true;
    if (order->on_reply)
        order->on_reply(order->user, s->id, reply);
    s->is_calling = false;
    hutch_order_free(order);
    hutch_checkpoint_clear(s);
    s->t_used = hutch_clock_ms();
    hutch_session_set_state(s, s->interpreter->is_over ? SESSION_PARKED : SESSION_IDLE);
    hutch_session_ask_for_work(s); /* the next order begins there */
}

void hutch_session_take_interpreter(struct session *s, struct interpreter *interpreter, bool is_fresh)
{
    struct interpreter *before = s->interpreter;

    interpreter->on_event = on_event;
    interpreter->on_turn = on_turn;
    interpreter->is_ready = true;
    interpreter->language_info = before->language_info;
    before->language_info = NULL;
    hutch_interpreter_free(before);
    hutch_question_clear(s);
    s->interpreter = interpreter;
    s->kill_at = 0; /* for the end of the other one's socket */
    s->was_shot = s->is_deaf = false;
    s->is_fresh = is_fresh;
    s->has_variables = true;
}

/* --- its sandbox -------------------------------------------------------------------------------------------------- */

static void seat(struct session *s)
{
    struct engine_run *run = s->run;

    hutch_result_done(&run->result);
    hutch_result_init(&run->result);
    run->restarts = run->strikes = 0;
    run->t_submitted = run->t_active = hutch_clock_ms();
    hutch_session_set_state(s, SESSION_SEATING);
    hutch_run_activate(run);
}

static void on_greedy(void *owner)
{
    hutch_session_begin_end(owner, "the files of all sandboxes take too much of this host's memory together, and this "
                                   "session's are the most");
}

/* Its sandbox is there and its code may begin. */
static int start(struct engine_run *run, struct hutch_err *err)
{
    static const enum sandbox_limit ours[] = { LIMIT_WALL, LIMIT_CPU_TIME, LIMIT_OUTPUT }; /* they are a cell's */
    struct session *s = run->kind_data;
    struct slot *slot = run->slot;
    uint64_t limits[LIMIT_COUNT];

    if (hutch_session_data_take(&s->data, run, on_greedy, s, err) < 0)
        return -1;
    if (hutch_data_waits_any(s))
        hutch_session_ask_for_work(s);
    memcpy(limits, run->limits, sizeof(limits));
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
        limits[ours[i]] = 0;
    hutch_supervisor_set_limits(slot->supervisor, limits, run->grace_ms);
    s->interpreter = hutch_interpreter_create_for_worker(slot, s->token, on_event, on_turn, s, err);
    if (!s->interpreter)
        return -1;
    if (hutch_processes_send_job(s, s->interpreter, run->job, run->job_len, err) < 0)
        return -1;
    hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, hutch_clock_ms() + s->sessions->core->import_ms);
    return 0;
}

static bool wants_output(const struct engine_run *run)
{
    (void)run;
    return true;
}

static void hear(struct engine_run *run, int stream, const char *data, size_t len)
{
    struct session *s = run->kind_data;

    if (!s->interpreter->is_over) /* else: of what a parked copy was made to write */
        hutch_interpreter_hear(s->interpreter, stream, data, len);
}

static void on_process(struct engine_run *run, const struct init_msg *msg)
{
    hutch_processes_hear(run->kind_data, msg);
}

static void on_followed(struct engine_run *run)
{
    hutch_checkpoint_turn(run->kind_data);
}

static enum run_outcome conclude(struct engine_run *run, struct hutch_err *why)
{
    struct session *s = run->kind_data;

    s->cell.stop_at = s->cell.check_at = s->kill_at = 0; /* what ended it has ended it */
    return s->interpreter && !s->interpreter->is_over
               ? hutch_interpreter_conclude(s->interpreter, run->slot->supervisor, why)
               : OUTCOME_JUDGE;
}

static void drop_interpreter(struct session *s)
{
    hutch_session_forget_pause(s);
    hutch_question_clear(s);
    hutch_contexts_done(&s->contexts);
    hutch_interpreter_free(s->interpreter);
    s->interpreter = NULL;
}

static void reset(struct engine_run *run)
{
    hutch_processes_reset(run->kind_data);
    hutch_paths_reset(run->kind_data);
    hutch_dir_watches_lose(run->kind_data, "the sandbox was replaced");
    drop_interpreter(run->kind_data);
}

/* No sandbox can be had. */
static void refuse(struct engine_run *run, const struct hutch_err *why)
{
    struct session *s = run->kind_data;

    hutch_pool_leave(&run->wait);
    snprintf(s->why, sizeof(s->why), "%s", why->msg);
    drop_interpreter(s);
    hutch_session_set_state(s, SESSION_LOST);
    hutch_session_doom(s, TAILQ_FIRST(&s->orders), HUTCH_SETUP_FAILED, s->why);
    hutch_processes_lose(s, s->why);
    hutch_processes_refuse(s, s->why);
    hutch_paths_lose(s, s->why);
    hutch_paths_refuse(s, s->why);
    hutch_data_waits_refuse(s, s->why);
    hutch_dir_watches_lose(s, s->why);
}

/* A checkpoint that was dropped may still be on its way out. */
static bool can_outlive(const struct engine_run *run)
{
    const struct session *s = run->kind_data;

    return !s->is_closing && !s->is_restarting && hutch_checkpoints_survive(s);
}

/* The interpreter is dead, and its run's result says how; its checkpoints are not. */
static void on_outlived(struct engine_run *run)
{
    struct session *s = run->kind_data;
    struct hutch_err err;

    hutch_interpreter_conclude(s->interpreter, run->slot->supervisor, &err);
    if (s->state == SESSION_BUSY && !s->cell.is_over)
        hutch_session_lose_order(s);
    else
        hutch_session_describe_death(s);
    hutch_processes_blame(s, s->why);
    hutch_checkpoint_clear(s); /* of what was at work */
    hutch_contexts_done(&s->contexts);
    s->cell.stop_at = s->kill_at = s->cell.check_at = s->settle_at = 0;
    s->is_fresh = s->has_variables || s->is_fresh; /* what the next cell finds, unless there is a rollback before */
    s->has_variables = s->is_deaf = s->was_shot = false;
    if (!s->cell.is_over) {
        hutch_session_set_state(s, SESSION_PARKED);
        hutch_session_ask_for_work(s);
        return;
    }
    s->cell.parks = true;
    if (s->look.id == 0 && !list_files(s))
        deliver_cell(s);
}

/* What a parked session does with the next order. */
static void leave_parked(struct session *s)
{
    struct order *order = TAILQ_FIRST(&s->orders);

    if (s->is_calling || s->is_closing || s->is_restarting || s->pause.is_on || !order ||
        s->run->slot->supervisor->reason != END_OWN)
        return;
    if (order->kind == ORDER_ASK) {
        hutch_order_take_out(s, &s->orders, order);
        hutch_order_refuse(s, order, HUTCH_SETUP_FAILED, "the interpreter has ended, and another one would end the "
                                                         "checkpoints: a cell makes one, a rollback goes back");
        hutch_session_ask_for_work(s);
        return;
    }
    if (order->kind != ORDER_ROLLBACK && order->kind != ORDER_SWITCH && order->kind != ORDER_DROP) {
        hutch_session_kill_interpreter(s); /* that is, its checkpoints: another interpreter follows */
        return;
    }
    hutch_session_set_idle(s, false);
    hutch_session_set_state(s, SESSION_BUSY);
    hutch_checkpoint_begin(s, order);
}

static void on_looked(void *owner, const struct disk_reply *reply, const int *fds, size_t n_fds)
{
    struct session *s = owner;

    hutch_session_data_take_look(&s->data, reply, fds, n_fds);
    hutch_run_looked(s->run, reply);
}

/* A cell that is answered after this has the list; before the next one, changes wait for that. */
static bool look(struct engine_run *run, const struct collect_bounds *bounds)
{
    struct session *s = run->kind_data;
    struct looks *looks = &run->runs->slots->looks;
    bool has_cell = s->state == SESSION_BUSY && TAILQ_FIRST(&s->orders)->kind == ORDER_CELL;

    stop_listing(s);
    run->look.on_done = on_looked;
    run->look.owner = s;
    if (has_cell && !s->data.has_looked && (s->cell.is_over || !hutch_session_repeats_cell(s)))
        return hutch_session_data_look(&s->data, looks, &run->look, DISK_STEP, bounds);
    return hutch_look_begin(&run->look, looks, DISK_COUNT, bounds, run->slot->data_dirfd, -1);
}

/* All of its sandbox is dead, and its run's result says how. */
static void die(struct engine_run *run, bool has_files)
{
    struct session *s = run->kind_data;

    bool was_busy = s->state == SESSION_BUSY && !s->cell.is_over, was_parked = s->state == SESSION_PARKED;

    (void)has_files;
    hutch_run_leave_slot(run);
    stop_listing(s);
    if (was_busy)
        hutch_session_lose_order(s);
    else if (!s->is_closing && !was_parked && !s->cell.parks) /* how that one ended is known */
        hutch_session_describe_death(s);
    if (s->cell.is_over)
        hutch_session_deliver_cell(s);
    s->cell.parks = false;
    if (s->state == SESSION_SEATING && !s->is_closing && !s->is_restarting && ++s->false_starts > CORE_MAX_RESTARTS) {
        const struct run_result *r = &s->run->result;

        s->false_starts = 0; /* the next cell may have better luck */
        hutch_session_doom(s, TAILQ_FIRST(&s->orders), r->verdict == HUTCH_OK ? HUTCH_SETUP_FAILED : r->verdict,
                           s->why);
        hutch_processes_refuse(s, s->why);
        hutch_paths_refuse(s, s->why);
        hutch_data_waits_refuse(s, s->why);
    }
    hutch_processes_lose(s, s->is_restarting ? "the session was restarted" : s->why);
    hutch_paths_lose(s, s->is_restarting ? "the session was restarted" : s->why);
    hutch_dir_watches_lose(s, s->is_restarting ? "the session was restarted" : s->why);
    hutch_checkpoints_drop_all(s, true);
    hutch_session_set_idle(s, false);
    drop_interpreter(s);
    s->cell.stop_at = s->kill_at = s->cell.check_at = s->settle_at = 0;
    /* still, when no cell has been told since the last death */
    s->is_fresh = (s->has_variables || s->is_fresh) && !s->is_restarting;
    s->has_variables = s->is_restarting = s->is_deaf = s->was_shot = false;
    hutch_session_set_state(s, SESSION_LOST);
    hutch_session_ask_for_work(s);
}

static const struct run_kind kind = {
    .start = start,
    .wants_output = wants_output,
    .hear = hear,
    .on_followed = on_followed,
    .on_signalled = on_signalled,
    .on_process = on_process,
    .can_outlive = can_outlive,
    .on_outlived = on_outlived,
    .conclude = conclude,
    .reset = reset,
    .refuse = refuse,
    .look = look,
    .die = die,
};

/* --- its end ------------------------------------------------------------------------------------------------------ */

void hutch_session_begin_restart(struct session *s)
{
    struct order *order = TAILQ_FIRST(&s->orders);

    if (hutch_session_at_work(s)) /* that one is told when its interpreter is dead */
        order = TAILQ_NEXT(order, link);
    hutch_session_doom(s, order, HUTCH_KILLED, "the session was restarted");
    hutch_processes_refuse(s, "the session was restarted");
    hutch_paths_refuse(s, "the session was restarted");
    hutch_data_waits_refuse(s, "the session was restarted");
    if (s->run->slot && s->run->slot->state >= SLOT_RUNNING) {
        s->is_restarting = true; /* a cell that ends just now still says what it found */
        hutch_session_kill_interpreter(s);
    } else {
        s->is_fresh = s->has_variables = false;
    }
    s->t_used = hutch_clock_ms();
}

void hutch_session_begin_end(struct session *s, const char *why)
{
    struct engine_run *run = s->run;

    if (s->is_closing)
        return;
    s->is_closing = true;
    snprintf(s->why, sizeof(s->why), "%s", why);
    hutch_processes_blame(s, s->why); /* before one of them tells how the sandbox's end looks from inside */
    if (run->slot && run->slot->state >= SLOT_RUNNING) {
        hutch_session_kill_interpreter(s);
    } else {
        hutch_run_withdraw(run);
        hutch_session_set_state(s, SESSION_LOST);
    }
    hutch_session_ask_for_work(s);
}

void hutch_session_free(struct session *s)
{
    struct order_list *lists[] = { &s->orders, &s->doomed, &s->cancelled };

    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        while (!TAILQ_EMPTY(lists[i])) {
            struct order *order = TAILQ_FIRST(lists[i]);

            hutch_order_take_out(s, lists[i], order);
            hutch_order_free(order);
        }
    hutch_processes_done(&s->processes);
    hutch_paths_done(&s->paths);
    hutch_data_waits_done(&s->data_waits);
    hutch_dir_watches_drop(s);
    drop_interpreter(s);
    hutch_look_cancel(&s->look);
    hutch_look_cancel(&s->landing);
    hutch_run_free(s->run);
    hutch_session_data_done(&s->data);
    hutch_execution_done(&s->cell.execution);
    hutch_question_clear(s);
    hutch_checkpoints_drop_all(s, false);
    hutch_loop_set_deadline(&s->sessions->core->loop, &s->clock, LOOP_NEVER);
    free(s);
}

static void on_opened_up(void *owner, const struct disk_reply *reply, const int *fds, size_t n_fds)
{
    struct session *s = owner;

    (void)fds;
    (void)n_fds;
    if (!reply || reply->has_failed)
        hutch_session_data_open_up(&s->data);
    s->has_opened_up = true;
    hutch_session_ask_for_work(s);
}

/* Whether its end may be told. */
static bool open_up(struct session *s)
{
    const struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;

    if (s->look.id != 0)
        return false;
    if (s->has_opened_up && s->keep_data)
        return hutch_session_land(s);
    if (s->has_opened_up || !hutch_session_data_outlives(&s->data, s->sessions->core, s->keep_data))
        return true;
    s->look.on_done = on_opened_up;
    s->look.owner = s;
    if (hutch_session_data_is_large(&s->data) &&
        hutch_session_data_look(&s->data, &s->run->runs->slots->looks, &s->look, DISK_LIST, &bounds))
        return false;
    hutch_session_data_open_up(&s->data);
    s->has_opened_up = true;
    return !s->keep_data || hutch_session_land(s);
}

/* The last word on it. */
static void end(struct session *s)
{
    struct sessions *sessions = s->sessions;
    const size_t why_len = strlen(s->why);
    auto_free char *directory = NULL;

    directory = hutch_session_data_end(&s->data, sessions->core, s->keep_data, s->why + why_len,
                                       sizeof(s->why) - why_len);
    hutch_session_doom(s, TAILQ_FIRST(&s->orders), HUTCH_KILLED, "the session was closed");
    hutch_session_answer_cancelled(s);
    hutch_session_answer_doomed(s);
    hutch_processes_lose(s, s->why);
    hutch_processes_refuse(s, s->why);
    hutch_processes_work(s);
    hutch_paths_lose(s, s->why);
    hutch_paths_refuse(s, s->why);
    hutch_paths_work(s);
    hutch_data_waits_refuse(s, s->why);
    hutch_data_waits_work(s);
    hutch_dir_watches_lose(s, s->why);
    hutch_dir_watches_work(s);
    TAILQ_REMOVE(&sessions->list, s, link);
    sessions->n--;
    if (directory)
        hutch_fd_closep(&s->data.dirfd);
    else
        hutch_session_data_drop(&s->data, sessions->helper);
    if (s->on_end)
        s->on_end(s->user, s->id, s->why, directory);
    hutch_session_free(s);
}

/* For a sandbox that it has not got. */
static bool has_work(const struct session *s)
{
    return !TAILQ_EMPTY(&s->orders) || hutch_processes_wait(s) || hutch_paths_wait(s) || hutch_data_waits_any(s);
}

void hutch_sessions_work(struct sessions *sessions)
{
    struct session *s, *next;

    sessions->has_work = false;
    for (s = TAILQ_FIRST(&sessions->list); s; s = next) {
        hutch_session_answer_cancelled(s);
        if (!s->is_restarting && s->state != SESSION_BUSY)
            hutch_session_answer_doomed(s);
        hutch_processes_work(s);
        hutch_paths_work(s);
        hutch_data_waits_work(s);
        hutch_dir_watches_work(s);
        next = TAILQ_NEXT(s, link); /* now: a callback may have opened another one */
        if (s->is_closing) {
            if (s->state == SESSION_LOST && !s->run->slot && open_up(s))
                end(s);
            continue;
        }
        if (s->state == SESSION_LOST && has_work(s) && !s->pause.is_on)
            hutch_session_set_state(s, SESSION_SEEKING);
        if (s->state == SESSION_IDLE)
            start_next(s);
        if (s->state == SESSION_PARKED)
            leave_parked(s);
        if (s->state == SESSION_SEEKING && sessions->n_seating < sessions->max_seating &&
            (!s->data.volume.is_lost || hutch_session_land(s)) && !s->is_closing)
            seat(s);
    }
}

bool hutch_sessions_have_orders(const struct sessions *sessions)
{
    const struct session *s;

    TAILQ_FOREACH(s, &sessions->list, link)
        if (s->n_orders > 0 || !TAILQ_EMPTY(&s->doomed) || !TAILQ_EMPTY(&s->cancelled) || hutch_processes_wait(s) ||
            hutch_paths_wait(s) || hutch_data_waits_any(s))
            return true;
    return false;
}

void hutch_sessions_refuse_all(struct sessions *sessions)
{
    struct session *s;

    TAILQ_FOREACH(s, &sessions->list, link) {
        if (!s->is_closing && hutch_session_data_is_lost(&s->data, sessions->core))
            hutch_session_begin_end(s, sessions->core->why.msg);
        if (s->is_closing || s->state == SESSION_IDLE || s->state == SESSION_BUSY || s->state == SESSION_PARKED)
            continue;
        hutch_run_withdraw(s->run);
        refuse(s->run, &sessions->core->why);
        hutch_session_begin_end(s, sessions->core->why.msg);
    }
}

void hutch_sessions_done(struct sessions *sessions)
{
    struct session *s;

    while ((s = TAILQ_FIRST(&sessions->list))) {
        TAILQ_REMOVE(&sessions->list, s, link);
        hutch_session_free(s); /* its files go with the engine's */
    }
    hutch_dir_watches_done(&sessions->dir_watches);
}

/* --- clocks ------------------------------------------------------------------------------------------------------- */

static void earlier(double *due, double at)
{
    if (at < *due)
        *due = at;
}

/* Alone, where there are checkpoints to go back to. */
static void end_interpreter(struct session *s, double now)
{
    struct supervisor *sup = hutch_session_supervisor(s);

    s->kill_at = 0;
    if (sup && sup->reason == END_OWN && !s->was_shot && hutch_checkpoints_survive(s)) {
        s->was_shot = true;
        s->kill_at = now + KILLED_MS;
        hutch_sandbox_signal(&s->run->slot->sb, SIGKILL);
        return;
    }
    hutch_session_kill_interpreter(s);
}

/* When that is due, if it is not yet. */
static double become_idle(struct session *s, double now)
{
    bool is_waiting = (s->state == SESSION_IDLE || s->state == SESSION_PARKED) && !hutch_processes_are_alive(s) &&
                      s->paths.n == 0;

    if (is_waiting && !s->is_idle && now >= s->t_used + SESSION_IDLE_AFTER_MS)
        hutch_session_set_idle(s, true);
    return s->is_idle || !is_waiting ? LOOP_NEVER : s->t_used + SESSION_IDLE_AFTER_MS;
}

static double check_clocks(struct session *s, double now)
{
    double due = LOOP_NEVER, idle_at = s->t_used + s->idle_ms;
    struct interpreter *interpreter = s->interpreter;
    struct hutch_err err;

    if (s->is_closing)
        return LOOP_NEVER;
    if (now >= s->ends_at) {
        hutch_session_begin_end(s, "the session's lifetime was over");
        return LOOP_NEVER;
    }
    due = s->ends_at;
    earlier(&due, hutch_session_check_pause(s, now));
    if (hutch_session_clocks_stand(s))
        return due; /* all others stand still */
    earlier(&due, hutch_checkpoint_check(s, now));
    switch (s->state) {
    case SESSION_BUSY:
        earlier(&due, hutch_session_at_work(s) && hutch_session_at_work(s)->kind == ORDER_ASK
                          ? hutch_question_check(s, now)
                          : hutch_session_check_cell(s, now));
        break;
    case SESSION_SEATING:
        if (interpreter && now >= s->run->slot->since + s->sessions->core->import_ms) {
            hutch_err_set(&err, ETIMEDOUT, "wait for the interpreter to get ready for cells");
            hutch_run_withdraw(s->run);
            refuse(s->run, &err);
        } else if (interpreter) {
            earlier(&due, s->run->slot->since + s->sessions->core->import_ms);
        }
        break;
    case SESSION_IDLE:
        if (s->settle_at > 0 && now >= s->settle_at) {
            s->settle_at = 0;
            start_next(s);
        } else if (s->settle_at > 0) {
            earlier(&due, s->settle_at);
        }
        earlier(&due, become_idle(s, now));
        break;
    case SESSION_PARKED:
        earlier(&due, become_idle(s, now));
        break;
    case SESSION_LOST:
    case SESSION_SEEKING:
        break;
    }
    if (s->kill_at > 0 && now >= s->kill_at) {
        s->is_deaf = interpreter && interpreter->has_left;
        end_interpreter(s, now);
        if (s->kill_at > now)
            earlier(&due, s->kill_at);
    } else if (s->kill_at > 0)
        earlier(&due, s->kill_at);
    if (s->state == SESSION_BUSY || s->n_orders > 0 || hutch_processes_are_alive(s) || s->paths.n > 0)
        return due;
    if (now >= idle_at) {
        hutch_session_begin_end(s, "the session was idle for too long");
        return LOOP_NEVER;
    }
    earlier(&due, idle_at);
    return due;
}

static void on_due(void *owner, double now)
{
    struct session *s = owner;

    hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, check_clocks(s, now));
}

void hutch_session_set_lifetime_ms(struct session *s, uint64_t idle_ms, uint64_t lifetime_ms)
{
    s->t_used = hutch_clock_ms();
    if (idle_ms)
        s->idle_ms = idle_ms == UINT64_MAX ? LOOP_NEVER : (double)idle_ms;
    if (lifetime_ms)
        s->ends_at = lifetime_ms == UINT64_MAX ? LOOP_NEVER : s->t_used + (double)lifetime_ms;
    hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, 0); /* which finds when it is due now */
}

/* --- its begin ---------------------------------------------------------------------------------------------------- */

struct session *hutch_session_create(struct sessions *sessions, struct hutch_err *err)
{
    struct session *s = calloc(1, sizeof(*s));

    if (!s) {
        hutch_err_set(err, ENOMEM, "open a session");
        return NULL;
    }
    s->sessions = sessions;
    s->clock = (struct deadline)DEADLINE_INIT(on_due, s);
    s->data = (struct session_data)SESSION_DATA_INIT;
    TAILQ_INIT(&s->orders);
    TAILQ_INIT(&s->doomed);
    TAILQ_INIT(&s->cancelled);
    hutch_checkpoints_init(&s->checkpoints);
    hutch_processes_init(&s->processes);
    hutch_paths_init(&s->paths);
    hutch_data_waits_init(&s->data_waits);
    if (hutch_interpreter_make_token(s->token, err) == 0)
        return s;
    free(s);
    return NULL;
}

void hutch_session_start(struct session *s, struct engine_run *run)
{
    struct sessions *sessions = s->sessions;

    s->run = run;
    run->kind = &kind;
    run->kind_data = s;
    s->output_bytes = run->limits[LIMIT_OUTPUT];
    s->wall_ms = run->limits[LIMIT_WALL];
    s->cpu_ms = run->limits[LIMIT_CPU_TIME];
    if (!s->checkpoints.max_bytes)
        s->checkpoints.max_bytes = run->limits[LIMIT_DATA_SIZE];
    s->t_opened = s->t_used;
    s->id = ++sessions->runs->next_id;
    TAILQ_INSERT_TAIL(&sessions->list, s, link);
    sessions->n++;
    hutch_session_set_state(s, SESSION_SEEKING);
    hutch_loop_set_deadline(&sessions->core->loop, &s->clock, s->t_opened);
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

void hutch_sessions_init(struct sessions *sessions, struct helper *helper, struct runs *runs)
{
    *sessions = (struct sessions){ .core = helper->core, .helper = helper, .runs = runs };
    TAILQ_INIT(&sessions->list);
    hutch_dir_watches_init(&sessions->dir_watches);
}

struct session *hutch_session_find(struct sessions *sessions, uint64_t id)
{
    struct session *s;

    TAILQ_FOREACH(s, &sessions->list, link)
        if (s->id == id && !s->is_closing)
            return s;
    return NULL;
}

void hutch_sessions_on_files(struct sessions *sessions, const struct disk_reply *reply)
{
    struct session *s, *next;

    for (s = TAILQ_FIRST(&sessions->list); s; s = next) {
        next = TAILQ_NEXT(s, link);
        hutch_checkpoint_on_files(s, reply);
    }
}
