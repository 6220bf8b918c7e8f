/* warm.c - times of the warm engine as a program sees them that embeds it: nothing of hutch's is used but hutch.h.
 *
 *     warm SCENARIO --code TEXT --want TEXT [options]
 *
 *   paced    one run after the other, each when the pool is full again: what a lone caller waits
 *   demand   a pool of one sandbox and two runs at once: the time of the one for which a sandbox has to be built
 *   closed   always --concurrency runs under way, the next one handed in when a result comes
 *   open     runs handed in at random times, --rate of them a second on average, however long the others take. A time
 *            counts from when a run was due, not from when this program got round to it, so that a slow run is not kept
 *            from being counted by those that it holds up
 *   hold     keeps --count sandboxes prepared (or, with --code, --count runs that have printed something) until a line
 *            comes on stdin
 *
 * Every result is checked: another output than --want, or any verdict but "ok", is an error. Prints one JSON object.
 *
 * With --beside TEXT there is a neighbour, a program that runs in the same engine all the time, from before counting
 * begins: how it ends does not matter, and it is started again. Then a run that went wrong is counted as failed. */
#include "common.h"
#include "runtime/hutch.h"

#include <getopt.h>
#include <math.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STALL_MAX_S 60  /* without a result */
#define MAX_FLIGHT  4096
#define BESIDE_S    2   /* that the neighbour has for itself first */

enum part { TOTAL, QUEUED, PREPARED, RUN, ENGINE_TOTAL, PARTS };
static const char *const part_names[PARTS] = { "total", "queued", "prepared", "run", "engine_total" };

struct settings {
    const char *scenario, *code, *want, *zygotes, *image, *policy, *beside;
    unsigned rounds, concurrency, pool, pool_max, running, count, warm_up;
    double seconds, rate;
};

struct flight {
    struct bench *bench;
    double due; /* ms on the monotonic clock */
    bool is_used, is_counted, has_printed, is_neighbour;
};

struct bench {
    struct settings settings;
    struct hutch_engine *engine;
    struct flight flights[MAX_FLIGHT];
    double *times[PARTS]; /* ms, one row for each counted result */
    double first, last;   /* when the first and the last counted result came */
    unsigned n, room;     /* counted, and space for them */
    unsigned done;        /* all results */
    unsigned in_flight, from_pool, restarts, printed, failed, neighbours;
    bool is_ending; /* no further neighbour */
    double last_event;    /* of any result */
};

/* --- the engine --- */

static void open_engine(struct bench *b)
{
    static const char *const all[] = { "numpy", "pandas", "matplotlib", "matplotlib.pyplot", "IPython", NULL };
    static const char *const none[] = { NULL };
    const struct settings *s = &b->settings;
    bool is_full = strcmp(s->zygotes, "full") == 0;
    struct hutch_zygote zygotes[] = {
        { .name = "bare", .modules = none, .min = is_full ? 1 : s->pool, .max = is_full ? 1 : s->pool_max },
        { .name = "full", .parent = "bare", .modules = all, .min = s->pool, .max = s->pool_max },
    };
    struct hutch_engine_options options;
    struct hutch_error err;

    hutch_engine_options_init(&options);
    options.image = s->image;
    options.policy = s->policy;
    options.max_running = s->running;
    options.max_queued = MAX_FLIGHT;
    options.recycle_forks = 1000000; /* measured apart from what recycling may cost */
    options.layouts = 1; /* further trees of zygotes begin in a pause, and would be in the figures of memory */
    if (strcmp(s->zygotes, "tree") != 0) {
        options.zygotes = zygotes;
        options.n_zygotes = is_full ? 2 : 1;
    }
    if (hutch_engine_open(&options, &b->engine, &err) < 0)
        bench_die("%s", err.message);
}

/* --- runs --- */

static void start_neighbour(struct bench *b);

