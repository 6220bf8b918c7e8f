#include "runtime/gateway/silence.h"

#include "runtime/gateway/exchange.h"
#include "sandbox/clock.h"

static void note_due(struct silences *all, double at_ms)
{
    if (at_ms < all->next_ms)
        all->next_ms = at_ms;
}

void hutch_silence_begin(struct silences *all, struct silence *s, struct exchange *x, const char *sign, size_t len,
                         double every_ms)
{
    hutch_silence_end(s);
    *s = (struct silence){ .x = x, .sign = sign, .len = len, .every_ms = every_ms, .spoke_ms = hutch_clock_ms() };
    if (LIST_EMPTY(&all->list))
        all->next_ms = s->spoke_ms + every_ms;
    note_due(all, s->spoke_ms + every_ms);
    LIST_INSERT_HEAD(&all->list, s, in_list);
}

void hutch_silence_end(struct silence *s)
{
    if (s->every_ms > 0)
        LIST_REMOVE(s, in_list);
    s->every_ms = 0;
}

void hutch_silence_break(struct silence *s)
{
    if (s->every_ms > 0)
        s->spoke_ms = hutch_clock_ms();
}

double hutch_silences_deadline(const struct silences *all)
{
    return LIST_EMPTY(&all->list) ? -1 : all->next_ms;
}

void hutch_silences_tick(struct silences *all, double now_ms)
{
    struct silence *s;

    if (LIST_EMPTY(&all->list) || now_ms < all->next_ms)
        return;
    all->next_ms = 1e300;
    LIST_FOREACH(s, &all->list, in_list) {
        if (now_ms >= s->spoke_ms + s->every_ms) {
            if (hutch_exchange_behind(s->x) == 0)
                hutch_exchange_write(s->x, s->sign, s->len);
            s->spoke_ms = now_ms; /* also where the client has yet to take what there is, which is a sign as well */
        }
        note_due(all, s->spoke_ms + s->every_ms);
    }
}
