/* hutch.h - libhutch: runs untrusted code in fresh sandboxes, with an interpreter already in them.
 *
 * A RUN is one program in a sandbox of its own. A SESSION is a sandbox that is kept for several pieces of code, cells,
 * which share variables and files as the cells of a notebook do.
 *
 * LIFE CYCLE. hutch_engine_open() starts an engine: a few processes of its own, which import what the options say and
 * keep sandboxes prepared. hutch_engine_submit() hands in a run; its result comes by callback. The caller owns the
 * event loop: wait until hutch_engine_fd() is readable (poll, select, level-triggered epoll, an event library; no
 * timeout is needed), then call hutch_engine_dispatch(), which does what is due and calls the callbacks. It never
 * waits for a run; what it does read is the tree of a data directory, before and after a run and from time to time
 * between, so keep those small. hutch_engine_free() ends everything that runs.
 *
 *     open -> [ submit | wait for fd -> dispatch (on_output*, on_result) ]* -> free
 *     session_open -> [ session_execute -> (on_output*, on_result) ]* -> session_close (on_end)
 *     session_open -> [ session_spawn -> (on_output*, on_end) ]* -> session_close (on_end)
 *     session_open -> [ session_stat, list, open_path, … -> (on_reply) ]* -> session_close (on_end)
 *
 * THREADS, SIGNALS, GLOBALS. The library starts no threads, installs no signal handlers, and keeps no state outside
 * its engines; two engines in one process know nothing of each other. Where the caller's cgroup is delegated to it and
 * holds no other process, opening an engine moves the calling process into a child group, "hutch-supervisor", as only
 * that lets sandboxes have controllers; with other processes in the group the limits are the weaker ones, and each
 * result says so. One engine is used by one thread at a time; different engines may be used by different threads. An
 * engine belongs to the process that opened it and ends with it; a child that is forked from that without an execve(2)
 * must not use it. The engine's helper process is a child of the calling process: a host that reaps every child with
 * wait(-1) may take it, which does no harm.
 *
 * MEMORY. What is passed in is copied before a call returns. What a callback is given is the engine's and ends with
 * the callback. Callbacks may call everything but dispatch and free, and must not block.
 *
 * DESCRIPTORS. The library never changes the process's limits. hutch_engine_open(), hutch_session_open() and whatever
 * else holds descriptors from then on (a checkpoint, a branch, a process of a session, a run for which a sandbox is
 * built or that has an input_fd) compare what the process has open, and what the engine needs for all that it has
 * accepted, with the soft limit of RLIMIT_NOFILE; beyond that they fail with EMFILE, and the message has the numbers.
 * An engine asks for some 100, eleven for each run at a time and for each sandbox that the min of a zygote or pool
 * says, fourteen for each session, two more where that has max_processes or paths, four for each process, and two for
 * each order about a path, of eight at most in a session. What the caller opens besides is to leave these free; it may
 * raise its limit at any time.
 *
 * UNITS. Times are milliseconds, sizes are bytes, CPUs are thousandths of one. 0 in an option takes the default.
 *
 * ERRORS. A failing call returns -1 and fills *err (which may be NULL). Whatever goes wrong with a run that was
 * accepted is told by its result: every accepted run and cell gets exactly one.
 *
 * VERSIONS. A program keeps working with a newer library that has added fields at the end of a struct, as each begins
 * with the size that the program knows: hutch_..._init() sets that of options and requests (macros, for the size is
 * the program's; the functions of these names, for other languages, know the first version's fields only, so a binding
 * for those sets the size itself), and the caller that of what it has filled: hutch_engine_stats, hutch_limits,
 * hutch_function_info, hutch_limit_report, hutch_layer_report, hutch_session_info. hutch_zygote, hutch_pool, their
 * stats, hutch_file, hutch_fetched, hutch_path_entry and hutch_error do not change. */
#ifndef HUTCH_H
#define HUTCH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All fields 0 but the size. */
#define HUTCH_INIT(p) ((void)memset((p), 0, sizeof(*(p))), (void)((p)->size = sizeof(*(p))))

struct hutch_engine;
struct hutch_cell_result;

struct hutch_error {
    int  code;         /* an errno, 0 when there is none: EAGAIN for a full queue, EINVAL for a bad argument, … */
    char message[512]; /* one sentence: what, which value, what to do */
};

/* --- engine --- */

/* One interpreter that is kept warm. Zygotes of an engine form a tree: a zygote is forked from its parent and imports
 * more, so memory is shared. A run goes to the smallest that has all that its code imports and that any zygote has. */
struct hutch_zygote {
    const char *name;           /* "pandas"; letters, digits, '-' and '_' */
    const char *parent;         /* name of an earlier one; NULL for the first, and only for that */
    const char *const *modules; /* NULL-terminated: what is imported beyond the parent's; one that the image lacks is
                                 * skipped */
    const char *warm_up;        /* Python text of the operator's that runs once, after the imports; NULL for none */
    unsigned min, max;          /* prepared sandboxes: kept at all times, and at most kept (a burst beyond builds on
                                 * demand); 0 and 0: 2 and 32 */
};

/* Prepared sandboxes for another policy than the engine's. A request or session with that policy, by the same name or
 * path, has one of them. It is read when the engine opens. */
struct hutch_pool {
    const char *zygote;         /* name; NULL: the first. It serves runs that go to this one, or to one that has
                                 * imported less and has no pool with this policy */
    const char *policy;
    unsigned min, max;          /* as of a zygote */
};

#define HUTCH_NO_LIMIT UINT64_MAX

struct hutch_limits { /* in the units of hutch_request */
    size_t size; /* the caller sets it, to sizeof(struct hutch_limits) */
    uint64_t wall_ms, cpu_ms;
    uint64_t memory_bytes, pids, cpus, output_bytes, data_bytes, data_files, file_bytes;
};

struct hutch_engine_options {
    size_t size;
    const char *home;     /* hutch's own directory; NULL: $HUTCH_HOME, $XDG_DATA_HOME/hutch, ~/.local/share/hutch */
    const char *launcher; /* the program hutch-launcher; NULL: $HUTCH_LAUNCHER, else PREFIX/libexec/hutch-launcher:
                           * the library, or the program that it is part of, lies in PREFIX/lib, PREFIX/bin or the
                           * like; else in /usr/local or /usr */
    const char *image;    /* name in the store of home or in one of $HUTCH_IMAGES, or absolute path of a root tree;
                           * NULL: "python" */
    const char *policy;   /* name or path; NULL: "default" */
    const char *policy_dir; /* NULL: $HUTCH_POLICY_DIR, else PREFIX/share/hutch-data/policies */
    const struct hutch_zygote *zygotes; /* NULL: bare, data (numpy, pandas), plot (matplotlib), shell (IPython) */
    size_t n_zygotes;     /* 32 at most, with 256 different modules */
    unsigned max_running; /* runs at the same time; 0: one per CPU of this machine that the process may use */
    unsigned max_queued;  /* beyond those; 0: 1024. More is EAGAIN */
    unsigned recycle_forks;      /* a zygote is replaced after so many workers; 0: 10000 */
    uint64_t recycle_ms;         /* … or after this time; 0: one hour */
    uint64_t trim_ms;            /* a pool that has more than min and was not used for this long gets smaller; 0: 30
                                  * s */
    unsigned max_sessions;       /* open at the same time, besides the runs; 0: 1024 */
    /* What all runs and sessions get instead of what the policy says. It is the operator's to choose, so it may be
     * more than that. */
    const char *rootfs;   /* "host": the host's own /usr, read-only; or the path of a root tree. Not together with
                           * image */
    const struct hutch_limits *limits; /* a field that is 0 stays the policy's; HUTCH_NO_LIMIT: none. NULL: all of them
                                        * are the policy's */
    const char *network;  /* "none": loopback only. "host": that of the host, unfiltered; runs are built on demand.
                           * NULL: the policy's */
    const char *workdir;  /* absolute, inside; NULL: /mnt/data */
    const char *const *env;     /* NAME=VALUE on top of the policy's. Lists end with NULL; NULL: none */
    const char *const *volumes; /* "SRC:DST" or "SRC:DST:ro": what the host has at the absolute path SRC is at DST
                                 * inside */
    const char *const *tmpfs;   /* "DST" or "DST:SIZE": an empty directory of a run's own; 64 MiB, or a size such as
                                 * "16m" */
    uint64_t answer_ms;         /* a helper process that is silent for so long after an order is killed and replaced;
                                 * 0: 10 s. The opener, which all others end with, has twice as long */
    uint64_t setup_ms;          /* a run that is not queued any more and has no sandbox after so long is setup_failed;
                                 * 0: 30 s. The first import of a zygote's libraries does not count */
    unsigned layouts;           /* trees of zygotes, executed one by one, each with an address layout and a hash seed
                                 * of its own; sandboxes come from them in turn. 8 at most. 0: up to four, where a
                                 * thirty-second of the memory that is available holds them. Those beyond the first are
                                 * begun while nothing runs */
    const struct hutch_pool *pools; /* 32 at most */
    size_t n_pools;
    const char *const *data_targets; /* further names of /mnt/data inside, such as "/home/user", which the image has not
                                      * got: links, so a program that asks where it is hears /mnt/data. 16 at most, of
                                      * 255 bytes and 16 parts: absolute, without ".", "..", "//" and a "/" at the
                                      * end, UTF-8 without control characters */
    const char *gpu;            /* "compute": NVIDIA's GPUs of this host, to compute with. NULL: as the policy says.
                                 * docs/security.md has what that opens */
};
void hutch_engine_options_init(struct hutch_engine_options *options);
#define hutch_engine_options_init(options) HUTCH_INIT(options)

