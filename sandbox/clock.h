/* clock.h - the one clock that everything is timed by, and the one that tells people the time. */
#ifndef HUTCH_CLOCK_H
#define HUTCH_CLOCK_H

#include <time.h>

/* Milliseconds of CLOCK_MONOTONIC; the difference of two is a duration. */
static inline double hutch_clock_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

/* Seconds since 1970, by CLOCK_REALTIME: it can be set, so nothing is timed by it. */
static inline double hutch_clock_unix(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

#endif
