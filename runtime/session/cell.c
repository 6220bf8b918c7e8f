/* cell.c - one cell of a session, from its begin to its result: what bounds it, how it is interrupted, and what it
 * used. */
#include "runtime/session/session_priv.h"

#include "runtime/cell/result_json.h"
#include "runtime/run/limit_hint.h"
#include "runtime/text/nbjson.h"
#include "sandbox/clock.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#define PATIENCE_MS 5000  /* from the interrupt to the kill */
#define CPU_CHECK_MS 100
#define TOLD_FACTOR 32    /* outputs that were cleared make room for others, but not for ever */

static void read_cpu(struct session *s, uint64_t *ret_user_us, uint64_t *ret_system_us)
{
    const struct sandbox_cgroup none = CGROUP_INIT;

    hutch_cgroup_read_cpu_times(s->run->slot ? &s->run->slot->sb.cgroup : &none, ret_user_us, ret_system_us);
}

static void note_usage(struct session *s, struct hutch_cell_result *result)
{
    struct supervisor *sup = hutch_session_supervisor(s);
    uint64_t user, system;

    read_cpu(s, &user, &system);
    if (user != UINT64_MAX && s->cell.cpu_user_us != UINT64_MAX) {
        result->cpu_user_ms = (user - s->cell.cpu_user_us) / 1000;
        result->cpu_system_ms = (system - s->cell.cpu_system_us) / 1000;
    } else if (sup && sup->peak.memory_bytes > 0 &&
               sup->last.cpu_ms >= s->cell.sampled_cpu_ms) { /* a sample has both together */
        result->cpu_user_ms = sup->last.cpu_ms - s->cell.sampled_cpu_ms;
        result->cpu_system_ms = 0;
    }
    if (sup && sup->peak.memory_bytes > 0)
        result->memory_peak_bytes = sup->peak.memory_bytes;
}

static uint64_t cpu_ms_so_far(struct session *s)
{
    struct supervisor *sup = hutch_session_supervisor(s);
    uint64_t user, system;

    read_cpu(s, &user, &system);
    if (user != UINT64_MAX && s->cell.cpu_user_us != UINT64_MAX)
        return (user - s->cell.cpu_user_us + system - s->cell.cpu_system_us) / 1000;
    return sup && sup->last.cpu_ms > s->cell.sampled_cpu_ms ? sup->last.cpu_ms - s->cell.sampled_cpu_ms : 0;
}

static const char *why_stopped(const struct session *s, bool was_killed, char *buf, size_t size)
{
    const char *what = was_killed ? "; it did not stop when it was interrupted, so its interpreter was killed"
                                  : ", so it was interrupted";

    switch (s->cell.stop) {
    case STOP_NOT:
        return "";
    case STOP_TIMEOUT:
        snprintf(buf, size, "the cell took longer than %" PRIu64 " ms%s", TAILQ_FIRST(&s->orders)->cell.timeout_ms,
                 what);
        return buf;
    case STOP_CPU_TIME:
        snprintf(buf, size, "the cell used more than %" PRIu64 " ms of CPU time%s", s->cpu_ms, what);
        return buf;
    case STOP_OUTPUT:
        snprintf(buf, size, "the cell's outputs took more than %" PRIu64 " bytes%s", s->output_bytes, what);
        return buf;
    case STOP_OUTPUTS:
        snprintf(buf, size, "the cell had more than %d outputs%s", CELL_MAX_OUTPUTS, what);
        return buf;
    }
    return "";
}

static enum hutch_verdict verdict_of_stop(enum stop_reason stop)
{
    static const enum hutch_verdict verdicts[] = {
        [STOP_NOT] = HUTCH_OK,
        [STOP_TIMEOUT] = HUTCH_TIMEOUT,
        [STOP_CPU_TIME] = HUTCH_CPU_TIME,
        [STOP_OUTPUT] = HUTCH_OUTPUT_LIMIT,
        [STOP_OUTPUTS] = HUTCH_OUTPUT_LIMIT,
    };
    return verdicts[stop];
}

