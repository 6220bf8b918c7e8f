#include "common.h"

#include "runtime/hutch.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void bench_die(const char *fmt, ...)
{
    va_list args;

    fprintf(stderr, "%s: ", program_invocation_short_name);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

double bench_now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

void bench_turn(struct hutch_engine *engine, double until)
{
    struct pollfd pfd = { .fd = hutch_engine_fd(engine), .events = POLLIN };
    double left = until - bench_now_ms();
    struct timespec ts = { 0 };
    struct hutch_error err;

    if (left > 0) {
        ts.tv_sec = (time_t)(left / 1e3);
        ts.tv_nsec = (long)(fmod(left, 1e3) * 1e6);
    }
    if (ppoll(&pfd, 1, &ts, NULL) <= 0)
        return;
    if (hutch_engine_dispatch(engine, &err) < 0)
        bench_die("%s", err.message);
}

void bench_wait_for_pool(struct hutch_engine *engine)
{
    double limit = bench_now_ms() + BENCH_START_MAX_S * 1e3;

    for (;;) {
        struct hutch_engine_stats stats = { .size = sizeof(stats) };
        bool is_ready = true;

        hutch_engine_get_stats(engine, &stats);
        for (size_t i = 0; i < stats.n_zygotes; i++)
            is_ready = is_ready && stats.zygotes[i].is_ready;
        if (is_ready && stats.building == 0 && stats.prepared > 0 && stats.running == 0 && stats.queued == 0)
            return;
        if (bench_now_ms() > limit)
            bench_die("the pool is not full after %d s: %u prepared, %u being built", BENCH_START_MAX_S, stats.prepared,
                      stats.building);
        bench_turn(engine, bench_now_ms() + 100);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

void bench_print_times(const char *name, double *ms, unsigned n)
{
    qsort(ms, n, sizeof(*ms), compare);
#define AT(share) ms[(unsigned)((double)(n - 1) * (share) + 0.5)]
    printf("\"%s\": {\"n\": %u, \"p50\": %.4f, \"p90\": %.4f, \"p99\": %.4f, \"max\": %.4f}", name, n, AT(0.5), AT(0.9),
           AT(0.99), AT(1.0));
#undef AT
}

double bench_number(const char *text, double min, double max)
{
    char *end;
    double n = strtod(text, &end);

    if (!*text || *end || !(n >= min && n <= max)) {
        fprintf(stderr, "%s: '%s' is not a number from %g to %g\n", program_invocation_short_name, text, min, max);
        exit(2);
    }
    return n;
}
