#include "runtime/session/session.h"

#include "runtime/cell/result_json.h"
#include "runtime/text/nbjson.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "sandbox/log.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_MS 5000  /* from the interrupt to the kill */
#define FAREWELL_MS 1000  /* from the end of its socket to that of its process */
#define CPU_CHECK_MS 100
#define TOLD_FACTOR 32    /* outputs that were cleared make room for others, but not for ever */
#define REST_AFTER_MS 200 /* without a cell, a sandbox is looked at less often */
#define REST_MIN_MS 100   /* from one look at a resting sandbox to the next … */
#define REST_MAX_MS 2000
#define REST_CHECKS 2000   /* … so that there are no more of them in a second: all of them together take some hundredths of a CPU */

struct order *hutch_session_at_work(const struct session *s)
{
    return s->state == SESSION_BUSY && !s->is_calling ? TAILQ_FIRST(&s->orders) : NULL;
}

static void ask_for_work(struct session *s)
{
    s->sessions->has_work = true;
    hutch_loop_wake(&s->sessions->core->loop);
}

static struct supervisor *supervisor_of(struct session *s)
{
    return s->run->slot ? s->run->slot->supervisor : NULL;
}

void hutch_session_kill_interpreter(struct session *s)
{
    struct supervisor *sup = supervisor_of(s);

    if (sup && s->run->slot->state == SLOT_RUNNING)
        hutch_supervisor_end(sup, END_CANCELLED);
}

static void set_state(struct session *s, enum session_state state)
{
    struct sessions *sessions = s->sessions;

    sessions->n_seeking += (state == SESSION_SEEKING) - (s->state == SESSION_SEEKING);
    sessions->n_seating += (state == SESSION_SEATING) - (s->state == SESSION_SEATING);
    s->state = state;
    if (state == SESSION_SEEKING || sessions->n_seeking > 0)
        ask_for_work(s);
}

/* --- orders ----------------------------------------------------------------------------------------------------------- */

void hutch_order_free(struct order *order)
{
    free(order->code);
    free(order->context);
    free(order);
}

static void take_out(struct session *s, struct order_list *list, struct order *order)
{
    TAILQ_REMOVE(list, order, link);
    if (list == &s->orders)
        s->n_orders--;
}

/* A result of a cell that did not run, or whose interpreter died. */
static struct hutch_cell_result empty_result(const struct order *order, double now)
{
    return (struct hutch_cell_result){
        .size = sizeof(struct hutch_cell_result),
        .message = "",
        .outputs = "[]",
        .queued_ms = now - order->t_queued,
        .cpu_user_ms = HUTCH_UNKNOWN,
        .cpu_system_ms = HUTCH_UNKNOWN,
        .memory_peak_bytes = HUTCH_UNKNOWN,
    };
}

/* Answers it without having done it. */
static void refuse_order(struct session *s, struct order *order, enum hutch_verdict verdict, const char *why)
{
    struct hutch_cell_result result = empty_result(order, hutch_clock_ms());
    struct hutch_cell_details details = { .code = order->code };
    struct hutch_reply reply = { .size = sizeof(reply), .message = why, .lost = "[]" };

    result.verdict = verdict;
    result.message = why;
    result.internal = &details;
    if (order->kind != ORDER_CELL && order->on_reply)
        order->on_reply(order->user, s->id, &reply);
    else if (order->cell.on_result)
        order->cell.on_result(order->cell.user, s->id, &result);
    hutch_order_free(order);
}

void hutch_session_doom(struct session *s, struct order *order, enum hutch_verdict verdict, const char *why)
{
    for (struct order *next; order; order = next) {
        next = TAILQ_NEXT(order, link);
        take_out(s, &s->orders, order);
        TAILQ_INSERT_TAIL(&s->doomed, order, link);
        order->verdict = verdict;
        order->why = why;
    }
    ask_for_work(s);
}

static void answer_doomed(struct session *s)
{
    while (!TAILQ_EMPTY(&s->doomed)) {
        struct order *order = TAILQ_FIRST(&s->doomed);

        take_out(s, &s->doomed, order);
        refuse_order(s, order, order->verdict, order->why);
    }
}

/* --- what a cell uses --------------------------------------------------------------------------------------------------- */