/* Clears away what killed engines left below home, and waits for nothing else; zygotes and pool get ready while the
 * caller dispatches. Runs may be submitted from the start and wait. Errors: what is wrong with the options, image or
 * policy; ENOENT for a missing launcher; EMFILE. */
int hutch_engine_open(const struct hutch_engine_options *options, struct hutch_engine **ret, struct hutch_error *err);

/* Kills whatever runs, without calling back, and removes what the engine left on disk. NULL is fine. Takes some ms, at
 * worst two seconds: what cannot be removed by then is left to the next start of an engine. */
void hutch_engine_free(struct hutch_engine *engine);

/* The same number all the engine's life; only for waiting until it is readable. */
int hutch_engine_fd(const struct hutch_engine *engine);

/* -1 when the engine can never run anything (the first zygote or sandbox could not be made, or another program has
 * removed the directory of its runs, and the error says why); runs and cells that were accepted have got their results
 * by then, and the engine can be freed. */
int hutch_engine_dispatch(struct hutch_engine *engine, struct hutch_error *err);

struct hutch_zygote_stats {
    const char *name;  /* the engine's */
    int      is_ready;
    int      pid;      /* as the caller sees it, of the first layout; 0 when unknown */
    unsigned prepared, building; /* sandboxes waiting for a run; on their way to that */
    uint64_t forks;    /* workers since it was started or recycled, in all layouts together */
    uint64_t recycled; /* times it was replaced, for age or because it died, likewise */
};
struct hutch_pool_stats {
    const char *zygote;   /* the engine's, as policy */
    const char *policy;   /* NULL: the engine's */
    unsigned prepared, building;
    uint64_t from_pool, on_demand; /* runs that found a prepared sandbox in it; that waited for one of it */
};
struct hutch_engine_stats {
    size_t size; /* the caller sets it, to sizeof(struct hutch_engine_stats) */
    unsigned running, queued, prepared, building;
    uint64_t submitted, finished;
    uint64_t from_pool, on_demand; /* runs that found a prepared sandbox; for which one was built */
    uint64_t restarted;            /* runs begun again because their sandbox broke before their code had started */
    uint64_t lost_zygotes, lost_launchers, lost_sandboxes; /* that died of something else than us */
    int      launcher_pid;
    const struct hutch_zygote_stats *zygotes; /* the engine's, until the next hutch_engine_get_stats() or free */
    size_t   n_zygotes;
    unsigned sessions; /* open ones */
    uint64_t hung;     /* processes that did not answer, and were killed and replaced; the lost ones count them, too */
    unsigned layouts;  /* trees of zygotes that are ready as a whole */
    const struct hutch_pool_stats *pools; /* likewise: one of each zygote, and then those of the options */
    size_t   n_pools;
};
void hutch_engine_get_stats(struct hutch_engine *engine, struct hutch_engine_stats *stats);

/* Those of a run that asks for none itself: the policy's, with what the options say. 0: no limit. */
void hutch_engine_get_limits(const struct hutch_engine *engine, struct hutch_limits *limits);
/* The same of a run that has the policy @policy, by its name or path, which is read for that. Errors: as with
 * hutch_request.policy. */
int hutch_engine_get_policy_limits(const struct hutch_engine *engine, const char *policy, struct hutch_limits *limits,
                                   struct hutch_error *err);

/* The languages whose interpreter the image has, as a request may name them: a JSON array of {"name": "python",
 * "ending": ".py"}, what the names of its programs end in. Without TypeScript, which the image's node may or may not
 * have. For the caller to free(3); NULL on ENOMEM. */
char *hutch_engine_languages(const struct hutch_engine *engine);

/* --- results --- */

enum hutch_verdict { /* docs/results.md */
    HUTCH_OK,            /* exit code 0 */
    HUTCH_ERROR,         /* the program itself failed: exit code not 0, or it died of a signal of its own making */
    HUTCH_TIMEOUT,       /* wall clock */
    HUTCH_CPU_TIME,
    HUTCH_OUT_OF_MEMORY,
    HUTCH_OUTPUT_LIMIT,  /* stdout, stderr, or what lies in /mnt/data */
    HUTCH_KILLED,        /* from outside: a signal to hutch, or a SIGKILL that hutch did not send; or hutch could not go
                          * on with it, or not keep the files that it was asked to: message says why */
    HUTCH_DENIED,        /* the filter ended it for a call that is never allowed */
    HUTCH_SETUP_FAILED   /* no code ran; exit_code is 125, 126 or 127 */
};
const char *hutch_verdict_text(enum hutch_verdict verdict); /* "ok", "error", … */

#define HUTCH_UNKNOWN UINT64_MAX

struct hutch_fetched { /* a file that a request wants back */
    const char *path;  /* as the request has it */
    int fd;            /* for reading; the engine's, to be duplicated by who wants it longer. -1: there is none, … */
    int code;          /* … for this reason: ENOENT, EISDIR, ELOOP (a link), EINVAL (a FIFO or the like), EMFILE, and
                        * so on */
    uint64_t size;
};

struct hutch_run_details;  /* what the calls below know of a result beyond its fields */
struct hutch_cell_details;