static void on_result(void *user, uint64_t id, const struct hutch_result *result)
{
    struct flight *flight = user;
    struct bench *b = flight->bench;
    double now = bench_now_ms();
    bool is_right = result->verdict == HUTCH_OK && result->exit_code == 0 &&
                    (!b->settings.want || strcmp(result->out, b->settings.want) == 0);

    (void)id;
    if (flight->is_neighbour) {
        flight->is_used = false;
        start_neighbour(b);
        return;
    }
    if (b->settings.beside) {
        b->failed += flight->is_counted && !is_right;
    } else if (result->verdict != HUTCH_OK || result->exit_code != 0) {
        bench_die("a run ended with '%s' (%s): %.500s", hutch_verdict_text(result->verdict), result->message,
                  result->err);
    } else if (!is_right) {
        bench_die("a run printed '%.200s' and not '%s'", result->out, b->settings.want);
    }
    flight->is_used = false;
    b->in_flight--;
    b->done++;
    b->last_event = now;
    if (!flight->is_counted || b->n == b->room)
        return;
    if (strcmp(b->settings.scenario, "demand") == 0 && result->was_prepared)
        bench_die("a run that should have found an empty pool has found a sandbox in it");
    if (b->n == 0)
        b->first = now;
    b->last = now;
    b->times[TOTAL][b->n] = now - flight->due;
    b->times[QUEUED][b->n] = result->queued_ms;
    b->times[PREPARED][b->n] = result->prepared_ms;
    b->times[RUN][b->n] = result->run_ms;
    b->times[ENGINE_TOTAL][b->n] = result->total_ms;
    b->from_pool += result->was_prepared ? 1 : 0;
    b->restarts += (unsigned)result->restarts;
    b->n++;
}

static void on_output(void *user, uint64_t id, int stream, const char *data, size_t len)
{
    struct flight *flight = user;

    (void)id;
    if (stream == 2)
        bench_die("a run says: %.*s", (int)len, data);
    flight->bench->printed += !flight->has_printed; /* one print() may come in pieces */
    flight->has_printed = true;
}

static struct flight *find_flight(struct bench *b)
{
    struct flight *flight = b->flights;

    while (flight < b->flights + MAX_FLIGHT && flight->is_used)
        flight++;
    if (flight == b->flights + MAX_FLIGHT)
        bench_die("%d runs are under way: the engine does not keep up", MAX_FLIGHT);
    return flight;
}

static void start_neighbour(struct bench *b)
{
    struct hutch_request request;
    struct hutch_error err;
    struct flight *flight = find_flight(b);
    uint64_t id;

    if (b->is_ending)
        return;
    *flight = (struct flight){ .bench = b, .is_used = true, .is_neighbour = true };
    hutch_request_init(&request);
    request.code = b->settings.beside;
    request.on_result = on_result;
    request.user = flight;
    if (hutch_engine_submit(b->engine, &request, &id, &err) < 0)
        bench_die("%s", err.message);
    b->neighbours++;
}

static void settle_neighbour(struct bench *b)
{
    double end = bench_now_ms() + BESIDE_S * 1e3;

    bench_wait_for_pool(b->engine);
    start_neighbour(b);
    while (bench_now_ms() < end)
        bench_turn(b->engine, end);
}

static uint64_t submit(struct bench *b, double due, bool is_counted)
{
    struct hutch_request request;
    struct hutch_error err;
    struct flight *flight = find_flight(b);
    uint64_t id;

    *flight = (struct flight){ .bench = b, .due = due, .is_used = true, .is_counted = is_counted };
    hutch_request_init(&request);
    request.code = b->settings.code;
    request.on_result = on_result;
    request.user = flight;
    if (strcmp(b->settings.scenario, "hold") == 0)
        request.on_output = on_output;
    if (hutch_engine_submit(b->engine, &request, &id, &err) < 0)
        bench_die("%s", err.message);
    b->in_flight++;
    return id;
}

static void wait_for_result(struct bench *b)
{
    unsigned before = b->done;

    for (b->last_event = bench_now_ms(); b->done == before;) {
        if (bench_now_ms() - b->last_event > STALL_MAX_S * 1e3)
            bench_die("no result for %d s, with %u runs under way", STALL_MAX_S, b->in_flight);
        bench_turn(b->engine, bench_now_ms() + 1000);
    }
}

static void wait_for_all(struct bench *b)
{
    while (b->in_flight)
        wait_for_result(b);
}

/* --- scenarios --- */

static void run_paced(struct bench *b)
{
    for (unsigned i = 0; i < b->settings.warm_up + b->settings.rounds; i++) {
        bench_wait_for_pool(b->engine);
        submit(b, bench_now_ms(), i >= b->settings.warm_up);
        wait_for_result(b);
    }
}

static void run_demand(struct bench *b)
{
    for (unsigned i = 0; i < b->settings.warm_up + b->settings.rounds; i++) {
        bench_wait_for_pool(b->engine);
        submit(b, bench_now_ms(), false);
        submit(b, bench_now_ms(), i >= b->settings.warm_up);
        wait_for_all(b);
    }
}