static void read_cpu(struct session *s, uint64_t *ret_user_us, uint64_t *ret_system_us)
{
    const struct sandbox_cgroup none = CGROUP_INIT;

    hutch_cgroup_read_cpu_times(s->run->slot ? &s->run->slot->sb.cgroup : &none, ret_user_us, ret_system_us);
}

static void note_usage(struct session *s, struct hutch_cell_result *result)
{
    struct supervisor *sup = supervisor_of(s);
    uint64_t user, system;

    read_cpu(s, &user, &system);
    if (user != UINT64_MAX && s->cpu_user_us != UINT64_MAX) {
        result->cpu_user_ms = (user - s->cpu_user_us) / 1000;
        result->cpu_system_ms = (system - s->cpu_system_us) / 1000;
    } else if (sup && sup->peak.memory_bytes > 0 && sup->last.cpu_ms >= s->sampled_cpu_ms) { /* a sample has both together */
        result->cpu_user_ms = sup->last.cpu_ms - s->sampled_cpu_ms;
        result->cpu_system_ms = 0;
    }
    if (sup && sup->peak.memory_bytes > 0)
        result->memory_peak_bytes = sup->peak.memory_bytes;
}

static uint64_t cpu_ms_so_far(struct session *s)
{
    struct supervisor *sup = supervisor_of(s);
    uint64_t user, system;

    read_cpu(s, &user, &system);
    if (user != UINT64_MAX && s->cpu_user_us != UINT64_MAX)
        return (user - s->cpu_user_us + system - s->cpu_system_us) / 1000;
    return sup && sup->last.cpu_ms > s->sampled_cpu_ms ? sup->last.cpu_ms - s->sampled_cpu_ms : 0;
}

/* --- the end of a cell -------------------------------------------------------------------------------------------------- */

static const char *why_stopped(const struct session *s, bool was_killed, char *buf, size_t size)
{
    const char *what = was_killed ? "; it did not stop when it was interrupted, so its interpreter was killed" : ", so it was interrupted";

    switch (s->stop) {
    case STOP_NOT:
        return "";
    case STOP_TIMEOUT:
        snprintf(buf, size, "the cell took longer than %" PRIu64 " ms%s", TAILQ_FIRST(&s->orders)->cell.timeout_ms, what);
        return buf;
    case STOP_CPU_TIME:
        snprintf(buf, size, "the cell used more than %" PRIu64 " ms of CPU time%s", s->cpu_ms, what);
        return buf;
    case STOP_OUTPUT:
        snprintf(buf, size, "the cell's outputs took more than %" PRIu64 " bytes%s", s->output_bytes, what);
        return buf;
    }
    return "";
}

static enum hutch_verdict verdict_of_stop(enum stop_reason stop)
{
    static const enum hutch_verdict verdicts[] = {
        [STOP_NOT] = HUTCH_OK, [STOP_TIMEOUT] = HUTCH_TIMEOUT, [STOP_CPU_TIME] = HUTCH_CPU_TIME, [STOP_OUTPUT] = HUTCH_OUTPUT_LIMIT,
    };
    return verdicts[stop];
}

/* Delivers the result of the cell that ran, with all that is known of it but verdict and message. */
static void deliver(struct session *s, struct hutch_cell_result *result)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    struct file_changes files = FILE_CHANGES_INIT;
    struct hutch_cell_details details = { .files = &files };
    struct order *order = TAILQ_FIRST(&s->orders);
    struct hutch_err err;

    take_out(s, &s->orders, order);
    hutch_execution_fill(&s->execution, s->interpreter, result, &details);
    details.code = order->code;
    result->queued_ms = s->execution.t_begun - order->t_queued;
    result->is_fresh = s->is_fresh;
    result->was_interrupted = s->was_interrupted || s->stop != STOP_NOT;
    note_usage(s, result);
    if (hutch_collect_step(s->data_dirfd, &s->seen, &bounds, &files, &err) < 0) {
        hutch_log_debug("engine: %s", err.msg);
        files.truncated = true;
    }
    if (!s->data_name[0])
        details.directory = s->run->data_dir;
    if (s->is_fresh && !result->message[0])
        result->message = s->why;
    s->is_fresh = false;
    s->is_calling = true;
    if (order->cell.on_result)
        order->cell.on_result(order->cell.user, s->id, result);
    s->is_calling = false;
    hutch_execution_done(&s->execution);
    hutch_cell_feed_forget(s->interpreter->feed);
    hutch_interpreter_set_in_cell(s->interpreter, false);
    hutch_file_changes_done(&files);
    hutch_order_free(order);
    s->t_used = hutch_clock_ms();
    hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, s->t_used + REST_AFTER_MS);
}