struct hutch_result {
    size_t size;
    enum hutch_verdict verdict;
    int  exit_code;      /* -1 when there is none */
    int  signal;         /* 0 when there is none */
    const char *message; /* one sentence when verdict is neither ok nor error, else "" */
    const char *out;     /* stdout: any bytes, NUL-terminated; empty when on_output took them */
    size_t out_len;
    const char *err;     /* stderr, likewise */
    size_t err_len;
    int  out_truncated, err_truncated;
    const char *error_name, *error_value, *error_traceback; /* of a Python exception, as the program told it,
                                                             * NUL-terminated; or NULL */
    const char *directory;  /* the request's data_dir; or with keep_data, when files were added, the kept directory
                             * below home/outputs, the caller's to remove; else NULL. The list of files is in the
                             * JSON */
    double queued_ms, prepared_ms, run_ms, total_ms; /* queued counts against no limit */
    uint64_t cpu_user_ms, cpu_system_ms, memory_peak_bytes, pids_peak; /* HUTCH_UNKNOWN where nothing counted */
    int  was_prepared;   /* a sandbox from the pool, not one built on demand */
    int  restarts;       /* times that it was begun again, before any of its code ran */
    const char *zygote;  /* name, NULL when the run did not use one */
    const struct hutch_run_details *internal;
    const struct hutch_cell_result *cell; /* of a rich run, what its one cell showed; NULL without */
    int  cpu_at_least;   /* more CPU time may have been used: some children were reaped by the kernel, uncounted */
    int  hutch_failed;   /* HUTCH_KILLED, because hutch or the host could not go on with it, read its input or keep its
                          * files: not the program's doing */
    const struct hutch_fetched *fetched; /* what the request's fetch names, in that order */
    size_t n_fetched;
    const char *value_json; /* of a call of a function, whose verdict is then HUTCH_OK: what its handler has returned,
                             * as JSON in UTF-8; else NULL */
    const char *level;      /* "full" or "no_proc", docs/results.md; NULL where no program ran */
};

/* The whole result as the JSON object of docs/results.md, for the caller to free(3); NULL on ENOMEM. Inside on_result
 * only. */
char *hutch_result_to_json(const struct hutch_result *result);

/* What became of a limit, and of a layer of the isolation: docs/results.md. */
struct hutch_limit_report {
    size_t size;        /* the caller sets it, to sizeof(struct hutch_limit_report) */
    const char *name;   /* "memory", "wall", … */
    uint64_t value;     /* 0: no limit was asked for */
    char enforcers[64]; /* "cgroup supervisor": who enforces it, names with a blank between; "none" for a limit that
                         * nothing enforces */
};
struct hutch_layer_report {
    size_t size;        /* the caller sets it, to sizeof(struct hutch_layer_report) */
    const char *name;   /* "seccomp", "user_namespace", … */
    int is_active;
    const char *detail; /* "ABI 6", "not delegated", …; may be empty */
};
/* One after the other, with @index from 0 on: 1, and 0 when there is none at @index. Inside on_result only. */
int hutch_result_get_limit(const struct hutch_result *result, unsigned index, struct hutch_limit_report *ret);
int hutch_result_get_layer(const struct hutch_result *result, unsigned index, struct hutch_layer_report *ret);

/* --- runs --- */

struct hutch_file {
    const char *path;          /* as the request says; directories on the way are made, a file of that name is
                                * replaced */
    const void *data;
    size_t len;
    unsigned mode;             /* permissions; 0: 0644 */
};

struct hutch_request {
    size_t size;
    const char *language;      /* "python"; or what else the image has: "sh", "bash", "js", "typescript", "perl",
                                * "ruby", "lua", "r". "": as the ending of @name says. NULL: "python" */
    const char *code;          /* the program's text; any bytes but NUL, 64 MiB at most. Above 512 KiB a sandbox is
                                * built for it on demand */
    size_t code_len;           /* 0: up to the NUL */
    const char *name;          /* of the program's file below /run/hutch/code; NULL: "main.py" or the language's like.
                                * "-c": no file, as python3 -c has it */
    const char *const *args;   /* NULL-terminated, or NULL; 4096 with 1 MiB in all at most */
    const char *const *env;    /* NULL-terminated NAME=VALUE on top of the policy's, or NULL. What an interpreter reads
                                * at its start (LANG, PYTHONHASHSEED, OMP_NUM_THREADS, …) has a sandbox built on
                                * demand */
    const char *input;         /* standard input, any bytes, 256 MiB at most; NULL: empty */
    size_t input_len;
    const char *data_dir;      /* host directory to appear at /mnt/data; NULL: a fresh one */
    int keep_data;             /* with a fresh one: when the run added files, keep it and tell its path in the result;
                                * else it is removed */
    const char *policy;        /* name or path; NULL, or in its words: the engine's. For one that has no pool, a
                                * sandbox is built on demand. It says what the run may do, so it is for the caller to
                                * choose, and not for a client */
    /* Limits. 0: the policy's. None may be wider than the policy's (EINVAL). Tighter memory, pids and cpus are set in a
     * sandbox from the pool before the code comes. One is built on demand where the policy has no such limit, for
     * another whole number of CPUs (rounded up), for less than 64 MiB or a fifth of a CPU, and for so little memory
     * that a fresh data directory does not belong in it any more */
    uint64_t wall_ms, cpu_ms;
    uint64_t memory_bytes, pids, cpus, output_bytes, data_bytes, data_files, file_bytes;
    void (*on_output)(void *user, uint64_t id, int stream, const char *data, size_t len); /* as it comes, stream 1 or 2
                                * (stdout, stderr), not NUL-terminated; NULL: into the result */
    /* exactly once; may be NULL */
    void (*on_result)(void *user, uint64_t id, const struct hutch_result *result);
    void *user;
    int rich;                  /* Python, without name, args and input: the code runs as the one cell of a session, in
                                * IPython's shell, and the result has what it displays. What it prints is there and in
                                * out and err */
    int has_input_fd;          /* instead of input, standard input comes from input_fd: a pipe, socket, terminal or
                                * file, that is read as the program reads and never waited for. The engine keeps a
                                * duplicate until the run is over; what a program leaves unread may have been taken
                                * from it all the same */
    int input_fd;
    const struct hutch_file *files; /* put into the data directory before the start: 1024 with 64 MiB in all at most */
    size_t n_files;
    const char *const *fetch;  /* paths of files to be had back with the result, NULL-terminated, 64 at most; or NULL.
                                * Those of the two are relative to the working directory or absolute, below /mnt/data
                                * or another name of it either way, and lead through no link of a program's */
    const char *function;      /* instead of code, language, name, args and input: calls the function of that name. A
                                * sandbox is prepared for it as for a program. What an interpreter reads at its start
                                * is EINVAL in env; so are memory below 64 MiB and less than a fifth of a CPU. It does
                                * not end by returning what is no JSON: HUTCH_ERROR, with the exception */
    const char *event;         /* what its handler is given: JSON of 4 MiB at most; NULL: null */
    size_t event_len;          /* 0: up to the NUL */
    const char *const *data_targets; /* further names of /mnt/data for this run, beside the engine's and as those; or
                                * NULL. Where the engine has not got all of them, a sandbox is built on demand. None
                                * may be, hold or lie in what is mounted, but for a tmpfs that it lies in (EINVAL) */
    uint64_t tenant;           /* for whom it runs: any number of the caller's. Runs of one tenant wait in the order of
                                * their coming, and tenants take turns: one that has half of the max_running places
                                * gets no more while another waits that has less, and the last eighth of max_queued is
                                * for tenants that have nothing there. 0: for nobody in particular */
    unsigned weight;           /* of the tenant, from now on: how many turns it has for one of a tenant of weight 1; 0:
                                * 1 */
};
void hutch_request_init(struct hutch_request *request);
#define hutch_request_init(request) HUTCH_INIT(request)

/* 0 and the run's id, which is never 0 (@ret_id may be NULL); on_result is not called before this returns. Errors:
 * EAGAIN (the queue is full: try again when a result has come), EINVAL with what is wrong with the request, ENOENT and
 * the like for its data_dir or policy, EMFILE, ENOMEM. */
int hutch_engine_submit(struct hutch_engine *engine, const struct hutch_request *request, uint64_t *ret_id,
                        struct hutch_error *err);

/* --- functions --- */

