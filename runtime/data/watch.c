#include "runtime/data/watch.h"

#include <float.h>

static double lesser(double a, double b)
{
    return a < b ? a : b;
}

static double greater(double a, double b)
{
    return a > b ? a : b;
}

double hutch_data_watch_begin(struct data_watch *w, double now_ms)
{
    w->counted_ms = now_ms;
    w->interval_ms = 0;
    return now_ms + DATA_WATCH_FIRST_MS;
}

bool hutch_data_watch_is_first(const struct data_watch *w)
{
    return w->interval_ms == 0;
}

/* A program that pauses between two bursts is not slower for it: what was seen before counts for half, then a
 * quarter. */
static double growth(double before, uint64_t from, uint64_t to, double ms)
{
    double now = to > from ? (double)(to - from) / (ms > 1 ? ms : 1) : 0;

    return greater(now, before / 2);
}

/* How long half of the room that is left lasts. */
static double time_left(uint64_t used, uint64_t max, double per_ms)
{
    if (max == 0 || per_ms <= 0)
        return DBL_MAX;
    return used < max ? (double)(max - used) / per_ms / 2 : 0;
}

double hutch_data_watch_next(struct data_watch *w, const struct data_count *count, uint64_t max_bytes,
                             uint64_t max_entries)
{
    double took = count->ended_ms - count->begun_ms, wait, left;
    bool is_first = hutch_data_watch_is_first(w);

    if (w->is_known && !count->is_cut) {
        w->bytes_per_ms = growth(w->bytes_per_ms, w->bytes, count->bytes, count->begun_ms - w->counted_ms);
        w->entries_per_ms = growth(w->entries_per_ms, w->entries, count->entries, count->begun_ms - w->counted_ms);
    }
    w->interval_ms = is_first ? DATA_WATCH_FIRST_MS : lesser(2 * w->interval_ms, DATA_WATCH_MAX_MS);
    wait = greater(w->interval_ms, took * DATA_WATCH_SHARE);
    left = lesser(time_left(count->bytes, max_bytes, w->bytes_per_ms),
                  time_left(count->entries, max_entries, w->entries_per_ms));
    if (!w->is_known || count->is_cut) /* one count shows no growth: the second has to come soon */
        left = lesser(left, w->interval_ms);
    /* However fast it grows, counts take half of the time at most. */
    wait = greater(lesser(wait, left), greater(took, 1));
    w->bytes = count->bytes;
    w->entries = count->entries;
    w->counted_ms = count->begun_ms;
    w->is_known = !count->is_cut;
    return count->ended_ms + wait;
}
