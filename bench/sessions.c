/* sessions.c - times of sessions as a program sees them that embeds the engine: nothing of hutch's is used but hutch.h.
 *
 *     sessions SCENARIO [--code TEXT]... [--want TEXT] [options]
 *
 *   cell        one session, and the same cell again and again: from hutch_session_execute() to its result
 *   open        a new session from a full pool each time: from hutch_session_open() to the result of its first cell
 *   notebook    likewise to the result of the last of all cells given, each handed in when the one before is done
 *   checkpoint  a session in whose state the first --code is; then again and again: checkpoint, the second --code,
 *               which destroys that state, roll back, the third, which looks at it; fork, switch to the branch and back
 *   hold        --count sessions that have executed all cells, kept until a line comes on stdin
 *
 * Every result is checked: the last cell's outputs have to contain --want, and any verdict but "ok" is an error. Prints
 * one JSON object. */
#include "common.h"
#include "runtime/hutch.h"

#include <getopt.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define STALL_MAX_MS 60000
#define MAX_CODES    64

struct settings {
    const char *scenario, *codes[MAX_CODES], *want, *image;
    unsigned n_codes, rounds, count, pool, warm_up;
};

struct bench {
    struct settings settings;
    struct hutch_engine *engine;
    double *times[8]; /* ms, a row for each thing that is measured */
    unsigned n;       /* counted rounds */

    /* of the call that is waited for */
    bool is_done;
    const char *want;
    double run_ms;
    uint64_t id;
    unsigned results; /* of all sessions, with "hold" */
};

/* --- one thing after the other --- */

static void wait_until_done(struct bench *b, const char *what)
{
    for (double limit = bench_now_ms() + STALL_MAX_MS; !b->is_done;) {
        if (bench_now_ms() > limit)
            bench_die("nothing comes of it after a minute: %s", what);
        bench_turn(b->engine, limit);
    }
}

static void on_result(void *user, uint64_t session, const struct hutch_cell_result *result)
{
    struct bench *b = user;

    (void)session;
    if (result->verdict != HUTCH_OK)
        bench_die("a cell ended with '%s' (%s): %.1000s", hutch_verdict_text(result->verdict), result->message,
                  result->error_traceback ? result->error_traceback : "");
    if (b->want && !strstr(result->outputs, b->want))
        bench_die("the outputs of a cell are without '%s': %.300s", b->want, result->outputs);
    b->run_ms = result->run_ms;
    b->is_done = true;
    b->results++;
}

static void on_end(void *user, uint64_t session, const char *why, const char *directory)
{
    struct bench *b = user;

    (void)session;
    (void)why;
    (void)directory;
    b->is_done = true;
}

static void hand_in(struct bench *b, uint64_t session, const char *code, const char *want)
{
    struct hutch_cell cell;
    struct hutch_error err;

    hutch_cell_init(&cell);
    cell.code = code;
    cell.on_result = on_result;
    cell.user = b;
    b->is_done = false;
    b->want = want;
    if (hutch_session_execute(b->engine, session, &cell, &err) < 0)
        bench_die("%s", err.message);
}

static uint64_t open_session(struct bench *b)
{
    struct hutch_session_options options;
    struct hutch_error err;
    uint64_t session;

    hutch_session_options_init(&options);
    options.on_end = on_end;
    options.user = b;
    if (hutch_session_open(b->engine, &options, &session, &err) < 0)
        bench_die("%s", err.message);
    return session;
}

static void close_session(struct bench *b, uint64_t session)
{
    b->is_done = false;
    if (hutch_session_close(b->engine, session) != 1)
        bench_die("the session is gone");
    wait_until_done(b, "the end of a session");
}

/* All cells; only the last one's outputs are looked at. */
static void execute_all(struct bench *b, uint64_t session)
{
    const struct settings *s = &b->settings;

    for (unsigned i = 0; i < s->n_codes; i++) {
        hand_in(b, session, s->codes[i], i + 1 == s->n_codes ? s->want : NULL);
        wait_until_done(b, "a cell");
    }
}

static bool is_counted(const struct bench *b, unsigned round)
{
    return round >= b->settings.warm_up;
}

/* --- scenarios --- */

