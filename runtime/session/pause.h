/* pause.h - a session that stands still: its processes, and the clocks that would run out meanwhile. */
#ifndef HUTCH_SESSION_PAUSE_H
#define HUTCH_SESSION_PAUSE_H

#include <stdbool.h>

struct session;

enum paused_by {
    PAUSED_BY_NOTHING, /* there is no sandbox to pause, or it is not ready yet */
    PAUSED_BY_CGROUP,
    PAUSED_BY_SIGNALS,
};
struct session_pause {
    bool is_on;
    enum paused_by by;
    double since;      /* hutch_clock_ms() */
    bool is_told;      /* what process 1 was told last, by signals */
    unsigned n_told;   /* how often: it is told something else when it has answered that */
    double retry_at;   /* when that is tried again; 0: it is not needed */
};

/* Nothing happens when it is so already. */
void hutch_session_begin_pause(struct session *session);
void hutch_session_end_pause(struct session *session);
/* Its sandbox is ready: it is stopped if the session is paused. */
void hutch_session_freeze(struct session *session);
/* Its sandbox is gone: the next one was told nothing. */
void hutch_session_forget_pause(struct session *session);
/* Does what is due, and says when something is due next. */
double hutch_session_check_pause(struct session *session, double now);
/* Its clocks stand still, but for that of its lifetime. Those of a session that is opening go on until its sandbox can
 * be stopped: code of it may run before. */
bool hutch_session_clocks_stand(const struct session *session);
/* Its processes were told to stand still. */
bool hutch_session_is_still(const struct session *session);
/* … and do, as far as is known. */
bool hutch_session_stands_still(const struct session *session);

#endif
