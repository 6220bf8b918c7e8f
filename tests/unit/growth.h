/* growth.h - how the work for an input grows with it. Processor time is compared, with much room and several attempts:
 * what is quadratic takes 16 times as long for four times the input, what is linear four times. */
#ifndef HUTCH_TEST_GROWTH_H
#define HUTCH_TEST_GROWTH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#define GROWTH_ATTEMPTS 3
#define GROWTH_MOST 10     /* times as long for four times the input */
#ifdef __SANITIZE_ADDRESS__ /* its allocator keeps what is freed, and takes longer the more that is */
#define GROWTH_IS_MEASURED 0
#else
#define GROWTH_IS_MEASURED 1
#endif
#define GROWTH_SHORT 0.025 /* seconds: less than this for the large input is nothing to compare */

/* Does the work for an input of size @n, from its making on. */
typedef void growth_fn(const void *context, size_t n);

static inline double growth_measure(growth_fn *work, const void *context, size_t n)
{
    struct timespec before, after;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    work(context, n);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    return (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
}

static inline void assert_grows_evenly(const char *label, growth_fn *work, const void *context, size_t n)
{
    double small = 0, large = 0;

    for (int i = 0; i < GROWTH_ATTEMPTS; i++) {
        small = growth_measure(work, context, n);
        large = growth_measure(work, context, 4 * n);
        if (!GROWTH_IS_MEASURED || large < GROWTH_SHORT || large < GROWTH_MOST * small)
            return;
    }
    fail_msg("%s: %zu took %.1f ms, four times as many %.1f ms", label, n, 1e3 * small, 1e3 * large);
}

#endif