static void run_cell(struct bench *b)
{
    uint64_t session = open_session(b);

    for (unsigned i = 0; i < b->settings.warm_up + b->settings.rounds; i++) {
        double start = bench_now_ms();

        hand_in(b, session, b->settings.codes[0], b->settings.want);
        wait_until_done(b, "a cell");
        b->times[0][b->n] = bench_now_ms() - start;
        b->times[1][b->n] = b->run_ms;
        b->n += is_counted(b, i);
    }
    close_session(b, session);
}

static void run_open(struct bench *b)
{
    for (unsigned i = 0; i < b->settings.warm_up + b->settings.rounds; i++) {
        uint64_t session;
        double start;

        bench_wait_for_pool(b->engine);
        start = bench_now_ms();
        session = open_session(b);
        execute_all(b, session);
        b->times[0][b->n] = bench_now_ms() - start;
        b->n += is_counted(b, i);
        close_session(b, session);
    }
}

static void on_reply(void *user, uint64_t session, const struct hutch_reply *reply)
{
    struct bench *b = user;

    (void)session;
    if (!reply->ok)
        bench_die("%s", reply->message);
    b->id = reply->id;
    b->is_done = true;
}

typedef int simple_order(struct hutch_engine *, uint64_t, hutch_on_reply, void *, struct hutch_error *);
typedef int target_order(struct hutch_engine *, uint64_t, uint64_t, hutch_on_reply, void *, struct hutch_error *);

/* Gives one of the two orders, whichever is not NULL, and waits for its answer: ms. */
static double order(struct bench *b, uint64_t session, simple_order *simple, target_order *targeted, uint64_t target)
{
    double start = bench_now_ms();
    struct hutch_error err;
    int rc;

    b->is_done = false;
    rc = simple ? simple(b->engine, session, on_reply, b, &err)
                : targeted(b->engine, session, target, on_reply, b, &err);
    if (rc < 0)
        bench_die("%s", err.message);
    wait_until_done(b, "an order");
    return bench_now_ms() - start;
}

static void run_checkpoint(struct bench *b)
{
    const struct settings *s = &b->settings;
    uint64_t session = open_session(b), checkpoint, branch;

    hand_in(b, session, s->codes[0], NULL);
    wait_until_done(b, "the first cell");
    for (unsigned i = 0; i < s->warm_up + s->rounds; i++) {
        double start;

        b->times[0][b->n] = order(b, session, hutch_session_checkpoint, NULL, 0);
        checkpoint = b->id;
        hand_in(b, session, s->codes[1], NULL);
        wait_until_done(b, "the cell that destroys");
        b->times[1][b->n] = order(b, session, NULL, hutch_session_rollback, checkpoint);
        start = bench_now_ms();
        hand_in(b, session, s->codes[2], s->want);
        wait_until_done(b, "the cell that looks");
        b->times[2][b->n] = bench_now_ms() - start;
        order(b, session, NULL, hutch_session_drop, checkpoint);
        b->times[3][b->n] = order(b, session, hutch_session_fork, NULL, 0);
        branch = b->id;
        b->times[4][b->n] = order(b, session, NULL, hutch_session_switch, branch);
        hand_in(b, session, s->codes[2], s->want);
        wait_until_done(b, "a cell of the branch");
        order(b, session, NULL, hutch_session_switch, 0);
        order(b, session, NULL, hutch_session_drop, branch);
        b->n += is_counted(b, i);
    }
    close_session(b, session);
}

static void run_hold(struct bench *b)
{
    struct hutch_engine_stats stats = { .size = sizeof(stats) };
    struct pollfd in = { .fd = 0, .events = POLLIN };
    unsigned most = b->settings.count * b->settings.n_codes;
    double start = bench_now_ms();

    for (unsigned i = 0; i < b->settings.count; i++) /* not all at once: a sandbox may take just so long */
        execute_all(b, open_session(b));
    if (b->results != most)
        bench_die("%u of %u cells have been executed", b->results, most);
    hutch_engine_get_stats(b->engine, &stats);
    printf("{\"sessions\": %u, \"launcher\": %d, \"opened_ms\": %.1f}\n", stats.sessions, stats.launcher_pid,
           bench_now_ms() - start);
    fflush(stdout);
    while (poll(&in, 1, 0) == 0)
        bench_turn(b->engine, bench_now_ms() + 50);
}

/* --- the program --- */

