/* watch.h - when to count what lies in /mnt/data again, while a run lives.
 *
 * A count costs time, more of it the more lies there, so counts of a tree that does not grow get rarer and take up
 * one part in ten of the time. A tree that grows is counted again before it can be full: at the latest when half of
 * the room that is left would be used up, at the fastest growth seen lately. */
#ifndef HUTCH_DATA_WATCH_H
#define HUTCH_DATA_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#define DATA_WATCH_FIRST_MS   50    /* from the start of a run to the first count: most runs are over by then */
#define DATA_WATCH_MAX_MS     250   /* between two counts, but for the price of a count */
#define DATA_WATCH_SHARE      10    /* a count may take one part in so many of the time, where the growth allows */
#define DATA_WATCH_FIRST_SIZE 4000  /* entries that the first count of a run looks at: some ms at most */

/* One count. */
struct data_count {
    uint64_t bytes, entries;
    double begun_ms, ended_ms; /* of one clock for all */
    bool is_cut;               /* there is more than was counted */
};

/* What earlier counts have shown; all 0 before the first. */
struct data_watch {
    uint64_t bytes, entries;                /* of the last count */
    double counted_ms;                      /* when growth since then began: the last count, or the run's start */
    double bytes_per_ms, entries_per_ms;    /* the last growth, or half of what it was before if that is more */
    double interval_ms;                     /* while nothing grows */
    bool is_known;                          /* bytes and entries are of a whole count */
};

/* A run begins, the first one or another in the same sandbox. Returns when the first count is due. */
double hutch_data_watch_begin(struct data_watch *w, double now_ms);

/* Returns when the next count is due after @count. Limits of 0 are none. */
double hutch_data_watch_next(struct data_watch *w, const struct data_count *count, uint64_t max_bytes,
                             uint64_t max_entries);

/* Whether the next count is a run's first, which a cold run bounds by DATA_WATCH_FIRST_SIZE. */
bool hutch_data_watch_is_first(const struct data_watch *w);

#endif
