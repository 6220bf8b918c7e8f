#include "soak.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETTLE_S   60  /* not a measure: for a machine that is busy with other things */
#define STABLE_MS  25  /* full for so long: a sandbox that lost its worker is noticed a little later */
#define STORM_EACH 20  /* every so many rounds, several die at once */
#define STORM_SIZE 6

struct kills {
    struct load load;
    struct procs procs;
    unsigned done[PROC_KINDS];      /* that really hit a live process */
    double *times[PROC_KINDS];      /* ms until all was as before, of rounds with one kill */
    unsigned n_times[PROC_KINDS];
    double storm_max;
    unsigned rounds, may_die;       /* runs that the kills so far can have ended */
};

/* An opener or anchor takes all others with it, so they come more seldom. */
static enum proc_kind pick_kind(void)
{
    static const enum proc_kind often[] = { PROC_LAUNCHER, PROC_ZYGOTE, PROC_INIT, PROC_WORKER };
    static const enum proc_kind seldom[] = { PROC_OPENER, PROC_ANCHOR, PROC_DISK_WORKER };

    return random_below(25) == 0 ? seldom[random_below(3)] : often[random_below(4)];
}

static pid_t launcher_of(struct hutch_engine *engine)
{
    struct hutch_engine_stats stats = { .size = sizeof(stats) };

    hutch_engine_get_stats(engine, &stats);
    return stats.launcher_pid;
}

/* The number of the kind that was killed, -1 when there was none of it. Returns when the process is gone. */
static int kill_one(struct kills *k)
{
    enum proc_kind kind = pick_kind();

    if (!procs_kill(&k->procs, launcher_of(k->load.engine), kind))
        return -1;
    k->may_die += kind == PROC_INIT || kind == PROC_WORKER     ? 1
                  : kind == PROC_OPENER || kind == PROC_ANCHOR ? k->load.in_flight
                                                               : 0;
    k->done[kind]++;
    return (int)kind;
}

/* Until all results are there and the pools are full and stay so; the time at which they were. */
static double settle(struct kills *k)
{
    double end = now_ms() + SETTLE_S * 1e3, since = 0;

    k->load.is_paused = true;
    while (since == 0 || now_ms() < since + STABLE_MS) {
        if (now_ms() > end) {
            load_settle(&k->load, 1);
            return -1;
        }
        load_turn(&k->load, since == 0 ? now_ms() + 50 : since + STABLE_MS);
        if (!load_is_quiet(&k->load))
            since = 0;
        else if (since == 0)
            since = now_ms();
    }
    k->load.is_paused = false;
    return since;
}

static int by_size(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static bool one_round(struct kills *k)
{
    unsigned n = ++k->rounds % STORM_EACH == 0 ? STORM_SIZE : 1;
    double at = 0, full;
    int kind = -1;

    for (unsigned i = 0; i < n; i++) {
        double moment = now_ms() + random_below(20000) / 1e3;
        int hit;

        do
            load_turn(&k->load, moment);
        while (now_ms() < moment);
        hit = kill_one(k);
        at = now_ms();
        kind = hit >= 0 ? hit : kind;
    }
    full = settle(k);
    procs_reap();
    if (full < 0)
        return false;
    if (kind >= 0 && n == 1)
        k->times[kind][k->n_times[kind]++] = full - at;
    else if (kind >= 0 && full - at > k->storm_max)
        k->storm_max = full - at;
    if (k->load.killed > k->may_die)
        complain("%u runs were killed, but the processes that died had no more than %u", k->load.killed, k->may_die);
    return true;
}

static void report(struct kills *k)
{
    struct hutch_engine_stats stats = { .size = sizeof(stats) };
    unsigned over = 0, all = 0;

    hutch_engine_get_stats(k->load.engine, &stats);
    printf(
        "kills: %u runs: %u as they should, %u killed, begun again %u times; the engine lost %llu launchers, %llu "
        "zygotes, %llu sandboxes\n",
        k->load.n, k->load.ok, k->load.killed, k->load.restarted, (unsigned long long)stats.lost_launchers,
        (unsigned long long)stats.lost_zygotes, (unsigned long long)stats.lost_sandboxes);
    printf("kills: ms from a kill until all runs have ended and the pools are full again:\n");
    for (int kind = 0; kind < PROC_KINDS; kind++) {
        unsigned n = k->n_times[kind];
        double *t = k->times[kind];

        qsort(t, n, sizeof(*t), by_size);
        for (unsigned i = 0; i < n; i++, all++)
            over += t[i] > 1000;
        if (n > 0)
            printf("kills:   %-8s %5u killed   p50 %7.1f   p90 %7.1f   p99 %7.1f   max %7.1f\n", proc_names[kind],
                   k->done[kind], t[n / 2], t[n * 9 / 10], t[n * 99 / 100], t[n - 1]);
    }
    printf("kills:   after %d at once: max %.1f; of %u single ones, %u took more than a second\n", STORM_SIZE,
           k->storm_max, all, over);
}

int soak_kills(const struct settings *settings)
{
    struct kills *k = calloc(1, sizeof(*k));
    unsigned done = 0;

    if (!k)
        die("out of memory");
    for (int kind = 0; kind < PROC_KINDS; kind++)
        k->times[kind] = calloc(settings->kills + STORM_SIZE, sizeof(double));
    load_open(&k->load, settings, 1000000);
    k->load.may_kill = true;
    if (!load_settle(&k->load, SETTLE_S))
        return -1;
    while (done < settings->kills && one_round(k) && complaints < 20) {
        done = 0;
        for (int kind = 0; kind < PROC_KINDS; kind++)
            done += k->done[kind];
        if (k->load.room - k->load.n < 10000)
            break;
    }
    report(k);
    load_close(&k->load);
    procs_check_gone(&k->procs);
    for (int kind = 0; kind < PROC_KINDS; kind++)
        free(k->times[kind]);
    free(k);
    return 0;
}