static const struct {
    const char *name;
    void (*run)(struct bench *b);
    unsigned n_codes; /* at least */
    const char *parts[8];
} scenarios[] = {
    { "cell", run_cell, 1, { "total", "run" } },
    { "open", run_open, 1, { "total" } },
    { "notebook", run_open, 1, { "total" } },
    { "checkpoint", run_checkpoint, 3, { "checkpoint", "rollback", "look", "fork", "switch" } },
    { "hold", run_hold, 1, { NULL } },
};

static void open_engine(struct bench *b)
{
    static const char *const all[] = { "numpy",   "pandas",    "matplotlib", "matplotlib.pyplot",
                                       "IPython", "ipykernel", NULL };
    static const char *const none[] = { NULL };
    struct settings *s = &b->settings;
    struct hutch_zygote zygotes[] = {
        { .name = "bare", .modules = none, .min = 1, .max = 1 },
        { .name = "full", .parent = "bare", .modules = all, .min = s->pool, .max = s->pool },
    };
    struct hutch_engine_options options;
    struct hutch_error err;

    hutch_engine_options_init(&options);
    options.image = s->image;
    options.recycle_forks = 1000000; /* measured apart from what recycling may cost */
    options.layouts = 1; /* further trees of zygotes begin in a pause, and would be in the figures of memory */
    options.zygotes = zygotes;
    options.n_zygotes = 2;
    options.max_sessions = s->count + 1;
    if (hutch_engine_open(&options, &b->engine, &err) < 0)
        bench_die("%s", err.message);
    bench_wait_for_pool(b->engine);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        { "code", required_argument, NULL, 'c' },    { "want", required_argument, NULL, 'w' },
        { "image", required_argument, NULL, 'i' },   { "rounds", required_argument, NULL, 'r' },
        { "count", required_argument, NULL, 'k' },   { "pool", required_argument, NULL, 'm' },
        { "warm-up", required_argument, NULL, 'u' }, { NULL, 0, NULL, 0 },
    };
    static struct bench bench = { .settings = { .rounds = 1000, .count = 100, .pool = 2, .warm_up = 20 } };
    struct settings *s = &bench.settings;
    struct rlimit files;
    size_t i = 0;
    int c;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* a session takes some ten of them */
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (c) {
        case 'c':
            if (s->n_codes == MAX_CODES)
                bench_die("more than %d cells", MAX_CODES);
            s->codes[s->n_codes++] = optarg;
            break;
        case 'w': s->want = optarg; break;
        case 'i': s->image = optarg; break;
        case 'r': s->rounds = (unsigned)bench_number(optarg, 1, 1e6); break;
        case 'k': s->count = (unsigned)bench_number(optarg, 1, 10000); break;
        case 'm': s->pool = (unsigned)bench_number(optarg, 1, 1000); break;
        case 'u': s->warm_up = (unsigned)bench_number(optarg, 0, 1e6); break;
        default: optind = argc; break;
        }
    if (optind + 1 == argc)
        s->scenario = argv[optind];
    while (i < sizeof(scenarios) / sizeof(scenarios[0]) && s->scenario && strcmp(scenarios[i].name, s->scenario) != 0)
        i++;
    if (!s->scenario || i == sizeof(scenarios) / sizeof(scenarios[0]) || s->n_codes < scenarios[i].n_codes) {
        fprintf(
            stderr,
            "usage: sessions cell|open|notebook|checkpoint|hold --code TEXT... [--want TEXT] [--image NAME] [--rounds "
            "N]\n"
            "                [--warm-up N] [--pool N] [--count N]\n");
        return 2;
    }
    for (size_t p = 0; p < 8; p++) {
        bench.times[p] = calloc(s->rounds + 1, sizeof(double));
        if (!bench.times[p])
            bench_die("no memory for %u times", s->rounds);
    }
    open_engine(&bench);
    scenarios[i].run(&bench);
    if (scenarios[i].parts[0]) {
        printf("{\"scenario\": \"%s\"", s->scenario);
        for (size_t p = 0; p < 8 && scenarios[i].parts[p]; p++) {
            printf(", ");
            bench_print_times(scenarios[i].parts[p], bench.times[p], bench.n);
        }
        printf("}\n");
    }
    hutch_engine_free(bench.engine);
    return 0;
}
