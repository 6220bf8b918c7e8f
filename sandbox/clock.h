/* clock.h - the one clock that everything is timed by. */
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

#endif