/* The pool is empty and everything under way when counting begins; it ends before the last runs, which have the machine
 * to themselves. */
static void run_closed(struct bench *b)
{
    unsigned warm_up = b->settings.warm_up + 2 * b->settings.concurrency, handed_in = 0;
    double end = 0;

    bench_wait_for_pool(b->engine);
    while (b->n < b->settings.rounds || bench_now_ms() < end) {
        while (b->in_flight < b->settings.concurrency)
            submit(b, bench_now_ms(), handed_in++ >= warm_up);
        wait_for_result(b);
        if (b->n > 0 && end == 0)
            end = b->first + b->settings.seconds * 1e3;
    }
    wait_for_all(b);
}

static double random_unit(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (double)(*state >> 11) / 9007199254740992.0;
}

/* Arrivals of many independent callers: the times between them are distributed exponentially. Always the same ones. */
static void run_open(struct bench *b)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    unsigned warm_up = b->settings.warm_up, handed_in = 0;
    double due;

    if (!b->settings.beside)
        bench_wait_for_pool(b->engine);
    due = bench_now_ms();
    while (b->n < b->settings.rounds) {
        double now = bench_now_ms();

        for (; due <= now && handed_in < warm_up + b->settings.rounds; handed_in++) {
            submit(b, due, handed_in >= warm_up);
            due -= log(1 - random_unit(&state)) / b->settings.rate * 1e3;
        }
        if (now - (b->last_event ? b->last_event : now) > STALL_MAX_S * 1e3)
            bench_die("no result for %d s, with %u runs under way", STALL_MAX_S, b->in_flight);
        bench_turn(b->engine, due < now + 100 && handed_in < warm_up + b->settings.rounds ? due : now + 100);
    }
}

static void run_hold(struct bench *b)
{
    struct hutch_engine_stats stats = { .size = sizeof(stats) };
    struct pollfd in = { .fd = 0, .events = POLLIN };
    uint64_t ids[MAX_FLIGHT];
    unsigned n = b->settings.code ? b->settings.count : 0;

    bench_wait_for_pool(b->engine);
    for (unsigned i = 0; i < n; i++)
        ids[i] = submit(b, bench_now_ms(), false);
    for (double limit = bench_now_ms() + BENCH_START_MAX_S * 1e3; b->printed < n;) {
        if (bench_now_ms() > limit)
            bench_die("%u of %u runs have printed something after %d s", b->printed, n, BENCH_START_MAX_S);
        bench_turn(b->engine, bench_now_ms() + 100);
    }
    hutch_engine_get_stats(b->engine, &stats);
    printf("{\"prepared\": %u, \"running\": %u, \"launcher\": %d, \"zygotes\": {", stats.prepared, stats.running,
           stats.launcher_pid);
    for (size_t i = 0; i < stats.n_zygotes; i++)
        printf("%s\"%s\": %d", i ? ", " : "", stats.zygotes[i].name, stats.zygotes[i].pid);
    printf("}}\n");
    fflush(stdout);
    while (poll(&in, 1, 0) == 0)
        bench_turn(b->engine, bench_now_ms() + 50);
    (void)ids; /* freeing the engine ends them */
}

/* --- output --- */

static void print_result(struct bench *b)
{
    struct hutch_engine_stats stats = { .size = sizeof(stats) };

    hutch_engine_get_stats(b->engine, &stats);
    printf("{\"scenario\": \"%s\", ", b->settings.scenario);
    for (int i = 0; i < PARTS; i++) {
        bench_print_times(part_names[i], b->times[i], b->n);
        printf(", ");
    }
    if (b->settings.beside)
        printf("\"failed\": %u, \"neighbours\": %u, ", b->failed, b->neighbours);
    printf("\"rate_per_s\": %.1f, \"from_pool\": %u, \"on_demand\": %u, \"restarts\": %u, \"lost\": %llu}\n",
           b->n > 1 && b->last > b->first ? (b->n - 1) / ((b->last - b->first) / 1e3) : 0.0, b->from_pool,
           b->n - b->from_pool, b->restarts,
           (unsigned long long)(stats.lost_zygotes + stats.lost_launchers + stats.lost_sandboxes));
}

static const struct {
    const char *name;
    void (*run)(struct bench *b);
} scenarios[] = {
    { "paced", run_paced }, { "demand", run_demand }, { "closed", run_closed },
    { "open", run_open },   { "hold", run_hold },
};

