#include "runtime/session/data_wait.h"

#include "runtime/session/session_priv.h"
#include "sandbox/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

void hutch_data_waits_init(struct data_waits *waits)
{
    TAILQ_INIT(&waits->list);
}

static struct data_wait *take_first(struct data_waits *waits)
{
    struct data_wait *w = TAILQ_FIRST(&waits->list);

    TAILQ_REMOVE(&waits->list, w, link);
    waits->n--;
    return w;
}

void hutch_data_waits_done(struct data_waits *waits)
{
    while (!TAILQ_EMPTY(&waits->list))
        free(take_first(waits));
}

int hutch_data_waits_add(struct session *s, hutch_on_reply on_reply, void *user, struct hutch_err *err)
{
    struct data_wait *w;

    if (s->data_waits.n >= DATA_WAITS_MAX)
        return hutch_err_say(err, EAGAIN, "%u wait already for the session's files, which is the most that may",
                             s->data_waits.n);
    w = calloc(1, sizeof(*w));
    if (!w)
        return hutch_err_set(err, ENOMEM, "wait for a session's files");
    w->on_reply = on_reply;
    w->user = user;
    w->t_begun = hutch_clock_ms();
    TAILQ_INSERT_TAIL(&s->data_waits.list, w, link);
    s->data_waits.n++;
    hutch_session_ask_for_work(s);
    return 0;
}

void hutch_data_waits_refuse(struct session *s, const char *why)
{
    struct data_wait *w;

    TAILQ_FOREACH(w, &s->data_waits.list, link)
        if (!w->why[0])
            snprintf(w->why, sizeof(w->why), "%s", why);
    hutch_session_ask_for_work(s);
}

static void tell(struct session *s, const struct data_wait *w)
{
    const struct hutch_reply reply = {
        .size = sizeof(reply),
        .ok = w->why[0] == '\0',
        .message = w->why,
        .lost = "[]",
        .ms = hutch_clock_ms() - w->t_begun,
    };

    if (w->on_reply)
        w->on_reply(w->user, s->id, &reply);
}

void hutch_data_waits_work(struct session *s)
{
    struct data_wait *w;

    for (unsigned n = s->data_waits.n; n > 0; n--) { /* a callback may add to them */
        w = take_first(&s->data_waits);
        if (w->why[0] || s->data.dirfd >= 0) {
            s->t_used = hutch_clock_ms();
            tell(s, w);
            free(w);
        } else {
            TAILQ_INSERT_TAIL(&s->data_waits.list, w, link);
            s->data_waits.n++;
        }
    }
}

bool hutch_data_waits_any(const struct session *s)
{
    const struct data_wait *w;

    TAILQ_FOREACH(w, &s->data_waits.list, link)
        if (!w->why[0])
            return true;
    return false;
}