/* A file of the operator's that defines "def handler(event)", or an asynchronous one. It is executed once, in a zygote
 * of its own, whose parent is the one that has imported the most of what it imports. Each call is a run in a fresh
 * sandbox in which that has happened already, by hutch_request.function; it returns a value that JSON can say. As
 * warm-up code it is trusted with what the runs of the engine bring along. */
struct hutch_function {
    size_t size;
    const char *name;          /* letters, digits, '-' and '_' */
    const char *code;          /* UTF-8 without NUL, some 127 KiB at most */
    size_t code_len;           /* 0: up to the NUL */
    unsigned min, max;         /* prepared sandboxes, as of a zygote */
    /* Exactly once: it can be called (@why NULL), or cannot be imported. May be NULL. */
    void (*on_ready)(void *user, const char *name, const struct hutch_error *why);
    void *user;
};
void hutch_function_init(struct hutch_function *function);
#define hutch_function_init(function) HUTCH_INIT(function)

/* Adds a function, or sets one again: when the new file has been executed, calls go to it, and those that were accepted
 * before end as they would have. A file that cannot be imported changes nothing. No callback comes before this returns.
 * Errors: EINVAL (also for code that is too long), EAGAIN (there are 64, with those being replaced), EMFILE, ENOMEM. */
int hutch_engine_set_function(struct hutch_engine *engine, const struct hutch_function *function,
                              struct hutch_error *err);
/* Calls that were accepted go on. One that was being imported ends with ECANCELED. 1 when there was one, else 0. */
int hutch_engine_drop_function(struct hutch_engine *engine, const char *name);

struct hutch_function_info {
    size_t size;             /* the caller sets it, to sizeof(struct hutch_function_info) */
    int is_ready;            /* it can be called */
    int is_starting;         /* a file for it is being imported */
    unsigned prepared, building; /* sandboxes */
    unsigned calls;          /* that are not over */
    uint64_t from_pool, on_demand; /* calls that found a prepared sandbox; that waited for one */
    char why[512];           /* it was ready, and is not any more: one sentence; else "" */
};
/* Errors: ENOENT. */
int hutch_engine_get_function(struct hutch_engine *engine, const char *name, struct hutch_function_info *ret,
                              struct hutch_error *err);

/* Ends a run; its result, "killed", comes by a later dispatch. 1 when there was something to end, 0 when it is over or
 * unknown. */
int hutch_engine_cancel(struct hutch_engine *engine, uint64_t id);

/* Passes a signal, SIGINT or SIGTERM as a rule, on to the program of a run, as a terminal does. Two seconds later it
 * is killed, by a second call at once, and the verdict is "killed". A run whose program has not begun is cancelled.
 * Returns as hutch_engine_cancel(); 0 for what is no signal's number, too. Not for sessions: see
 * hutch_session_interrupt(). */
int hutch_engine_signal(struct hutch_engine *engine, uint64_t id, int signal);

/* --- sessions --- */

enum hutch_output_kind {
    HUTCH_STREAM,
    HUTCH_DISPLAY,
    HUTCH_VALUE,        /* of the last expression */
    HUTCH_ERROR_OUTPUT,
    HUTCH_UPDATE,       /* of an earlier display with the same id */
    HUTCH_CLEAR,        /* what the cell has shown so far is to go */
    HUTCH_WIDGET        /* the state of a widget, for a notebook's metadata; only of cells with widgets */
};
struct hutch_output { /* one piece, as it comes */
    size_t size;
    enum hutch_output_kind kind;
    int  stream;       /* HUTCH_STREAM: 1 or 2 */
    const char *text;  /* HUTCH_STREAM: any bytes, not NUL-terminated */
    size_t text_len;
    const char *json;  /* the others: the output as nbformat has it, and where a display or value has an id, with
                        * "transient": {"display_id"}, by which HUTCH_UPDATE names it; HUTCH_UPDATE: with "id";
                        * HUTCH_CLEAR: {"wait": true or false}; HUTCH_WIDGET: {"buffers": [...], "id", "state":
                        * {...}}, or {"id", "lost": true} where its state is too large. NUL-terminated */
};

struct hutch_cell_result {
    size_t size;
    enum hutch_verdict verdict; /* HUTCH_OK; HUTCH_ERROR: an exception; HUTCH_TIMEOUT, HUTCH_CPU_TIME,
                                 * HUTCH_OUTPUT_LIMIT: it was interrupted for that, or killed when that did not help;
                                 * HUTCH_SETUP_FAILED: it was not run; others: what its interpreter died of */
    int  interpreter_died;      /* variables are lost, message says why, and the session's next cell starts another
                                 * interpreter */
    int  is_fresh;              /* the interpreter of the cell before had died: this one found no variables. So does the
                                 * first cell in a copy that was made of such a one before a cell had told */
    int  was_interrupted;
    int  execution_count;       /* 0 when it did not begin, or was silent */
    const char *message;        /* one sentence when the verdict is neither ok nor error or the variables are lost,
                                 * else "" */
    const char *outputs;        /* JSON array of nbformat's outputs, merged as nbconvert merges them, NUL-terminated */
    int  truncated;             /* there was more than output_bytes */
    const char *error_name, *error_value, *error_traceback; /* of the exception; plain text without colours; NULL
                                                             * without one */
    const char *error_traceback_ansi; /* with them, as IPython prints it */
    int  error_line;            /* of the cell's code, from 1; 0: not known */
    double queued_ms, run_ms;
    double t_busy, t_input, t_reply, t_idle; /* seconds since 1970, of a notebook's metadata.execution; 0 when it did
                                              * not get there */
    uint64_t cpu_user_ms, cpu_system_ms, memory_peak_bytes; /* of this cell; HUTCH_UNKNOWN where nothing counted */
    const struct hutch_cell_details *internal;
    const char *language_info;  /* of the interpreter, as a notebook's metadata has it: a JSON object; NULL: not
                                 * known */
    const char *value_json;     /* of the last expression, for a cell that wants_value: ASCII text, 256 KiB at most.
                                 * NULL: it has none, or none that JSON can say: something else than truth, numbers,
                                 * text, lists, tuples and dictionaries with texts as keys, or too much of it */
    uint64_t id;                /* the cell's; 0: of a run */
};
/* The whole result as the JSON object of docs/sessions.md, with the files that the cell added, modified and deleted,
 * for the caller to free(3); NULL on ENOMEM. Inside on_result only. */
char *hutch_cell_result_to_json(const struct hutch_cell_result *result);
/* The same for a language model to read: plain text of about @budget tokens at most, 0: 2000, that says what was left
 * out. */
char *hutch_cell_result_to_text(const struct hutch_cell_result *result, size_t budget);

struct hutch_session_options {
    size_t size;
    const char *policy;         /* as in hutch_request */
    const char *zygote;         /* name; NULL: the one that has ipykernel, else the last */
    const char *const *env;     /* as in hutch_request */
    const char *data_dir;       /* likewise: stays where it is */
    int keep_data;              /* with a fresh one: its path is told by on_end, and it is the caller's to remove */
    uint64_t idle_ms, lifetime_ms; /* closed after so long without a cell, and so long after it was opened; 0: 10
                                    * minutes, one day */
    /* as in hutch_request; output_bytes of each cell, the others of the session */
    uint64_t memory_bytes, pids, cpus, output_bytes, data_bytes, data_files, file_bytes;
    unsigned max_checkpoints;   /* with branches; 0: 8. At most 64 */
    uint64_t checkpoint_bytes;  /* of the files of all checkpoints and branches together; 0: the data limit */
    /* exactly once, after the results of all cells, and then there is no such session: it was closed, or idle, or
     * broke. @directory: with keep_data */
    void (*on_end)(void *user, uint64_t session, const char *why, const char *directory);
    void *user;
    unsigned max_processes;     /* of hutch_session_spawn(), at a time; at most 64. 0: none, or 16 without an
                                 * interpreter. Where there may be some, a small process that makes them is in the
                                 * sandbox, which counts among its pids */
    int no_interpreter;         /* for processes and files alone: cells and checkpoints are EINVAL */
    int paths;                  /* hutch_session_stat() and the other calls for paths inside can be made: so they can
                                 * with max_processes and without an interpreter, by the same small process */
    uint64_t wall_ms;           /* the most that a cell has and what it has without timeout_ms, in place of the policy's
                                 * wall limit and above it, too: a person who waits at a prompt ends what takes too
                                 * long. HUTCH_NO_LIMIT: none; 0: the policy's */
    const char *const *data_targets; /* as in hutch_request, and as long as the session */
};
void hutch_session_options_init(struct hutch_session_options *options);
#define hutch_session_options_init(options) HUTCH_INIT(options)

