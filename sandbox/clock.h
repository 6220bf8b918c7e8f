/* clock.h - the one clock that everything is timed by. */
#ifndef HUTCH_CLOCK_H
#define HUTCH_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Milliseconds of CLOCK_MONOTONIC; the difference of two is a duration. */
static inline int64_t hutch_clock_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

#endif
