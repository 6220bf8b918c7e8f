/* embed.c - runs snippets of Python, each in a fresh sandbox, from a program of one's own, by libhutch and poll(2).
 *
 *     cc -std=c11 -O2 embed.c $(pkg-config --cflags --libs libhutch) -o embed
 *     ./embed [HOW-MANY [AT-ONCE]] */
#define _POSIX_C_SOURCE 200809L
#include <hutch.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int in_flight, wrong;

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void on_result(void *user, uint64_t id, const struct hutch_result *result)
{
    double *ms = user; /* when it was handed in */

    *ms = now_ms() - *ms;
    in_flight--;
    if (result->verdict == HUTCH_OK && strcmp(result->out, "hello\n") == 0)
        return;
    wrong++;
    fprintf(stderr, "run %llu: %s %s%s\n", (unsigned long long)id, hutch_verdict_text(result->verdict), result->message,
            result->err);
}

static int submit(struct hutch_engine *engine, double *ms, struct hutch_error *err)
{
    struct hutch_request request;

    hutch_request_init(&request);
    request.code = "print('hello')";
    request.on_result = on_result;
    request.user = ms;
    *ms = now_ms();
    return hutch_engine_submit(engine, &request, NULL, err);
}

/* Waits until the engine has something to do, and lets it; on_result() is called from here. */
static int turn(struct hutch_engine *engine, struct hutch_error *err)
{
    struct pollfd pfd = { .fd = hutch_engine_fd(engine), .events = POLLIN };

    poll(&pfd, 1, -1);
    return hutch_engine_dispatch(engine, err);
}

static int by_size(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 1000, at_once = argc > 2 ? atoi(argv[2]) : 2, next = 0, failed = 0;
    double *ms = n > 0 ? calloc((size_t)n, sizeof(*ms)) : NULL;
    struct hutch_engine_stats stats = { .size = sizeof(stats) };
    struct hutch_zygote bare = { .name = "bare", .min = 4, .max = 8 }; /* no library, see the default for numpy */
    struct hutch_engine_options options;
    struct hutch_engine *engine;
    struct hutch_error err = { 0, "usage: embed [HOW-MANY [AT-ONCE]]" };

    hutch_engine_options_init(&options);
    options.zygotes = &bare;
    options.n_zygotes = 1;
    failed = !ms || at_once < 1 || hutch_engine_open(&options, &engine, &err) < 0;
    /* Runs may be handed in at once, and wait; this is for the times, which are to be those of a warm engine. */
    while (!failed && (stats.prepared == 0 || stats.building > 0)) {
        failed = turn(engine, &err) < 0;
        hutch_engine_get_stats(engine, &stats);
    }
    while (!failed && (next < n || in_flight > 0)) {
        if (next == n || in_flight == at_once)
            failed = turn(engine, &err) < 0;
        else if (submit(engine, &ms[next], &err) == 0)
            next++, in_flight++;
        else /* EAGAIN: the queue is full until a result comes */
            failed = err.code != EAGAIN || turn(engine, &err) < 0;
    }
    if (failed)
        return fprintf(stderr, "embed: %s\n", err.message), 1;
    hutch_engine_free(engine);
    qsort(ms, (size_t)n, sizeof(*ms), by_size);
    printf("%d snippets, %d wrong; ms: p50 %.3f  p90 %.3f  p99 %.3f  max %.3f\n", n, wrong, ms[n / 2], ms[n * 9 / 10],
           ms[n * 99 / 100], ms[n - 1]);
    free(ms);
    return wrong != 0;
}
