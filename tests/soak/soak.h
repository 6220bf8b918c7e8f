/* soak.h - what the soak driver's files share. The driver uses hutch.h alone, and /proc to see what an engine has
 * started. */
#ifndef SOAK_H
#define SOAK_H

#include "runtime/hutch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct settings {
    const char *image;
    const char *dir; /* scratch, empty */
    unsigned kills, runs, samples, jobs, pool;
    uint64_t seed;
};

_Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A finding: printed, and the driver ends with 1. */
void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
extern unsigned complaints;
double now_ms(void);
uint32_t random_below(uint32_t bound); /* from --seed */

/* --- load.c: runs that are always under way, each with a known output --- */

enum run_kind {
    RUN_SHORT, /* prints two lines */
    RUN_SLEEP, /* … 10 ms apart */
    RUN_OTHER, /* imports what the second zygote has */
    RUN_DATA,  /* leaves one line in a directory of the host's each time that it begins */
    RUN_ERROR, /* exit code 3 */
    RUN_KINDS
};
struct run {
    struct load *load;
    uint64_t id;
    uint32_t number;
    uint8_t kind, results, restarts;
    uint16_t out_len;
    char out[64];
};
struct load {
    struct hutch_engine *engine;
    const struct settings *settings;
    struct run *runs;
    unsigned n, room;     /* handed in; the most that there will be */
    unsigned in_flight, at_once;
    unsigned ok, killed, restarted;
    bool is_paused;       /* nothing new is handed in */
    bool may_kill;        /* a run may end as killed */
};
/* Zygotes "bare" and "more" with as many sandboxes each as @settings->pool says, no fewer and no more. */
void load_open(struct load *load, const struct settings *settings, unsigned room);
/* Hands in what is missing, waits for the engine until @until at the longest, and lets it work. */
void load_turn(struct load *load, double until);
/* All that were handed in have their result, and each pool has all its sandboxes. */
bool load_is_quiet(struct load *load);
/* Waits for that; complains after @seconds. False then. */
bool load_settle(struct load *load, double seconds);
/* Ends the engine and looks whether each run had one result. */
void load_close(struct load *load);

/* --- procs.c: what an engine has started --- */

enum proc_kind {
    PROC_OPENER,
    PROC_DISK_WORKER,
    PROC_ANCHOR,
    PROC_LAUNCHER,
    PROC_ZYGOTE,   /* spares too */
    PROC_INIT,
    PROC_WORKER,   /* whatever else is in a sandbox */
    PROC_KINDS
};
extern const char *const proc_names[PROC_KINDS];
struct proc {
    pid_t pid, ppid;
    enum proc_kind kind;
    bool is_ours, is_zombie, is_disk_worker;
    bool is_holder; /* of a sandbox's memory, which it may be without */
    unsigned depth; /* pid namespaces below ours */
    pid_t inner;    /* pid in the innermost */
};
struct procs {
    struct proc all[4096];
    size_t n;
};
/* All descendants of this process, which has to be a subreaper. */
void procs_scan(struct procs *procs, pid_t launcher);
/* Kills a random one of a kind and waits until it is gone. False when there is none. */
bool procs_kill(struct procs *procs, pid_t launcher, enum proc_kind kind);
/* A host may reap every child it has; those of a killed opener have come to us. */
void procs_reap(void);
unsigned procs_count(const struct procs *procs); /* without zombies */
/* After the engine's end: complains of what is still there two seconds later. */
void procs_check_gone(struct procs *procs);

/* --- flat.c: what an engine has and holds --- */

enum measure {
    FDS, CHILD_FDS, PROCESSES, ZOMBIES, CGROUPS, MOUNTS, CHILD_MOUNTS, STATE,
    RSS_KB, HEAP_KB, LAUNCHER_RSS_KB, ZYGOTES_RSS_KB, MEASURES
};
struct counts {
    long n[MEASURES]; /* flat.c says of what; -1: this user may not look */
};
/* Of an engine in which nothing is under way. */
void counts_take(struct hutch_engine *engine, struct procs *procs, struct counts *ret);
/* One row each; without counts the names. */
void counts_print(const char *scenario, const char *label, const struct counts *counts);
/* Complains of what has grown; of memory only with @has_memory. */
void counts_compare(const struct counts *first, const struct counts *last, bool has_memory);

/* --- the scenarios --- */

int soak_kills(const struct settings *settings);    /* kills.c */
int soak_flat(const struct settings *settings);     /* flat.c */
int soak_hostile(const struct settings *settings);  /* hostile.c */
int soak_sessions(const struct settings *settings); /* sessions.c */
int soak_hold(const struct settings *settings);     /* hold.c */

#endif