/* All that is known of the cell that ran but its files. */
static void conclude(struct session *s, enum hutch_verdict verdict, const char *why)
{
    struct session_cell *cell = &s->cell;
    struct hutch_cell_result *result = &cell->result;
    const struct order *order = TAILQ_FIRST(&s->orders);

    cell->stop_at = cell->check_at = s->kill_at = 0;
    cell->is_asking = false;
    *result = hutch_order_empty_result(order, 0);
    cell->details = (struct hutch_cell_details){ .code = order->code };
    result->verdict = verdict;
    snprintf(cell->why, sizeof(cell->why), "%s", why[0] || !s->is_fresh ? why : s->why);
    result->message = cell->why;
    hutch_execution_fill(&cell->execution, s->interpreter, result, &cell->details);
    result->queued_ms = cell->execution.t_begun - order->t_queued;
    result->is_fresh = s->is_fresh;
    result->was_interrupted = cell->was_interrupted || cell->stop != STOP_NOT;
    s->is_fresh = false;
    hutch_cell_feed_forget(s->interpreter->feed);
    hutch_interpreter_set_in_cell(s->interpreter, false);
    cell->is_over = true;
}

/* Which limit the exception of the cell may have come from. */
static void note_limits(struct session *s)
{
    const struct cell_error *error = &s->cell.execution.error;
    const struct supervisor *sup = hutch_session_supervisor(s);
    struct limit_hint hint = { .limits = s->run->limits };
    struct statvfs fs;

    if (sup && sup->is_data_bounded && fstatvfs(sup->data_dirfd, &fs) == 0)
        hint.is_data_full = fs.f_bfree == 0 || fs.f_ffree == 0;
    hutch_limit_hint_set_exception(&hint, error->value, error->traceback);
    hutch_limit_hint_write(&hint, s->cell.why, sizeof(s->cell.why));
}

void hutch_session_conclude_cell(struct session *s)
{
    enum hutch_verdict verdict = s->cell.stop != STOP_NOT     ? verdict_of_stop(s->cell.stop)
                                 : s->cell.execution.is_error ? HUTCH_ERROR
                                                              : HUTCH_OK;
    char why[256];

    conclude(s, verdict, why_stopped(s, false, why, sizeof(why)));
    if (verdict == HUTCH_ERROR && !s->cell.why[0])
        note_limits(s);
    note_usage(s, &s->cell.result);
}

void hutch_session_deliver_cell(struct session *s)
{
    static const char lost[] = "another program has removed the files of the session";
    const bool is_lost = hutch_session_data_is_lost(&s->data, s->sessions->core);
    struct hutch_cell_result *result = &s->cell.result;
    struct order *order = TAILQ_FIRST(&s->orders);
    struct file_changes files;

    hutch_order_take_out(s, &s->orders, order);
    hutch_session_data_step(&s->data, &files);
    s->cell.details.files = &files;
    if (!s->data.name[0])
        s->cell.details.directory = s->run->data_dir;
    if (is_lost && result->verdict == HUTCH_OK) {
        result->verdict = HUTCH_KILLED;
        result->message = lost;
    }
    if (order->cell.stop_on_error && result->verdict != HUTCH_OK)
        hutch_session_cancel_waiting(s, "a cell before it failed, and was to stop those behind it");
    s->cell.is_over = false;
    s->cell.stop = STOP_NOT; /* an order that comes next may lose its interpreter for another reason */
    s->is_calling = true;
    if (order->cell.on_result)
        order->cell.on_result(order->cell.user, s->id, result);
    s->is_calling = false;
    hutch_execution_done(&s->cell.execution);
    hutch_file_changes_done(&files);
    hutch_order_free(order);
    if (is_lost)
        hutch_session_begin_end(s, lost);
    s->t_used = hutch_clock_ms();
    hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, s->t_used + SESSION_IDLE_AFTER_MS);
}

/* How an interpreter ended that nobody had asked to. */
void hutch_session_describe_death(struct session *s)
{
    const struct run_result *r = &s->run->result;
    const char *who = s->has_no_interpreter ? "what makes the session's processes" : "the interpreter";

    if (s->interpreter->is_refused && s->interpreter->is_host_at_fault)
        snprintf(s->why, sizeof(s->why), "hutch could not take what the interpreter said, so it was ended: %s",
                 s->interpreter->why);
    else if (s->interpreter->is_refused)
        snprintf(s->why, sizeof(s->why), "the interpreter broke the rules of its descriptor 3, so it was ended: %s",
                 s->interpreter->why);
    else if (s->is_deaf)
        snprintf(s->why, sizeof(s->why),
                 "the interpreter closed its descriptor 3 and could not be told anything any more, so it was ended");
    else if (r->message[0])
        snprintf(s->why, sizeof(s->why), "%s ended: %.440s", who, r->message);
    else if (r->signal)
        snprintf(s->why, sizeof(s->why), "%s died of SIG%s", who,
                 sigabbrev_np(r->signal) ? sigabbrev_np(r->signal) : "RT");
    else
        snprintf(s->why, sizeof(s->why), "%s ended with exit code %d", who, r->exit_code);
}

