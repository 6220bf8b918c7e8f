/* idle.c - how often the sandboxes of sessions are checked between their cells. */
#include "runtime/session/session_priv.h"

#include <errno.h>

#define IDLE_MIN_MS 100  /* from one check of an idle sandbox to the next … */
#define IDLE_MAX_MS 2000
/* … so that there are no more of them in a second: all of them together take some hundredths of a CPU */
#define IDLE_CHECKS 2000

static void set_pace(struct session *s)
{
    int ms = s->is_idle ? s->sessions->idle_check_ms : 0;

    if (hutch_session_is_still(s)) { /* a frozen init reads no orders, and nothing in the sandbox changes */
        if (s->pause.by == PAUSED_BY_SIGNALS)
            hutch_sandbox_order(&s->run->slot->sb, INIT_CHECK_INTERVAL, IDLE_MAX_MS);
        hutch_supervisor_set_idle(s->run->slot->supervisor, IDLE_MAX_MS);
        return;
    }
    /* One that is to idle may be looked at more often than need be, one that wakes up never less often. */
    if (hutch_sandbox_order(&s->run->slot->sb, INIT_CHECK_INTERVAL, ms) < 0 && ms == 0) {
        struct hutch_err err;

        hutch_err_set(&err, errno, "have the sandbox of a session watched");
        hutch_supervisor_fail(s->run->slot->supervisor, &err);
    }
    hutch_supervisor_set_idle(s->run->slot->supervisor, ms);
    /* Its next check was chosen by the interval before: a cell's limits hold from its begin. */
    hutch_loop_advance_deadline(&s->sessions->core->loop, &s->run->slot->clock, 0);
}

/* The more sandboxes are idle, the less often each is checked. */
static void choose_pace(struct sessions *sessions)
{
    unsigned ms = sessions->n_idle * 1000 / IDLE_CHECKS;
    struct session *s;

    ms = ms < IDLE_MIN_MS ? IDLE_MIN_MS : ms > IDLE_MAX_MS ? IDLE_MAX_MS : ms;
    if (sessions->idle_check_ms > 0 && (int)ms < sessions->idle_check_ms * 5 / 4 &&
        (int)ms > sessions->idle_check_ms / 2)
        return;
    sessions->idle_check_ms = (int)ms;
    TAILQ_FOREACH(s, &sessions->list, link)
        if (s->is_idle && s->run->slot)
            set_pace(s);
}

void hutch_session_set_idle(struct session *s, bool is_idle)
{
    if (s->is_idle == is_idle)
        return;
    s->is_idle = is_idle;
    s->sessions->n_idle += is_idle ? 1 : -1u;
    choose_pace(s->sessions);
    if (s->run->slot)
        set_pace(s);
}

void hutch_session_renew_pace(struct session *s)
{
    if (s->run->slot)
        set_pace(s);
}