/* 0 and the session's id, which is never 0; no callback comes before this returns. It does not wait: cells may be
 * given to it at once. A session holds eight descriptors, nine with a control group, one for each checkpoint and
 * branch, with max_processes or paths one more, and four for each process. Errors: EAGAIN (max_sessions are open),
 * EMFILE, EINVAL, and as hutch_engine_submit(). */
int hutch_session_open(struct hutch_engine *engine, const struct hutch_session_options *options, uint64_t *ret_id,
                       struct hutch_error *err);

struct hutch_cell {
    size_t size;
    const char *code;     /* UTF-8, any bytes but NUL, 8 MiB at most */
    size_t code_len;      /* 0: up to the NUL */
    const char *context;  /* its variables are another context's no more than those of another program:
                           * [A-Za-z0-9_-]{1,64}, made when it is first named, 16 at most; NULL: "main" */
    uint64_t timeout_ms;  /* then it is interrupted, and five seconds later its interpreter killed; 0: the policy's
                           * wall limit or the session's wall_ms, which is also the most */
    int silent;           /* its value is not shown, and it does not count */
    int no_history;       /* it is not in In and Out */
    int allow_input;      /* input() asks; without, it raises StdinNotImplementedError */
    /* as it comes, and in the result too; may be NULL */
    void (*on_output)(void *user, uint64_t session, const struct hutch_output *output);
    /* to be answered by hutch_session_reply() */
    void (*on_input)(void *user, uint64_t session, const char *prompt, int is_password);
    /* exactly once; may be NULL */
    void (*on_result)(void *user, uint64_t session, const struct hutch_cell_result *result);
    void *user;
    /* as in a front end that knows Jupyter's widgets: on_output hears the state of those that have changed, before the
     * result, and Output widgets take what is shown while they are entered */
    int widgets;
    uint64_t *ret_id;     /* where hutch_session_execute() puts the cell's number, never 0 and no other cell's of the
                           * session; NULL: nowhere */
    /* it begins: at most once, before what it shows. @execution_count: 0: it is silent */
    void (*on_start)(void *user, uint64_t session, uint64_t cell, int execution_count);
    const char *const *env; /* NULL-terminated NAME=VALUE, in os.environ while it runs, and not after it; UTF-8, 256 of
                           * them and 128 KiB in all at most. What an interpreter reads when it starts has no effect.
                           * NULL: none */
    int wants_value;      /* the result has value_json */
    int stop_on_error;    /* unless its verdict is HUTCH_OK, the cells that wait behind it by then are not executed:
                           * they end as HUTCH_KILLED */
    const char *cwd;      /* absolute, inside: the context's working directory from here on, where it begins or goes on.
                           * One that cannot be entered is the cell's error, and it does not run. NULL: where the
                           * context is; a new one begins in that of the session */
    const char *calls;    /* JSON array of at most 64 names, identifiers of ASCII: functions by which the code of this
                           * cell calls its caller. "name": a call in an asynchronous function or statement is awaited,
                           * another one returns its answer; {"name", "async": true or false}: always, or never. NULL:
                           * none */
    /* The code has called one of these, @call is the number to answer by. @json: {"args": […], "kwargs": {…}}, of at
     * most 256 KiB. It is for the caller to judge: any code in the sandbox can make any of these calls. */
    void (*on_call)(void *user, uint64_t session, uint64_t call, const char *name, const char *json);
};
void hutch_cell_init(struct hutch_cell *cell);
#define hutch_cell_init(cell) HUTCH_INIT(cell)

/* Cells run one after the other, in the order of these calls. Errors: EAGAIN (64 wait already), EINVAL, ENOENT (there
 * is no such session, or no more). */
int hutch_session_execute(struct hutch_engine *engine, uint64_t id, const struct hutch_cell *cell,
                          struct hutch_error *err);

/* 1: the cell @cell waited, and is not going to be executed: its result, HUTCH_KILLED, comes by a later dispatch. 2: it
 * runs, and is interrupted as by the next function. 0: it is over, or was never there. */
int hutch_session_cancel_cell(struct hutch_engine *engine, uint64_t id, uint64_t cell);
/* KeyboardInterrupt in the cell that runs. 1 when there was one, else 0. */
int hutch_session_interrupt(struct hutch_engine *engine, uint64_t id);
/* Answers on_input; NULL: the end of the input. 1 when a cell was waiting for it, else 0. */
int hutch_session_reply(struct hutch_engine *engine, uint64_t id, const char *text);
/* Answers on_call, at any time before the result of the cell: several calls may wait, 64 at most. @json: the value, of
 * at most 4 MiB, NULL: null; with @is_error an exception is raised with it, as a rule a text. The time until then
 * counts for the cell. Errors: ENOENT (no such call waits, or not any more), EINVAL (it is no JSON), EAGAIN (the code
 * has not taken what it was answered before: again, later). */
int hutch_session_answer(struct hutch_engine *engine, uint64_t id, uint64_t call, const char *json, int is_error,
                         struct hutch_error *err);
/* Another interpreter, with the same files. Cells that run or wait end as killed; checkpoints and branches are
 * gone. */
int hutch_session_restart(struct hutch_engine *engine, uint64_t id, struct hutch_error *err);
/* Cells that run or wait end as killed, then on_end comes. 1 when there was such a session, else 0. */
int hutch_session_close(struct hutch_engine *engine, uint64_t id);

/* A checkpoint is a copy of the interpreter as it is between two cells, parked, and one of /mnt/data. A branch is one
 * that goes on: the branches of a session take turns. Both end with the session, with its restart, and when after the
 * death of the interpreter anything but a rollback, switch or drop comes next. Each of these orders waits its turn in
 * the session's queue, as a cell does, and is answered once. */
struct hutch_reply {
    size_t size;
    int  ok;
    const char *message; /* one sentence when it is not, else "" */
    uint64_t id;         /* of the checkpoint or branch */
    const char *lost;    /* JSON array of sentences: what the copy does not have (threads, child processes,
                          * connections); "[]" when nothing. After a rollback or switch: the one that goes on */
    double ms;           /* that it took, without waiting */
    uint64_t bytes;      /* of files that were copied */
    const char *json;    /* of an answer to hutch_session_ask(): an object; else NULL */
};
typedef void (*hutch_on_reply)(void *user, uint64_t session, const struct hutch_reply *reply);
int hutch_session_checkpoint(struct hutch_engine *engine, uint64_t id, hutch_on_reply on_reply, void *user,
                             struct hutch_error *err);
/* Variables and files are as they were; as often as wanted. */
int hutch_session_rollback(struct hutch_engine *engine, uint64_t id, uint64_t checkpoint, hutch_on_reply on_reply,
                           void *user, struct hutch_error *err);
/* Makes a branch that has what there is now. The session stays where it is. */
int hutch_session_fork(struct hutch_engine *engine, uint64_t id, hutch_on_reply on_reply, void *user,
                       struct hutch_error *err);