static void start_next(struct session *s);

static void finish_cell(struct session *s)
{
    struct hutch_cell_result result = empty_result(TAILQ_FIRST(&s->orders), 0);
    char why[256];

    s->stop_at = s->kill_at = s->check_at = 0;
    s->is_asking = false;
    result.verdict = s->stop != STOP_NOT ? verdict_of_stop(s->stop) : s->execution.is_error ? HUTCH_ERROR : HUTCH_OK;
    result.message = why_stopped(s, false, why, sizeof(why));
    deliver(s, &result);
    set_state(s, SESSION_IDLE);
    start_next(s);
}

/* How an interpreter ended that nobody had asked to. */
static void describe_death(const struct session *s, char *buf, size_t size)
{
    const struct run_result *r = &s->run->result;

    if (s->interpreter->is_refused)
        snprintf(buf, size, "the interpreter broke the rules of its descriptor 3, so it was ended: %s", s->interpreter->why);
    else if (s->is_deaf)
        snprintf(buf, size, "the interpreter closed its descriptor 3 and could not be told anything any more, so it was ended");
    else if (r->message[0])
        snprintf(buf, size, "the interpreter ended: %.480s", r->message);
    else if (r->signal)
        snprintf(buf, size, "the interpreter died of SIG%s", sigabbrev_np(r->signal) ? sigabbrev_np(r->signal) : "RT");
    else
        snprintf(buf, size, "the interpreter ended with exit code %d", r->exit_code);
}

/* What was at work when its interpreter died. */
static void lose_order(struct session *s)
{
    struct order *order = TAILQ_FIRST(&s->orders);
    struct hutch_cell_result result = empty_result(order, 0);
    const struct run_result *r = &s->run->result;
    char why[512];

    describe_death(s, s->why, sizeof(s->why));
    if (order->kind == ORDER_CELL && !s->execution.has_begun && s->stop == STOP_NOT && !s->is_closing && !s->is_restarting && !order->was_lost) {
        order->was_lost = true; /* the interpreter was on its way out when it came: it is another one's */
        return;
    }
    result.interpreter_died = 1;
    if (s->is_closing || s->is_restarting) {
        result.verdict = HUTCH_KILLED;
        snprintf(why, sizeof(why), "the session was %s", s->is_closing ? "closed" : "restarted");
    } else if (s->stop != STOP_NOT) {
        result.verdict = verdict_of_stop(s->stop);
        why_stopped(s, true, why, sizeof(why));
    } else {
        result.verdict = r->verdict == HUTCH_OK ? HUTCH_ERROR : r->verdict;
        snprintf(why, sizeof(why), "%s", s->why);
    }
    result.message = why;
    if (r->memory_peak_bytes != HUTCH_UNKNOWN)
        result.memory_peak_bytes = r->memory_peak_bytes;
    snprintf(s->why, sizeof(s->why), "%s", why);
    if (order->kind == ORDER_CELL) {
        deliver(s, &result);
        return;
    }
    take_out(s, &s->orders, order);
    s->is_calling = true;
    refuse_order(s, order, result.verdict, why);
    s->is_calling = false;
}

/* --- the execution of a cell ----------------------------------------------------------------------------------------------- */

void hutch_session_send_interrupt(struct session *s)
{
    s->was_interrupted = true;
    if (!s->execution.has_begun) { /* before, it would be lost */
        s->wants_interrupt = true;
        return;
    }
    s->wants_interrupt = false;
    if (s->run->slot)
        hutch_sandbox_signal(&s->run->slot->sb, SIGINT);
}

bool hutch_session_give_input(struct session *s, const char *text)
{
    struct cJSON *reply, *value;
    struct hutch_err err;

    if (!s->is_asking || !s->interpreter)
        return false;
    s->is_asking = false;
    reply = cJSON_CreateObject();
    value = text ? hutch_nbjson_string(text, strlen(text)) : cJSON_CreateTrue();
    if (!reply || !value || !cJSON_AddStringToObject(reply, "do", "reply") ||
        !cJSON_AddItemToObject(reply, text ? "value" : "eof", value) ||
        hutch_interpreter_send(s->interpreter, reply, -1, &err) < 0)
        hutch_session_kill_interpreter(s); /* no memory: it would wait for ever */
    cJSON_Delete(reply);
    return true;
}

