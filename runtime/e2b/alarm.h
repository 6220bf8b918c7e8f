/* alarm.h - what is due at a time, in the server's loop. */
#ifndef HUTCH_E2B_ALARM_H
#define HUTCH_E2B_ALARM_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <sys/queue.h>

struct alarms;
struct exchange;
struct server;

/* One, a part of what it is for. All zeros but @on_due at first. */
struct alarm {
    LIST_ENTRY(alarm) in_list;
    bool is_set;
    double due_ms;
    void (*on_due)(struct alarm *alarm); /* once; it may set it again */
};

/* Those of the server of an exchange. */
struct alarms *hutch_e2b_alarms(const struct exchange *x);
/* @after_ms from now, in place of what was set before. */
void hutch_e2b_alarm_set(struct alarms *all, struct alarm *alarm, double after_ms);
void hutch_e2b_alarm_stop(struct alarm *alarm);

/* struct format_state's. */
void *hutch_e2b_alarms_open(struct server *server, const char *prefix, struct hutch_err *err);
double hutch_e2b_alarms_deadline(const void *state);
void hutch_e2b_alarms_tick(void *state);
void hutch_e2b_alarms_close(void *state);

#endif