int main(int argc, char **argv)
{
    static const struct option options[] = {
        { "code", required_argument, NULL, 'c' },        { "want", required_argument, NULL, 'w' },
        { "zygotes", required_argument, NULL, 'z' },     { "image", required_argument, NULL, 'i' },
        { "rounds", required_argument, NULL, 'r' },      { "seconds", required_argument, NULL, 's' },
        { "concurrency", required_argument, NULL, 'n' }, { "rate", required_argument, NULL, 'p' },
        { "pool", required_argument, NULL, 'm' },        { "pool-max", required_argument, NULL, 'x' },
        { "running", required_argument, NULL, 'R' },     { "count", required_argument, NULL, 'k' },
        { "warm-up", required_argument, NULL, 'u' },     { "beside", required_argument, NULL, 'b' },
        { "policy", required_argument, NULL, 'l' },
        { NULL, 0, NULL, 0 },
    };
    static struct bench bench = { .settings = { .zygotes = "tree",
                                                .rounds = 2000,
                                                .concurrency = 1,
                                                .pool = 4,
                                                .pool_max = 8,
                                                .count = 16,
                                                .warm_up = 20,
                                                .rate = 100 } };
    struct settings *s = &bench.settings;
    size_t i = 0;
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (c) {
        case 'c': s->code = optarg; break;
        case 'w': s->want = optarg; break;
        case 'z': s->zygotes = optarg; break;
        case 'i': s->image = optarg; break;
        case 'r': s->rounds = (unsigned)bench_number(optarg, 1, 1e7); break;
        case 's': s->seconds = bench_number(optarg, 0, 3600); break;
        case 'n': s->concurrency = (unsigned)bench_number(optarg, 1, MAX_FLIGHT); break;
        case 'p': s->rate = bench_number(optarg, 0.001, 1e6); break;
        case 'm': s->pool = (unsigned)bench_number(optarg, 1, MAX_FLIGHT); break;
        case 'x': s->pool_max = (unsigned)bench_number(optarg, 1, MAX_FLIGHT); break;
        case 'R': s->running = (unsigned)bench_number(optarg, 1, MAX_FLIGHT); break;
        case 'k': s->count = (unsigned)bench_number(optarg, 1, MAX_FLIGHT); break;
        case 'b': s->beside = optarg; break;
        case 'l': s->policy = optarg; break;
        case 'u': s->warm_up = (unsigned)bench_number(optarg, 0, 1e6); break;
        default: optind = argc; break;
        }
    if (optind + 1 == argc)
        s->scenario = argv[optind];
    while (i < sizeof(scenarios) / sizeof(scenarios[0]) && s->scenario && strcmp(scenarios[i].name, s->scenario) != 0)
        i++;
    if (!s->scenario || i == sizeof(scenarios) / sizeof(scenarios[0]) ||
        (strcmp(s->zygotes, "tree") != 0 && strcmp(s->zygotes, "bare") != 0 && strcmp(s->zygotes, "full") != 0)) {
        fprintf(
            stderr,
            "usage: warm paced|demand|closed|open|hold [--code TEXT] [--want TEXT] [--zygotes tree|bare|full] "
            "[--image NAME]\n"
            "            [--rounds N] [--warm-up N] [--seconds S] [--concurrency N] [--rate PER_S] [--pool MIN]\n"
            "            [--pool-max MAX] [--running N] [--count N] [--policy NAME] [--beside TEXT]\n");
        return 2;
    }
    if (strcmp(s->scenario, "demand") == 0)
        s->pool = s->pool_max = 1;
    if (strcmp(s->scenario, "hold") == 0) {
        s->pool = s->pool_max = s->code ? 1 : s->count;
        s->running = s->count;
    } else if (!s->code || !s->want) {
        fprintf(stderr, "warm: --code and --want are needed\n");
        return 2;
    }
    if (s->pool_max < s->pool)
        s->pool_max = s->pool;
    bench.room = s->rounds + (unsigned)(s->seconds * 20000); /* more than any machine does */
    for (int p = 0; p < PARTS; p++) {
        bench.times[p] = calloc(bench.room, sizeof(double));
        if (!bench.times[p])
            bench_die("no memory for %u times", bench.room);
    }
    open_engine(&bench);
    if (s->beside)
        settle_neighbour(&bench);
    scenarios[i].run(&bench);
    bench.is_ending = true;
    if (strcmp(s->scenario, "hold") != 0)
        print_result(&bench);
    hutch_engine_free(bench.engine);
    return 0;
}