static void stop(struct session *s, enum stop_reason reason)
{
    if (s->stop != STOP_NOT)
        return;
    s->stop = reason;
    s->kill_at = hutch_clock_ms() + PATIENCE_MS;
    s->stop_at = s->check_at = 0;
    hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, s->kill_at);
    hutch_session_send_interrupt(s);
}

static void on_event(void *user, const struct cell_event *event)
{
    struct session *s = user;
    struct order *order = hutch_session_at_work(s);
    const struct hutch_cell *cell = order && order->kind == ORDER_CELL ? &order->cell : NULL;

    switch (event->kind) {
    case CELL_READY:
        s->false_starts = 0;
        if (s->state == SESSION_SEATING)
            set_state(s, SESSION_IDLE);
        break;
    case CELL_OUTPUT:
        s->told_bytes += event->output->json ? strlen(event->output->json) : event->output->text_len;
        if (cell && cell->on_output)
            cell->on_output(cell->user, s->id, event->output);
        break;
    case CELL_BEGIN:
    case CELL_DONE:
        if (cell)
            hutch_execution_hear(&s->execution, event);
        if (s->wants_interrupt && s->execution.has_begun)
            hutch_session_send_interrupt(s);
        break;
    case CELL_INPUT:
        if (!cell || !cell->allow_input || s->is_asking)
            break;
        s->is_asking = true;
        if (cell->on_input)
            cell->on_input(cell->user, s->id, event->prompt, event->is_password);
        else
            hutch_session_give_input(s, NULL);
        break;
    case CELL_OTHER:
        if (order)
            hutch_checkpoint_hear(s, event);
        break;
    }
}

static void on_turn(void *user)
{
    struct session *s = user;
    struct interpreter *interpreter = s->interpreter;
    struct order *order = hutch_session_at_work(s);

    if (interpreter->is_refused || (interpreter->is_over && !s->execution.is_done))
        return;
    if (s->state == SESSION_IDLE)
        start_next(s);
    else if (order && order->kind != ORDER_CELL)
        hutch_checkpoint_turn(s);
    else if (order && s->execution.is_done)
        finish_cell(s);
    else if (order && s->output_bytes && (s->told_bytes > s->output_bytes * TOLD_FACTOR || hutch_execution_is_flooded(interpreter, s->output_bytes)))
        stop(s, STOP_OUTPUT);
    else if (order && s->output_bytes && hutch_cell_outputs_is_truncated(hutch_cell_feed_outputs(interpreter->feed)))
        stop(s, STOP_OUTPUT);
    if (interpreter->has_left && s->kill_at == 0) { /* it may be about to end */
        s->kill_at = hutch_clock_ms() + FAREWELL_MS;
        hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, s->kill_at);
    }
}

static void set_pace(struct session *s)
{
    int ms = s->is_resting ? s->sessions->rest_ms : 0;

    hutch_sandbox_order(&s->run->slot->sb, INIT_CHECK_INTERVAL, ms, -1);
    hutch_supervisor_set_idle(s->run->slot->supervisor, ms);
}

/* The more rest, the less often each is looked at. */
static void choose_pace(struct sessions *sessions)
{
    unsigned ms = sessions->n_resting * 1000 / REST_CHECKS;
    struct session *s;

    ms = ms < REST_MIN_MS ? REST_MIN_MS : ms > REST_MAX_MS ? REST_MAX_MS : ms;
    if (sessions->rest_ms > 0 && (int)ms < sessions->rest_ms * 5 / 4 && (int)ms > sessions->rest_ms / 2)
        return;
    sessions->rest_ms = (int)ms;
    TAILQ_FOREACH(s, &sessions->list, link)
        if (s->is_resting && s->run->slot)
            set_pace(s);
}

/* Init and the supervisor look closely while somebody's cell runs, and with a glance between cells. */
static void rest(struct session *s, bool is_resting)
{
    if (s->is_resting == is_resting)
        return;
    s->is_resting = is_resting;
    s->sessions->n_resting += is_resting ? 1 : -1u;
    choose_pace(s->sessions);
    if (s->run->slot)
        set_pace(s);
}

