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
};

/* Nothing happens when it is so already. */
void hutch_session_begin_pause(struct session *session);
void hutch_session_end_pause(struct session *session);
/* Its sandbox is ready: it is stopped if the session is paused. */
void hutch_session_freeze(struct session *session);
/* Its processes were told to stand still. */
bool hutch_session_is_still(const struct session *session);
/* … and do, as far as is known. */
bool hutch_session_stands_still(const struct session *session);

#endif