bool hutch_session_repeats_cell(const struct session *s)
{
    const struct order *order = TAILQ_FIRST(&s->orders);

    return order->kind == ORDER_CELL && !s->cell.execution.has_begun && s->cell.stop == STOP_NOT && !s->is_closing &&
           !s->is_restarting && !order->was_lost;
}

/* What was at work when its interpreter died. */
void hutch_session_lose_order(struct session *s)
{
    struct order *order = TAILQ_FIRST(&s->orders);
    const struct run_result *r = &s->run->result;
    enum hutch_verdict verdict;
    char why[512];

    hutch_session_describe_death(s);
    if (hutch_session_repeats_cell(s)) {
        order->was_lost = true; /* the interpreter was on its way out when it came: it is another one's */
        return;
    }
    if (s->is_closing || s->is_restarting) {
        verdict = HUTCH_KILLED;
        snprintf(why, sizeof(why), "the session was %s", s->is_closing ? "closed" : "restarted");
    } else if (s->cell.stop != STOP_NOT) {
        verdict = verdict_of_stop(s->cell.stop);
        why_stopped(s, true, why, sizeof(why));
    } else {
        verdict = r->verdict == HUTCH_OK ? HUTCH_ERROR : r->verdict;
        snprintf(why, sizeof(why), "%s", s->why);
    }
    snprintf(s->why, sizeof(s->why), "%s", why);
    if (order->kind == ORDER_CELL) {
        conclude(s, verdict, why);
        s->cell.result.interpreter_died = 1;
        if (r->memory_peak_bytes != HUTCH_UNKNOWN)
            s->cell.result.memory_peak_bytes = r->memory_peak_bytes;
        note_usage(s, &s->cell.result);
        return;
    }
    hutch_question_clear(s);
    hutch_order_take_out(s, &s->orders, order);
    s->is_calling = true;
    hutch_order_refuse(s, order, verdict, why);
    s->is_calling = false;
}

static void send_interrupt(struct session *s)
{
    s->cell.was_interrupted = true;
    if (!s->cell.execution.has_begun) { /* before, it would be lost */
        s->cell.wants_interrupt = true;
        return;
    }
    s->cell.wants_interrupt = false;
    if (s->run->slot)
        hutch_sandbox_signal(&s->run->slot->sb, SIGINT);
}

bool hutch_session_interrupt_cell(struct session *s)
{
    const struct order *order = TAILQ_FIRST(&s->orders);

    if (order && order->kind == ORDER_ASK && hutch_session_at_work(s) && !s->interpreter->is_over) {
        hutch_question_interrupt(s);
        return true;
    }
    if (!order || order->kind != ORDER_CELL)
        return false;
    if (s->state == SESSION_IDLE && s->look.id != 0) {
        s->cell.interrupts_next = true;
        return true;
    }
    if (!hutch_session_at_work(s) || s->cell.execution.is_done || s->cell.is_over || s->interpreter->is_over)
        return false;
    send_interrupt(s);
    return true;
}

bool hutch_session_give_input(struct session *s, const char *text)
{
    struct cJSON *reply, *value;
    struct hutch_err err;

    if (!s->cell.is_asking || !s->interpreter)
        return false;
    s->cell.is_asking = false;
    reply = cJSON_CreateObject();
    value = text ? hutch_nbjson_string(text, strlen(text)) : cJSON_CreateTrue();
    if (!reply || !value || !cJSON_AddStringToObject(reply, "do", "reply") ||
        !cJSON_AddItemToObject(reply, text ? "value" : "eof", value) ||
        hutch_interpreter_send(s->interpreter, reply, -1, &err) < 0)
        hutch_session_kill_interpreter(s); /* no memory: it would wait for ever */
    cJSON_Delete(reply);
    return true;
}

static void stop_cell(struct session *s, enum stop_reason reason)
{
    if (s->cell.stop != STOP_NOT)
        return;
    s->cell.stop = reason;
    s->kill_at = hutch_clock_ms() + PATIENCE_MS;
    s->cell.stop_at = s->cell.check_at = 0;
    hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, s->kill_at);
    send_interrupt(s);
}