/* What the caller has done to the files since the last cell is not what this one does. */
static void forget_changes(struct session *s)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    struct file_changes changes = FILE_CHANGES_INIT;
    struct hutch_err err;

    s->has_foreign_files = false;
    if (hutch_collect_step(s->data_dirfd, &s->seen, &bounds, &changes, &err) < 0)
        hutch_log_debug("engine: %s", err.msg);
    hutch_file_changes_done(&changes);
}

static void start_cell(struct session *s, struct order *order)
{
    struct supervisor *sup = s->run->slot->supervisor;
    double now = hutch_clock_ms();
    struct hutch_err err;

    rest(s, false);
    if (s->has_foreign_files)
        forget_changes(s);
    s->stop = STOP_NOT;
    s->was_interrupted = s->wants_interrupt = s->is_asking = false;
    s->told_bytes = 0;
    s->kill_at = 0;
    s->stop_at = order->cell.timeout_ms ? now + (double)order->cell.timeout_ms : 0;
    s->check_at = s->cpu_ms ? now + CPU_CHECK_MS : 0;
    sup->peak = (struct init_sample){ 0 };
    s->sampled_cpu_ms = sup->last.cpu_ms;
    read_cpu(s, &s->cpu_user_us, &s->cpu_system_us);
    s->has_variables = true;
    set_state(s, SESSION_BUSY);
    if (hutch_execution_begin(&s->execution, s->interpreter, &order->cell, order->code, order->context, s->output_bytes, &err) < 0)
        hutch_session_kill_interpreter(s); /* no memory */
    if (s->stop_at > 0)
        hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, s->stop_at);
    if (s->check_at > 0)
        hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, s->check_at);
}

/* Whether it was not killed: until its death is known it might still take a cell. */
static bool is_alive(struct session *s)
{
    struct supervisor *sup = supervisor_of(s);

    return sup && sup->reason == END_OWN && hutch_interpreter_is_there(s->interpreter);
}

static void start_next(struct session *s)
{
    struct order *order = TAILQ_FIRST(&s->orders);
    double unsettled;

    if (s->state != SESSION_IDLE || !order || s->is_calling || s->is_closing || s->is_restarting || !is_alive(s))
        return;
    unsettled = hutch_collect_unsettled_ms(&s->seen);
    if (unsettled > 0) {
        s->check_at = hutch_clock_ms() + unsettled;
        hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, s->check_at);
        return;
    }
    if (order->kind == ORDER_CELL) {
        start_cell(s, order);
        return;
    }
    rest(s, false);
    set_state(s, SESSION_BUSY);
    hutch_checkpoint_begin(s, order);
}

void hutch_session_enqueue(struct session *s, struct order *order)
{
    order->t_queued = hutch_clock_ms();
    TAILQ_INSERT_TAIL(&s->orders, order, link);
    s->n_orders++;
    if (s->state == SESSION_LOST)
        ask_for_work(s);
    else
        start_next(s);
}

void hutch_session_answer(struct session *s, const struct hutch_reply *reply)
{
    struct order *order = TAILQ_FIRST(&s->orders);

    take_out(s, &s->orders, order);
    s->is_calling = true;
    if (order->on_reply)
        order->on_reply(order->user, s->id, reply);
    s->is_calling = false;
    hutch_order_free(order);
    hutch_checkpoint_clear(s);
    s->t_used = hutch_clock_ms();
    set_state(s, SESSION_IDLE);
    ask_for_work(s); /* the next order begins there */
}

void hutch_session_take_interpreter(struct session *s, struct interpreter *interpreter)
{
    struct interpreter *before = s->interpreter;

    interpreter->on_event = on_event;
    interpreter->on_turn = on_turn;
    interpreter->is_ready = true;
    interpreter->language_info = before->language_info;
    before->language_info = NULL;
    hutch_interpreter_free(before);
    s->interpreter = interpreter;
    s->kill_at = 0; /* for the end of the other one's socket */
}

/* --- its sandbox -------------------------------------------------------------------------------------------------------- */

static void seat(struct session *s)
{
    struct engine_run *run = s->run;

    hutch_result_done(&run->result);
    hutch_result_init(&run->result);
    run->restarts = run->strikes = 0;
    run->t_submitted = run->t_active = hutch_clock_ms();
    set_state(s, SESSION_SEATING);
    hutch_run_activate(run);
}

