/* common.h - what the programs of the benchmark share that measure the warm engine. */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

struct hutch_engine;

#define BENCH_START_MAX_S 120 /* until zygotes and pool are there */

_Noreturn void bench_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
double bench_now_ms(void); /* on the monotonic clock */

/* Waits for the engine, but not past @until, and does what is due. */
void bench_turn(struct hutch_engine *engine, double until);

/* Until every pool has what it is to have at least and nothing is being built. */
void bench_wait_for_pool(struct hutch_engine *engine);

/* Sorts them, and prints "NAME": {n, percentiles} as a member of a JSON object. */
void bench_print_times(const char *name, double *ms, unsigned n);

/* A number of the command line, or the end of the program. */
double bench_number(const char *text, double min, double max);

#endif