/* The cells from here on are that branch's; 0: the one that the session began with. */
int hutch_session_switch(struct hutch_engine *engine, uint64_t id, uint64_t branch, hutch_on_reply on_reply, void *user,
                         struct hutch_error *err);
int hutch_session_drop(struct hutch_engine *engine, uint64_t id, uint64_t checkpoint_or_branch, hutch_on_reply on_reply,
                       void *user, struct hutch_error *err);

/* Questions to the shell, with the words of Jupyter's protocol. What is answered is the interpreter's word, as its
 * outputs are. */
enum hutch_question_kind {
    HUTCH_ASK_COMPLETION,  /* {"cursor_end", "cursor_start", "matches", "metadata", "status"}, 1000 matches at most */
    HUTCH_ASK_INSPECTION,  /* {"data", "found", "metadata", "status"}, of the name at the cursor */
    HUTCH_ASK_IS_COMPLETE  /* {"indent", "status"}: "complete", "incomplete", "invalid", "unknown"; indent: of an
                            * incomplete one's next line */
};
struct hutch_question {
    size_t size;
    enum hutch_question_kind kind;
    const char *code;     /* as in hutch_cell, 256 KiB at most */
    size_t code_len;
    int64_t cursor;       /* code points of the code before the cursor; less than 0: its end */
    const char *context;  /* one that there is; NULL: "main" */
    int detail;           /* HUTCH_ASK_INSPECTION: 1: with the source */
    uint64_t timeout_ms;  /* then it is interrupted, and five seconds later not waited for any more; 0: 5 s */
};
void hutch_question_init(struct hutch_question *question);
#define hutch_question_init(question) HUTCH_INIT(question)
/* Waits its turn in the session's queue, as a cell does, and is answered once; hutch_session_interrupt() interrupts it,
 * too. Errors: as hutch_session_execute(). */
int hutch_session_ask(struct hutch_engine *engine, uint64_t id, const struct hutch_question *question,
                      hutch_on_reply on_reply, void *user, struct hutch_error *err);

/* A context loses its variables, In, Out and count, and goes back to the directory in which it began; or it is gone,
 * and is made anew when it is named again: not "main" (EINVAL). What other contexts share with it stays. Both wait
 * their turn, as a cell does, and are answered once. */
int hutch_session_reset_context(struct hutch_engine *engine, uint64_t id, const char *context, hutch_on_reply on_reply,
                                void *user, struct hutch_error *err);
int hutch_session_drop_context(struct hutch_engine *engine, uint64_t id, const char *context, hutch_on_reply on_reply,
                               void *user, struct hutch_error *err);

/* --- life of a session --- */

enum hutch_session_state {
    HUTCH_SESSION_OPENING, /* gets a sandbox, or its interpreter gets ready */
    HUTCH_SESSION_IDLE,    /* begins with what it is told at once */
    HUTCH_SESSION_BUSY,    /* with a cell, or another order */
    HUTCH_SESSION_PAUSED,
    HUTCH_SESSION_LOST     /* its interpreter has ended: the next cell has another one made, or a rollback goes back */
};
enum hutch_paused_by {
    HUTCH_PAUSED_BY_NOTHING, /* it is not paused; or there is no process to be stopped */
    HUTCH_PAUSED_BY_CGROUP,  /* the kernel has frozen all of its processes */
    HUTCH_PAUSED_BY_SIGNALS  /* process 1 has stopped them, and looks whether they stay so: a program that is made to
                              * withstand it can run for moments */
};
struct hutch_session_info {
    size_t size;                  /* the caller sets it, to sizeof(struct hutch_session_info) */
    enum hutch_session_state state;
    double t_opened, t_used;      /* seconds since 1970; used: when its last cell or other order ended, or it was
                                   * opened */
    double t_idle_end;            /* when it is closed unless it gets something to do before; 0: not now, as it has
                                   * something to do, or never */
    double t_end;                 /* when its lifetime is over; 0: never */
    uint64_t idle_ms;             /* HUTCH_NO_LIMIT: none */
    unsigned waiting;             /* cells and other orders, without the one at work */
    uint64_t cell;                /* number of the cell at work; 0: none is */
    unsigned contexts;            /* with "main" */
    unsigned checkpoints, branches; /* branches: without the one that the session is in */
    uint64_t branch;              /* the one that it is in; 0: that with which it began */
    uint64_t memory_bytes, cpu_ms, pids; /* of its sandbox: now, or at the last check where no control group counts;
                                          * HUTCH_UNKNOWN without a sandbox, or before that check */
    uint64_t data_bytes, data_files; /* below /mnt/data: now where that is in memory, else at the last count;
                                      * HUTCH_UNKNOWN where nothing has counted */
    uint64_t checkpoint_bytes;    /* of the files of all checkpoints and branches */
    enum hutch_paused_by paused_by;
    int is_still;                 /* it is paused, and as far as is known nothing has run in it since: by signals, 0
                                   * when something did, and was stopped again */
    unsigned processes;           /* of hutch_session_spawn(): those whose on_end has not come */
};
/* What a session is like at this moment. @ret_json, where it is not NULL, gets the same and its lists as the JSON
 * object of docs/sessions.md, for the caller to free(3). At once; nothing is counted for it. Errors: ENOENT, ENOMEM. */
int hutch_session_get_info(struct hutch_engine *engine, uint64_t id, struct hutch_session_info *ret, char **ret_json,
                           struct hutch_error *err);
/* All processes of a session stand still, where they are; memory is kept. So do the clocks of its cell and of its
 * idleness, and those of its processes, but not its lifetime. Cells, processes and other orders may be given to it, and
 * wait. An interrupt comes when it goes on; a restart and the end come at once, and after a restart it is paused still.
 * One whose sandbox is not ready pauses when it is. Where there is no control group, process 1 of the sandbox does it
 * by signals, which is not certain: see paused_by. 0 also when it is so already. Errors: ENOENT. */
int hutch_session_pause(struct hutch_engine *engine, uint64_t id, struct hutch_error *err);
int hutch_session_resume(struct hutch_engine *engine, uint64_t id, struct hutch_error *err);
/* Both begin at this call: it is closed after @idle_ms without a cell, and @lifetime_ms from now. 0: stays as it is;
 * HUTCH_NO_LIMIT: never. Errors: ENOENT. */
int hutch_session_set_lifetime(struct hutch_engine *engine, uint64_t id, uint64_t idle_ms, uint64_t lifetime_ms,
                               struct hutch_error *err);

/* One reply when the files below /mnt/data are there, which they are from the session's first sandbox on, or why it
 * gets none. It waits for no cell. Errors: ENOENT, EAGAIN (64 wait already), ENOMEM. */
int hutch_session_await_files(struct hutch_engine *engine, uint64_t id, hutch_on_reply on_reply, void *user,
                              struct hutch_error *err);

/* Files below /mnt/data, which belong to hostile code: names are relative, any bytes but NUL, and no link is followed.
 * At once, also while a cell runs. Errors: EAGAIN (the session has no sandbox yet), ENOENT, EINVAL (a name that leaves
 * the directory), EFBIG and the like. */
/* [{"path", "size", "mime", "type", "mtime"}], for the caller to free(3). */
char *hutch_session_files(struct hutch_engine *engine, uint64_t id, struct hutch_error *err);
/* A descriptor, the caller's to close: O_RDONLY of a regular file, or O_WRONLY of a new or emptied one. */
int hutch_session_open_file(struct hutch_engine *engine, uint64_t id, const char *name, int flags,
                            struct hutch_error *err);
int hutch_session_delete_file(struct hutch_engine *engine, uint64_t id, const char *name, struct hutch_error *err);

/* --- paths inside a session --- */