/* The first sandbox's own directory is the session's from here on. */
static int take_data(struct session *s, struct slot *slot, struct hutch_err *err)
{
    if (s->data_dirfd >= 0)
        return 0;
    s->data_dirfd = fcntl(slot->data_dirfd, F_DUPFD_CLOEXEC, 3);
    if (s->data_dirfd < 0)
        return hutch_err_set(err, errno, "hold the files of a session");
    if (s->run->data_dir) {
        s->seen = s->run->before;
        s->run->before = (struct file_list)FILE_LIST_INIT;
        return 0;
    }
    if (asprintf(&s->run->data_dir, "%s/%s", s->sessions->core->data_root, slot->data_name) < 0) {
        s->run->data_dir = NULL;
        return hutch_err_set(err, ENOMEM, "hold the files of a session");
    }
    memcpy(s->data_name, slot->data_name, sizeof(s->data_name));
    slot->data_name[0] = '\0';
    return 0;
}

/* Its sandbox is there and its code may begin. */
static int start(struct engine_run *run, struct hutch_err *err)
{
    static const enum sandbox_limit ours[] = { LIMIT_WALL, LIMIT_CPU_TIME, LIMIT_OUTPUT }; /* they are a cell's */
    struct session *s = run->kind_data;
    struct slot *slot = run->slot;
    uint64_t limits[LIMIT_COUNT];

    if (take_data(s, slot, err) < 0)
        return -1;
    memcpy(limits, run->limits, sizeof(limits));
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
        limits[ours[i]] = 0;
    hutch_supervisor_set_limits(slot->supervisor, limits, run->grace_ms);
    s->interpreter = hutch_interpreter_create_for_worker(slot, s->token, on_event, on_turn, s, err);
    if (!s->interpreter)
        return -1;
    if (hutch_interpreter_send_raw(s->interpreter, run->job, run->job_len) < 0)
        return hutch_err_set(err, ENOMEM, "describe a session to its worker");
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

    hutch_interpreter_hear(s->interpreter, stream, data, len);
}

static void on_followed(struct engine_run *run)
{
    hutch_checkpoint_turn(run->kind_data);
}

static enum run_outcome conclude(struct engine_run *run, struct hutch_err *why)
{
    struct session *s = run->kind_data;

    return s->interpreter ? hutch_interpreter_conclude(s->interpreter, run->slot->supervisor, why) : OUTCOME_JUDGE;
}

static void drop_interpreter(struct session *s)
{
    hutch_interpreter_free(s->interpreter);
    s->interpreter = NULL;
}

static void reset(struct engine_run *run)
{
    drop_interpreter(run->kind_data);
}

/* No sandbox can be had. */
static void refuse(struct engine_run *run, const struct hutch_err *why)
{
    struct session *s = run->kind_data;

    hutch_pool_leave(&run->wait);
    snprintf(s->why, sizeof(s->why), "%s", why->msg);
    drop_interpreter(s);
    set_state(s, SESSION_LOST);
    hutch_session_doom(s, TAILQ_FIRST(&s->orders), HUTCH_SETUP_FAILED, s->why);
}

/* All of its sandbox is dead, and its run's result says how. */
static void die(struct engine_run *run, bool has_files)
{
    struct session *s = run->kind_data;

    (void)has_files;
    hutch_run_leave_slot(run);
    if (s->state == SESSION_BUSY)
        lose_order(s);
    else if (!s->is_closing)
        describe_death(s, s->why, sizeof(s->why));
    if (s->state == SESSION_SEATING && !s->is_closing && !s->is_restarting && ++s->false_starts > CORE_MAX_RESTARTS) {
        const struct run_result *r = &s->run->result;

        s->false_starts = 0; /* the next cell may have better luck */
        hutch_session_doom(s, TAILQ_FIRST(&s->orders), r->verdict == HUTCH_OK ? HUTCH_SETUP_FAILED : r->verdict,
                           s->why);
    }
    hutch_checkpoints_drop_all(s, true);
    rest(s, false);
    drop_interpreter(s);
    s->stop_at = s->kill_at = s->check_at = 0;
    s->is_fresh = (s->has_variables || s->is_fresh) && !s->is_restarting; /* still, when no cell has been told since the last death */
    s->has_variables = s->is_restarting = s->is_deaf = false;
    set_state(s, SESSION_LOST);
    ask_for_work(s);
}

static const struct run_kind kind = {
    .start = start,
    .wants_output = wants_output,
    .hear = hear,
    .on_followed = on_followed,
    .conclude = conclude,
    .reset = reset,
    .refuse = refuse,
    .die = die,
};

