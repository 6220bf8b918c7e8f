/* landing.c - the files of a session move from memory to the host's disk: where they are kept when it closes, and where
 * the process is gone that could mount the memory for another sandbox. */
#include "runtime/session/session_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void lose_files(struct session *s, const struct hutch_err *why)
{
    size_t len;

    hutch_session_begin_end(s, "it cannot go on"); /* which keeps the reason of one that is closing */
    len = strlen(s->why);
    snprintf(s->why + len, sizeof(s->why) - len, "; its files are lost: %.200s", why->msg);
    s->keep_data = false;
    s->data.volume.is_lost = false;
}

static void on_landed(void *owner, const struct disk_reply *reply, const int *fds, size_t n_fds)
{
    struct session *s = owner;
    struct hutch_err err;

    (void)fds;
    (void)n_fds;
    hutch_session_ask_for_work(s);
    if (!reply) /* the disk worker is gone, and what it had begun; the next one is asked */
        return;
    if (reply->has_failed)
        hutch_err_say(&err, reply->err.errnum, "%s", reply->err.msg);
    if ((reply->has_failed && reply->err.errnum != EEXIST) ||
        hutch_session_data_take_landed(&s->data, s->run, &err) < 0)
        lose_files(s, &err);
}

bool hutch_session_land(struct session *s)
{
    struct hutch_err err;

    if (s->landing.id != 0)
        return false;
    if (!hutch_session_data_is_in_memory(&s->data) ||
        (!s->data.volume.is_lost && hutch_session_data_is_empty(&s->data)))
        return true;
    s->landing.on_done = on_landed;
    s->landing.owner = s;
    if (hutch_session_data_begin_landing(&s->data, &s->run->runs->slots->looks, &s->landing))
        return false;
    if (s->sessions->helper->disk.fd < 0 && !s->sessions->core->is_broken)
        return false; /* hutch_sessions_on_launcher() follows */
    if (hutch_session_data_land(&s->data, s->run, &err) < 0)
        lose_files(s, &err);
    return true;
}

void hutch_sessions_on_lost_opener(struct sessions *sessions)
{
    struct session *s;

    /* Its volumes belong to a user namespace in which no process is left, and none can map owners for the next. */
    TAILQ_FOREACH(s, &sessions->list, link) {
        s->data.volume.is_lost = hutch_session_data_is_in_memory(&s->data);
        if (s->data.volume.is_lost && s->state == SESSION_SEATING &&
            (!s->run->slot || s->run->slot->state < SLOT_RUNNING)) {
            hutch_run_withdraw(s->run);
            hutch_session_set_state(s, SESSION_SEEKING);
        }
    }
}

void hutch_sessions_on_launcher(struct sessions *sessions)
{
    struct session *s;

    TAILQ_FOREACH(s, &sessions->list, link)
        if (hutch_session_data_is_in_memory(&s->data))
            hutch_session_ask_for_work(s);
}
