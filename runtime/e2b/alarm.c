#include "runtime/e2b/alarm.h"

#include "runtime/gateway/host.h"
#include "sandbox/clock.h"

#include <errno.h>
#include <stdlib.h>

struct alarms {
    LIST_HEAD(, alarm) list;
};

struct alarms *hutch_e2b_alarms(const struct exchange *x)
{
    return hutch_server_state(x);
}

void hutch_e2b_alarm_set(struct alarms *all, struct alarm *alarm, double after_ms)
{
    alarm->due_ms = hutch_clock_ms() + after_ms;
    if (!alarm->is_set)
        LIST_INSERT_HEAD(&all->list, alarm, in_list);
    alarm->is_set = true;
}

void hutch_e2b_alarm_stop(struct alarm *alarm)
{
    if (alarm->is_set)
        LIST_REMOVE(alarm, in_list);
    alarm->is_set = false;
}

void *hutch_e2b_alarms_open(struct server *server, const char *prefix, struct hutch_err *err)
{
    struct alarms *all = calloc(1, sizeof(*all));

    (void)server;
    (void)prefix;
    if (!all)
        hutch_err_set(err, ENOMEM, "begin");
    else
        LIST_INIT(&all->list);
    return all;
}

static struct alarm *first(const struct alarms *all)
{
    struct alarm *found = NULL, *alarm;

    LIST_FOREACH(alarm, &all->list, in_list)
        if (!found || alarm->due_ms < found->due_ms)
            found = alarm;
    return found;
}

double hutch_e2b_alarms_deadline(const void *state)
{
    const struct alarm *alarm = first(state);

    return alarm ? alarm->due_ms : -1;
}

void hutch_e2b_alarms_tick(void *state)
{
    double now_ms = hutch_clock_ms();
    struct alarm *alarm;

    while ((alarm = first(state)) && alarm->due_ms <= now_ms) {
        hutch_e2b_alarm_stop(alarm);
        alarm->on_due(alarm);
    }
}

void hutch_e2b_alarms_close(void *state)
{
    struct alarm *alarm;

    while ((alarm = first(state)))
        hutch_e2b_alarm_stop(alarm);
    free(state);
}