/* --- its end ------------------------------------------------------------------------------------------------------------ */

void hutch_session_begin_restart(struct session *s)
{
    struct order *order = TAILQ_FIRST(&s->orders);

    if (hutch_session_at_work(s)) /* that one is told when its interpreter is dead */
        order = TAILQ_NEXT(order, link);
    hutch_session_doom(s, order, HUTCH_KILLED, "the session was restarted");
    if (s->run->slot && s->run->slot->state >= SLOT_RUNNING) {
        s->is_restarting = true;
        hutch_session_kill_interpreter(s);
    }
    s->is_fresh = s->has_variables = false;
    s->t_used = hutch_clock_ms();
}

void hutch_session_begin_end(struct session *s, const char *why)
{
    struct engine_run *run = s->run;

    if (s->is_closing)
        return;
    s->is_closing = true;
    snprintf(s->why, sizeof(s->why), "%s", why);
    if (run->slot && run->slot->state >= SLOT_RUNNING) {
        hutch_session_kill_interpreter(s);
    } else {
        hutch_run_withdraw(run);
        set_state(s, SESSION_LOST);
    }
    ask_for_work(s);
}

void hutch_session_free(struct session *s)
{
    struct order_list *lists[] = { &s->orders, &s->doomed };

    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        while (!TAILQ_EMPTY(lists[i])) {
            struct order *order = TAILQ_FIRST(lists[i]);

            take_out(s, lists[i], order);
            hutch_order_free(order);
        }
    drop_interpreter(s);
    hutch_run_free(s->run);
    hutch_file_list_done(&s->seen);
    hutch_fd_closep(&s->data_dirfd);
    hutch_execution_done(&s->execution);
    hutch_checkpoints_drop_all(s, false);
    hutch_loop_set_deadline(&s->sessions->core->loop, &s->clock, LOOP_NEVER);
    free(s);
}

/* What the caller keeps is his: no directory in it that he cannot enter. */
static void open_up(struct session *s)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    struct file_changes changes = FILE_CHANGES_INIT;
    struct hutch_err err;

    if (s->data_dirfd < 0 || (s->data_name[0] && !s->keep_data))
        return;
    if (hutch_collect_changes(s->data_dirfd, &s->seen, &bounds, &changes, &err) < 0)
        hutch_log_debug("engine: %s", err.msg);
    hutch_file_changes_done(&changes);
}

/* Moves the files to where the caller finds them, if there are any. */
static char *keep_files(struct session *s)
{
    struct core *core = s->sessions->core;
    char id[STATE_ID_LEN + sizeof(s->data_name)], *directory = NULL;
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    uint64_t bytes, entries = 1;
    struct hutch_err err;

    bounds.usage_entries = 1;
    if (!s->keep_data || !s->data_name[0] || s->data_dirfd < 0 || (hutch_collect_usage(s->data_dirfd, &bounds, &bytes, &entries, &err) == 0 && entries == 0))
        return NULL;
    snprintf(id, sizeof(id), "%.8s%s", core->state.id, s->data_name);
    if (hutch_state_keep_directory(&core->state, core->data_root_fd, s->data_name, id, &directory, &err) < 0)
        hutch_log_debug("engine: %s", err.msg);
    return directory;
}

/* The last word on it. */
static void end(struct session *s)
{
    struct sessions *sessions = s->sessions;
    auto_free char *directory = NULL;

    open_up(s);
    directory = keep_files(s);
    hutch_session_doom(s, TAILQ_FIRST(&s->orders), HUTCH_KILLED, "the session was closed");
    answer_doomed(s);
    TAILQ_REMOVE(&sessions->list, s, link);
    sessions->n--;
    hutch_fd_closep(&s->data_dirfd);
    if (s->data_name[0] && !directory)
        hutch_helper_remove_directory(sessions->helper, s->data_name);
    if (s->on_end)
        s->on_end(s->user, s->id, s->why, directory);
    hutch_session_free(s);
}

