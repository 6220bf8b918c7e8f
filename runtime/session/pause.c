#include "runtime/session/pause.h"

#include "runtime/session/session_priv.h"
#include "sandbox/clock.h"
#include "sandbox/log.h"

#include <errno.h>
#include <string.h>

#define RETRY_MS 5

bool hutch_session_is_still(const struct session *s)
{
    return s->pause.is_on && s->pause.by != PAUSED_BY_NOTHING;
}

bool hutch_session_clocks_stand(const struct session *s)
{
    return s->pause.is_on &&
           (s->pause.by != PAUSED_BY_NOTHING || s->state == SESSION_LOST || s->state == SESSION_SEEKING);
}

bool hutch_session_stands_still(const struct session *s)
{
    const struct slot *slot = s->run->slot;

    switch (s->pause.by) {
    case PAUSED_BY_NOTHING: return s->state == SESSION_LOST || s->state == SESSION_SEEKING;
    case PAUSED_BY_CGROUP: return slot && hutch_cgroup_is_frozen(&slot->sb.cgroup);
    case PAUSED_BY_SIGNALS: return slot && s->pause.is_told && slot->supervisor->is_still;
    }
    return false;
}

/* Process 1 takes a moment to stop and continue all: one order is under way at a time, and what was wanted meanwhile
 * and is not any more is not told at all. */
static void tell_init(struct session *s)
{
    struct slot *slot = s->run->slot;
    bool is_wanted = s->pause.by == PAUSED_BY_SIGNALS;

    s->pause.retry_at = 0;
    if (!slot || slot->state != SLOT_RUNNING || s->pause.is_told == is_wanted)
        return;
    if (s->pause.n_told == slot->supervisor->n_pauses && hutch_sandbox_order(&slot->sb, INIT_PAUSE, is_wanted) == 0) {
        slot->supervisor->is_still = false; /* until it says so */
        s->pause.is_told = is_wanted;
        s->pause.n_told++;
        return;
    }
    s->pause.retry_at = hutch_clock_ms() + RETRY_MS;
    hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, s->pause.retry_at);
}

double hutch_session_check_pause(struct session *s, double now)
{
    if (s->pause.retry_at > 0 && now >= s->pause.retry_at)
        tell_init(s);
    return s->pause.retry_at > 0 ? s->pause.retry_at : LOOP_NEVER;
}

void hutch_session_forget_pause(struct session *s)
{
    s->pause.by = PAUSED_BY_NOTHING;
    s->pause.is_told = false;
    s->pause.n_told = 0;
    s->pause.retry_at = 0;
}

void hutch_session_freeze(struct session *s)
{
    struct slot *slot = s->run->slot;

    if (!s->pause.is_on || s->pause.by != PAUSED_BY_NOTHING || !slot || slot->state != SLOT_RUNNING ||
        (s->state != SESSION_IDLE && s->state != SESSION_BUSY && s->state != SESSION_PARKED))
        return;
    s->pause.since = hutch_clock_ms(); /* until now its clocks have gone on */
    if (hutch_cgroup_freeze(&slot->sb.cgroup, true) == 0) {
        s->pause.by = PAUSED_BY_CGROUP;
    } else {
        s->pause.by = PAUSED_BY_SIGNALS;
        tell_init(s);
    }
    hutch_session_renew_pace(s);
}

static void thaw(struct session *s)
{
    struct slot *slot = s->run->slot;
    enum paused_by by = s->pause.by;

    s->pause.by = PAUSED_BY_NOTHING;
    if (!slot || by == PAUSED_BY_NOTHING)
        return;
    if (by == PAUSED_BY_SIGNALS)
        tell_init(s);
    if (by == PAUSED_BY_CGROUP && hutch_cgroup_freeze(&slot->sb.cgroup, false) < 0) {
        hutch_log_debug("session: it does not go on: %s", strerrordesc_np(errno));
        hutch_session_kill_interpreter(s); /* else it would stand still for ever */
        return;
    }
    hutch_session_renew_pace(s);
}

/* A deadline that was set before the pause comes as much later as the pause was long; one of 0 is not set. */
static void shift(double *at, double by_ms)
{
    if (*at > 0)
        *at += by_ms;
}

static void shift_clocks(struct session *s, double now)
{
    double by_ms = now - s->pause.since;

    s->t_used += now - (s->t_used > s->pause.since ? s->t_used : s->pause.since);
    shift(&s->kill_at, by_ms);
    shift(&s->settle_at, by_ms);
    shift(&s->signal_until, by_ms);
    shift(&s->cell.stop_at, by_ms);
    shift(&s->cell.check_at, by_ms);
    shift(&s->cell.execution.t_begun, by_ms);
    shift(&s->checkpoints.stop_at, by_ms);
    shift(&s->checkpoints.t_step, by_ms);
    shift(&s->question.t_begun, by_ms);
    shift(&s->question.stop_at, by_ms);
    shift(&s->question.give_up_at, by_ms);
}

void hutch_session_begin_pause(struct session *s)
{
    if (s->pause.is_on)
        return;
    s->pause.is_on = true;
    s->pause.since = hutch_clock_ms();
    hutch_session_freeze(s);
}

void hutch_session_end_pause(struct session *s)
{
    const double now = hutch_clock_ms();

    if (!s->pause.is_on)
        return;
    if (!hutch_session_clocks_stand(s))
        s->pause.since = now;
    s->pause.is_on = false;
    shift_clocks(s, now);
    thaw(s);
    hutch_processes_resume(s, now - s->pause.since);
    hutch_paths_shift_clocks(s, now - s->pause.since);
    hutch_paths_begin(s);
    hutch_loop_advance_deadline(&s->sessions->core->loop, &s->clock, 0);
    hutch_session_ask_for_work(s); /* what was given to it meanwhile */
}