/* Files anywhere in a session's sandbox, /mnt/data among them. Each call is an order to a small process of the
 * sandbox's, which does it with the sandbox's user, root, mounts and confinement: a path leads where it leads for the
 * session's own programs, and nowhere else. A path is absolute, or relative to the session's working directory, and has
 * 1 to 4095 bytes of anything but NUL. Orders may be given from the moment the session is open, and wait for its
 * sandbox, also while it is paused. They do not wait for cells. Several are at work at a time, in no order among them.
 *
 * What is answered is the sandbox's word: code in it can make each of these calls fail, or lie. */

enum hutch_path_type {
    HUTCH_PATH_OTHER,
    HUTCH_PATH_FILE,      /* a regular one */
    HUTCH_PATH_DIRECTORY,
    HUTCH_PATH_LINK,
    HUTCH_PATH_FIFO,
    HUTCH_PATH_SOCKET,
    HUTCH_PATH_DEVICE
};
struct hutch_path_entry { /* does not change */
    const char *path;     /* as it was given; of a list: below the directory, "a", "a/b" */
    enum hutch_path_type type;
    unsigned mode;        /* twelve bits */
    unsigned uid, gid;    /* as the sandbox has them */
    uint64_t bytes;
    double mtime;         /* seconds since 1970 */
    const char *target;   /* of a link, also of one that was followed: what it says, where that can be read; else
                           * NULL */
};

struct hutch_path_reply {
    size_t size;
    int ok;
    int code;             /* an errno when it is not ok: ENOENT, EACCES, EROFS, ENOSPC, …; ECANCELED: the sandbox has
                           * ended, or what serves these orders was killed; ETIMEDOUT */
    const char *message;  /* one sentence when it is not ok, else "" */
    const struct hutch_path_entry *entries; /* stat, make_directory, open: one; list: sorted by the bytes of the path */
    size_t n_entries;
    int truncated;        /* of a list: there was more than max_entries or 4 MiB of names, or a directory below that
                           * could not be read */
    int existed;          /* make_directory: it was there */
    int fd;               /* open: of a regular file; the engine's, to be duplicated by who wants it longer. Else -1 */
    double ms;            /* that it took, without waiting for a sandbox */
};
/* Exactly once for each order, before on_end of the session. */
typedef void (*hutch_on_path)(void *user, uint64_t session, const struct hutch_path_reply *reply);
/* {"entries": [{"path", "type", "mode", "uid", "gid", "size", "mtime", "target"}], "truncated", "existed", "ms"}, or
 * with "error": {"errno", "message"}, for the caller to free(3); NULL: ENOMEM. Inside the callback only. type is
 * "file", "directory", "link", "fifo", "socket", "device" or "other"; a path or target that is not UTF-8 has
 * "path_base64" or "target_base64" beside it. */
char *hutch_path_reply_to_json(const struct hutch_path_reply *reply);

struct hutch_path_options {
    size_t size;
    hutch_on_path on_reply;
    void *user;
    uint64_t timeout_ms;  /* then ETIMEDOUT, and the order is given up, done or not or in part; 0: 30 s. It stands
                           * still in a pause, and begins when there is a sandbox */
    int follow;           /* stat: of what a link at the end of the path leads to. The others: list and open follow one,
                           * rename and remove take the link itself */
    unsigned depth;       /* list: levels; 0: 1, the directory alone; at most 32. Links are not followed below it */
    unsigned max_entries; /* list; 0: 10000, at most 65536 */
    int parents;          /* make_directory, rename (of the new name), open with O_CREAT: directories on the way that
                           * are missing are made; and for make_directory a directory that is there is no error */
    int tree;             /* remove: a directory with all that is in it; without, an empty one */
    unsigned mode;        /* of what make_directory (0: 0755) or open with O_CREAT makes (0: 0644), nine bits */
};
void hutch_path_options_init(struct hutch_path_options *options);
#define hutch_path_options_init(options) HUTCH_INIT(options)

/* Each returns 0 when the order was taken; no callback comes before it returns. Errors: ENOENT (no such session),
 * EINVAL (no path as above; options; a session without paths, max_processes or no_interpreter in its options), EAGAIN
 * (64 orders wait already), EMFILE, ENOMEM. What is wrong inside comes with the reply. */
int hutch_session_stat(struct hutch_engine *engine, uint64_t session, const char *path,
                       const struct hutch_path_options *options, struct hutch_error *err);
int hutch_session_list(struct hutch_engine *engine, uint64_t session, const char *path,
                       const struct hutch_path_options *options, struct hutch_error *err);
int hutch_session_make_directory(struct hutch_engine *engine, uint64_t session, const char *path,
                                 const struct hutch_path_options *options, struct hutch_error *err);
/* As rename(2): a file, or an empty directory for a directory, that has the new name makes room; EXDEV between two
 * mounts, such as /tmp and /mnt/data. */
int hutch_session_rename(struct hutch_engine *engine, uint64_t session, const char *path, const char *new_path,
                         const struct hutch_path_options *options, struct hutch_error *err);
/* One file, link or directory; never a place where something is mounted (EBUSY). A tree that has an entry which cannot
 * be removed stays in part. */
int hutch_session_remove(struct hutch_engine *engine, uint64_t session, const char *path,
                         const struct hutch_path_options *options, struct hutch_error *err);
/* @flags: O_RDONLY or O_WRONLY; with the latter also O_CREAT, O_EXCL, O_TRUNC and O_APPEND. It opens a regular file on
 * a disk or in memory, or none (EINVAL; EISDIR), so that reading and writing it waits for no process inside, whatever
 * its owner does. That one may change, shorten or remove it at any moment: do not map it. A program inside that got
 * hold of it could move its position: use pread(2) and pwrite(2). What is written counts for the sandbox's files, whose
 * limits are checked afterwards; a full place is ENOSPC for the caller's write(2). */
int hutch_session_open_path(struct hutch_engine *engine, uint64_t session, const char *path, int flags,
                            const struct hutch_path_options *options, struct hutch_error *err);

/* --- changes of a directory --- */

enum hutch_change_kind {
    HUTCH_CREATED,    /* it is there, made or moved to there */
    HUTCH_WRITTEN,
    HUTCH_REMOVED,
    HUTCH_RENAMED,    /* it was moved away */
    HUTCH_ATTRIBUTES, /* mode, owner, times, or number of names */
    HUTCH_CHANGES_LOST /* some were not told: list it */
};
struct hutch_change {
    size_t size;
    enum hutch_change_kind kind;
    const char *name;  /* in the directory; any bytes but NUL and '/', NUL-terminated. HUTCH_CHANGES_LOST: "" */
    int is_directory;
};

struct hutch_watch_options {
    size_t size;
    /* It is watched: at most once, and before on_change. */
    void (*on_begin)(void *user, uint64_t session, uint64_t watch);
    void (*on_change)(void *user, uint64_t session, uint64_t watch, const struct hutch_change *change);
    /* Exactly once, before on_end of the session: an errno and one sentence. ECANCELED: by hutch_session_unwatch(), or
     * its sandbox has ended; ENOENT: there is no such directory, or no more */
    void (*on_end)(void *user, uint64_t session, uint64_t watch, int code, const char *message);
    void *user;
};
void hutch_watch_options_init(struct hutch_watch_options *options);
#define hutch_watch_options_init(options) HUTCH_INIT(options)

/* Tells what changes in a directory inside, and not below its subdirectories. @path is as above. The sandbox opens it,
 * and the calling process watches it by inotify(7), so it has to be readable for both. All engines of a user share
 * fs.inotify.max_user_instances, of which an engine takes one while something is watched, and max_user_watches. What is
 * read is not told, and one that has more than 5000 changes within a second is not watched until that is over: then
 * HUTCH_CHANGES_LOST comes, as it does for all directories of the engine when the kernel's queue was full. Such a
 * watch does not keep a session from being idle. Errors: ENOENT (no such session), EINVAL (as above), EAGAIN (16
 * in a session, 1024 in an engine, or 64 orders wait), EMFILE, ENOMEM. */