void hutch_sessions_work(struct sessions *sessions)
{
    struct session *s, *next;

    sessions->has_work = false;
    for (s = TAILQ_FIRST(&sessions->list); s; s = next) {
        if (!s->is_restarting && s->state != SESSION_BUSY)
            answer_doomed(s);
        next = TAILQ_NEXT(s, link); /* now: a callback may have opened another one */
        if (s->is_closing) {
            if (s->state == SESSION_LOST && !s->run->slot)
                end(s);
            continue;
        }
        if (s->state == SESSION_LOST && !TAILQ_EMPTY(&s->orders))
            set_state(s, SESSION_SEEKING);
        if (s->state == SESSION_IDLE)
            start_next(s);
        if (s->state == SESSION_SEEKING && sessions->n_seating < sessions->max_seating)
            seat(s);
    }
}

void hutch_sessions_refuse_all(struct sessions *sessions)
{
    struct session *s;

    TAILQ_FOREACH(s, &sessions->list, link) {
        if (s->is_closing || s->state == SESSION_IDLE || s->state == SESSION_BUSY)
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
}

/* --- clocks ------------------------------------------------------------------------------------------------------------- */

static void earlier(double *due, double at)
{
    if (at < *due)
        *due = at;
}

static void check_cell(struct session *s, double now, double *due)
{
    if (s->stop_at > 0 && now >= s->stop_at)
        stop(s, STOP_TIMEOUT);
    if (s->check_at > 0 && now >= s->check_at) {
        s->check_at = now + CPU_CHECK_MS;
        if (cpu_ms_so_far(s) > s->cpu_ms)
            stop(s, STOP_CPU_TIME);
    }
    if (s->stop_at > 0)
        earlier(due, s->stop_at);
    if (s->check_at > 0)
        earlier(due, s->check_at);
}

static double check_clocks(struct session *s, double now)
{
    double due = LOOP_NEVER, idle_at = s->t_used + s->idle_ms;
    struct interpreter *interpreter = s->interpreter;
    struct hutch_err err;

    if (s->is_closing)
        return LOOP_NEVER;
    if (now >= s->t_opened + s->lifetime_ms) {
        hutch_session_begin_end(s, "the session's lifetime was over");
        return LOOP_NEVER;
    }
    due = s->t_opened + s->lifetime_ms;
    earlier(&due, hutch_checkpoint_check(s, now));
    switch (s->state) {
    case SESSION_BUSY:
        check_cell(s, now, &due);
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
        if (s->check_at > 0 && now >= s->check_at) {
            s->check_at = 0;
            start_next(s);
        } else if (s->check_at > 0) {
            earlier(&due, s->check_at);
        }
        if (s->state == SESSION_IDLE && !s->is_resting && now >= s->t_used + REST_AFTER_MS)
            rest(s, true);
        else if (!s->is_resting)
            earlier(&due, s->t_used + REST_AFTER_MS);
        break;
    case SESSION_LOST:
    case SESSION_SEEKING:
        break;
    }
    if (s->kill_at > 0 && now >= s->kill_at) {
        s->is_deaf = interpreter && interpreter->has_left;
        hutch_session_kill_interpreter(s);
        s->kill_at = 0;
    } else if (s->kill_at > 0)
        earlier(&due, s->kill_at);
    if (s->state == SESSION_BUSY || s->n_orders > 0)
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

/* --- its begin ---------------------------------------------------------------------------------------------------------- */

struct session *hutch_session_create(struct sessions *sessions, struct hutch_err *err)
{
    struct session *s = calloc(1, sizeof(*s));

    if (!s) {
        hutch_err_set(err, ENOMEM, "open a session");
        return NULL;
    }
    s->sessions = sessions;
    s->clock = (struct deadline)DEADLINE_INIT(on_due, s);
    s->data_dirfd = -1;
    s->seen = (struct file_list)FILE_LIST_INIT;
    TAILQ_INIT(&s->orders);
    TAILQ_INIT(&s->doomed);
    hutch_checkpoints_init(&s->checkpoints);
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
    s->t_opened = s->t_used = hutch_clock_ms();
    s->id = ++sessions->runs->next_id;
    TAILQ_INSERT_TAIL(&sessions->list, s, link);
    sessions->n++;
    set_state(s, SESSION_SEEKING);
    hutch_loop_set_deadline(&sessions->core->loop, &s->clock, s->t_opened);
}

/* --- all of them -------------------------------------------------------------------------------------------------------- */

void hutch_sessions_init(struct sessions *sessions, struct helper *helper, struct runs *runs)
{
    *sessions = (struct sessions){ .core = helper->core, .helper = helper, .runs = runs };
    TAILQ_INIT(&sessions->list);
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