void hutch_session_start_cell(struct session *s, struct order *order)
{
    struct supervisor *sup = s->run->slot->supervisor;
    double now = hutch_clock_ms();
    struct hutch_err err;

    hutch_session_set_idle(s, false);
    if (s->data.has_foreign)
        hutch_session_data_forget_changes(&s->data);
    s->data.has_foreign = false;
    s->cell.stop = STOP_NOT;
    s->cell.was_interrupted = s->cell.wants_interrupt = s->cell.interrupts_next;
    s->cell.interrupts_next = s->cell.is_asking = false;
    s->cell.told_bytes = 0;
    hutch_calls_begin(s);
    s->kill_at = 0;
    s->cell.stop_at = order->cell.timeout_ms ? now + (double)order->cell.timeout_ms : 0;
    s->cell.check_at = s->cpu_ms ? now + CPU_CHECK_MS : 0;
    sup->peak = (struct init_sample){ 0 };
    s->cell.sampled_cpu_ms = sup->last.cpu_ms;
    read_cpu(s, &s->cell.cpu_user_us, &s->cell.cpu_system_us);
    s->has_variables = true;
    hutch_session_set_state(s, SESSION_BUSY);
    if (hutch_execution_begin(&s->cell.execution, s->interpreter, &order->cell, order->code, order->context,
                              order->calls, s->output_bytes, &err) < 0)
        hutch_session_kill_interpreter(s); /* no memory */
    if (s->cell.stop_at > 0)
        hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, s->cell.stop_at);
    if (s->cell.check_at > 0)
        hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, s->cell.check_at);
}

double hutch_session_check_cell(struct session *s, double now)
{
    double due = LOOP_NEVER;

    if (s->cell.stop_at > 0 && now >= s->cell.stop_at)
        stop_cell(s, STOP_TIMEOUT);
    if (s->cell.check_at > 0 && now >= s->cell.check_at) {
        s->cell.check_at = now + CPU_CHECK_MS;
        if (cpu_ms_so_far(s) > s->cpu_ms)
            stop_cell(s, STOP_CPU_TIME);
    }
    if (s->cell.stop_at > 0)
        due = s->cell.stop_at;
    if (s->cell.check_at > 0 && s->cell.check_at < due)
        due = s->cell.check_at;
    return due;
}

static void hear_progress(struct session *s, const struct hutch_cell *cell, const struct cell_event *event)
{
    const struct order *order = TAILQ_FIRST(&s->orders);
    struct execution *execution = &s->cell.execution;
    bool had_begun = execution->has_begun;

    hutch_execution_hear(execution, event);
    if (had_begun || !execution->has_begun || execution->count < 0) /* a cell that is refused has no count */
        return;
    hutch_contexts_note(&s->contexts, order->context ? order->context : CONTEXTS_MAIN,
                        execution->count - (execution->is_silent && execution->count > 0), order->cwd);
    if (cell->on_start)
        cell->on_start(cell->user, s->id, order->id, hutch_execution_count(execution));
}

void hutch_session_hear_cell(struct session *s, const struct hutch_cell *cell, const struct cell_event *event)
{
    switch (event->kind) {
    case CELL_OUTPUT:
        s->cell.told_bytes += event->output->json ? strlen(event->output->json) : event->output->text_len;
        if (cell && cell->on_output && (event->output->kind != HUTCH_WIDGET || cell->widgets))
            cell->on_output(cell->user, s->id, event->output);
        break;
    case CELL_BEGIN:
    case CELL_DONE:
        if (cell)
            hear_progress(s, cell, event);
        if (s->cell.wants_interrupt && s->cell.execution.has_begun)
            send_interrupt(s);
        break;
    case CELL_INPUT:
        if (!cell || !cell->allow_input || s->cell.is_asking)
            break;
        s->cell.is_asking = true;
        if (cell->on_input)
            cell->on_input(cell->user, s->id, event->prompt, event->is_password);
        else
            hutch_session_give_input(s, NULL);
        break;
    case CELL_CALL:
        if (cell)
            hutch_calls_hear(s, cell, event);
        break;
    case CELL_READY:
    case CELL_OTHER:
        break;
    }
}

void hutch_session_bound_output(struct session *s)
{
    struct interpreter *interpreter = s->interpreter;
    enum cell_outputs_limit reached = hutch_cell_outputs_reached(hutch_cell_feed_outputs(interpreter->feed));

    if (!s->output_bytes)
        return;
    if (reached == CELL_OUTPUTS_NUMBER)
        stop_cell(s, STOP_OUTPUTS);
    else if (reached == CELL_OUTPUTS_BYTES || s->cell.told_bytes > s->output_bytes * TOLD_FACTOR ||
             hutch_execution_is_flooded(interpreter, s->output_bytes))
        stop_cell(s, STOP_OUTPUT);
}