int hutch_session_watch(struct hutch_engine *engine, uint64_t session, const char *path,
                        const struct hutch_watch_options *options, uint64_t *ret_watch, struct hutch_error *err);
/* on_end follows by a later dispatch. 1 when there was something to end, else 0. */
int hutch_session_unwatch(struct hutch_engine *engine, uint64_t session, uint64_t watch);

/* --- processes of a session --- */

/* Programs that run in a session's sandbox beside its cells, with the confinement of its interpreter and within the
 * session's limits. Each leads a session and process group of its own. They end when the sandbox does: when the session
 * is closed or restarted, and when its interpreter dies; and at a rollback or switch, as all that cells have left
 * running does. What a process leaves running when it ends, goes on. A session with one that runs is not idle. */

struct hutch_process_end {
    size_t size;
    int exit_code;       /* -1: it did not exit by itself; 126, 127: its program could not be executed, why says it */
    int signal;          /* that it died of; 0: none, or it is not known */
    const char *why;     /* one sentence when hutch ended it, or it never ran; else "" */
    int truncated;       /* there was output that was not told: beyond output_bytes, or held back to the end */
    double run_ms;       /* from its begin; 0: it never ran */
};

struct hutch_process_options {
    size_t size;
    const char *const *args;     /* NULL-terminated: the program, which is looked for in PATH, and its arguments */
    const char *shell;           /* instead: a text for /bin/sh -c */
    const char *const *env;      /* NULL-terminated NAME=VALUE on top of the session's, or NULL */
    const char *cwd;             /* NULL: the session's */
    int has_input;               /* stdin is a pipe, for hutch_process_write(); without, it is at its end */
    int terminal;                /* all three streams are a terminal of rows and columns; its output is stream 1. Only
                                  * where Landlock is active: on_end says so elsewhere */
    unsigned rows, cols;         /* 0: 24 and 80 */
    uint64_t wall_ms;            /* SIGTERM then, and SIGKILL two seconds later; 0: no limit */
    uint64_t output_bytes;       /* then it is killed; 0: the session's; HUTCH_NO_LIMIT: none, as nothing of it is
                                  * kept here */
    /* As it comes, stream 1 or 2, not NUL-terminated; may be NULL. */
    void (*on_output)(void *user, uint64_t session, uint64_t process, int stream, const char *data, size_t len);
    /* hutch_process_write() had said EAGAIN, and takes more now, or never again; may be NULL. */
    void (*on_room)(void *user, uint64_t session, uint64_t process);
    /* Exactly once, after all output, and before on_end of the session; may be NULL. */
    void (*on_end)(void *user, uint64_t session, uint64_t process, const struct hutch_process_end *end);
    void *user;
};
void hutch_process_options_init(struct hutch_process_options *options);
#define hutch_process_options_init(options) HUTCH_INIT(options)

/* 0 and the process's id, which counts from 1 in each session; no callback comes before this returns. It may be called
 * from the moment the session is open. The texts have 128 KiB in all at most. Errors: ENOENT (no such session), EAGAIN
 * (max_processes run, or wait to), EINVAL (also in a session without max_processes), E2BIG, EMFILE, ENOMEM. */
int hutch_session_spawn(struct hutch_engine *engine, uint64_t session, const struct hutch_process_options *options,
                        uint64_t *ret_process, struct hutch_error *err);

/* In the calls that follow ENOENT says that there is no such process in the session, or no more. */

/* How many bytes stdin has taken, at least one. Errors: EAGAIN (it is full, or not there yet: on_room follows), EPIPE
 * (it was closed, on either side, or there is none). */
int hutch_process_write(struct hutch_engine *engine, uint64_t session, uint64_t process, const char *data, size_t len,
                        struct hutch_error *err);
/* The end of its input. At a terminal Ctrl-D is typed. */
int hutch_process_close_stdin(struct hutch_engine *engine, uint64_t session, uint64_t process, struct hutch_error *err);
/* To its process group. One that has not begun ends by any signal. Errors: EINVAL, EAGAIN (process 1 does not listen
 * just now; or SIGSTOP and SIGCONT while the session is paused). */
int hutch_process_signal(struct hutch_engine *engine, uint64_t session, uint64_t process, int signal,
                         struct hutch_error *err);
/* Errors: EINVAL (it has no terminal). */
int hutch_process_resize(struct hutch_engine *engine, uint64_t session, uint64_t process, unsigned rows, unsigned cols,
                         struct hutch_error *err);
/* @hold: its output is not read from here on, so it waits when its pipes are full; 0: it is read again. While output
 * is held on_end waits, too, unless the sandbox ends. */
int hutch_process_hold(struct hutch_engine *engine, uint64_t session, uint64_t process, int hold,
                       struct hutch_error *err);
/* [{"id", "pid", "args", "cwd", "state": "waiting", "starting", "running" or "ended", "terminal", "held",
 * "output_bytes", "run_ms"}], for the caller to free(3). pid is the sandbox's, null before it is known; cwd is null
 * where it is the session's. */
char *hutch_session_processes(struct hutch_engine *engine, uint64_t session, struct hutch_error *err);

/* --- directories of the caller's --- */

/* Files below a directory that hostile code has written into, or writes into: one that is kept after a run, or that was
 * its data_dir. What does it is what does it for a session's files, with the caller's rights. It needs no engine, any
 * thread may call it, and it takes as long as the tree asks for. @dirfd is open, also with O_PATH, and stays the
 * caller's; AT_FDCWD is none. Names are relative to it and have 1 to 4095 bytes of anything but NUL, no part that is
 * empty, "." or "..", and no '/' at the end. No link is followed, and no mount below it is entered. Messages quote
 * names with what is not printable ASCII as \xNN. Errors of all three: EBADF and ENOTDIR (@dirfd), EMFILE, ENOMEM, and
 * what else the kernel says (EACCES, ENOSPC, …). */

/* [{"path", "size", "mime", "type", "mtime"}] as of hutch_session_files(), sorted by the bytes of the path, for the
 * caller to free(3). type is "file", "symlink", "fifo", "socket", "char_device", "block_device", or "directory" for one
 * that cannot be read; other directories are not listed. Nothing is changed. Errors: E2BIG (more than 200000 files,
 * 8 MiB of paths or 4000000 entries; a path of more than 4095 bytes; a part that could not be looked at). */
char *hutch_dir_list(int dirfd, struct hutch_error *err);
/* A descriptor with FD_CLOEXEC, the caller's to close. O_RDONLY: of a regular file, which its owner may change or
 * shorten at any moment, so do not map it. O_WRONLY: of a new empty file, 0644; directories on the way are made, and a
 * regular file that has the name makes room: whoever has that open keeps it. What a caller with user id 0 makes belongs
 * to the directory's owner. Errors: EINVAL (no name as above; other flags), ENAMETOOLONG, ENOENT, EISDIR, ELOOP (a
 * link, or behind one), EXDEV (behind a mount), EAGAIN (it keeps changing, or a process has a lease on it); 0 for a
 * FIFO, socket or device, which is not waited for. */
int hutch_dir_open_file(int dirfd, const char *name, int flags, struct hutch_error *err);
/* A file, a link itself, or a directory with all that is in it, as deep as it is and whatever modes it has. Errors:
 * EINVAL, ENAMETOOLONG, ENOENT, ELOOP (behind a link), EXDEV (behind a mount), EBUSY (a mount in it), ENOTEMPTY (a
 * process keeps writing into it). After one of the last two a part of it may be gone. */
int hutch_dir_delete(int dirfd, const char *name, struct hutch_error *err);

#ifdef __cplusplus
}
#endif

#endif
