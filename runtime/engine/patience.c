#include "runtime/engine/patience.h"

#include "sandbox/clock.h"

#include <poll.h>

static void set_clock(struct patience *p, double now)
{
    hutch_loop_set_deadline(p->link->watch.loop, &p->clock, now + p->share * p->core->answer_ms / 2);
}

/* Something came that no handler has seen; or it was not asked, as packets wait for room that is not its to make. */
static bool is_excused(const struct link *link)
{
    struct pollfd fd = { .fd = link->fd, .events = POLLIN };

    return poll(&fd, 1, 0) != 0 || link->again.at < LOOP_NEVER;
}

static void ping(struct patience *p, double now)
{
    struct hutch_err ignored; /* that it did not get through: silence tells */

    p->was_ordered = false;
    p->is_pinged = true;
    p->pinged_at = now;
    hutch_link_send(p->link, p->ping, p->ping_len, NULL, 0, NULL, 0, &ignored);
    set_clock(p, now);
}

static void on_due(void *owner, double now)
{
    struct patience *p = owner;

    if (!p->is_pinged) {
        ping(p, now);
    } else if (p->link->heard_at >= p->pinged_at) {
        p->is_pinged = false;
        if (p->was_ordered)
            set_clock(p, now);
    } else if (hutch_loop_stood_still(p->link->watch.loop) > 0 || is_excused(p->link)) {
        set_clock(p, now);
    } else {
        p->is_pinged = false;
        p->on_silent(p->owner);
    }
}

void hutch_patience_init(struct patience *p, struct core *core, struct link *link, const void *ping_order,
                         size_t ping_len, void (*on_silent)(void *owner), void *owner)
{
    *p = (struct patience){ .core = core,
                            .link = link,
                            .share = 1,
                            .ping = ping_order,
                            .ping_len = ping_len,
                            .on_silent = on_silent,
                            .owner = owner,
                            .clock = DEADLINE_INIT(on_due, p) };
}

void hutch_patience_begin(struct patience *p)
{
    if (p->link->fd < 0)
        return;
    p->was_ordered = true;
    if (!p->is_pinged && p->clock.at >= LOOP_NEVER)
        set_clock(p, hutch_clock_ms());
}

void hutch_patience_end(struct patience *p)
{
    p->is_pinged = p->was_ordered = false;
    if (p->clock.at < LOOP_NEVER)
        hutch_loop_set_deadline(p->link->watch.loop, &p->clock, LOOP_NEVER);
}
