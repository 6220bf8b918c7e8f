/* run.h - one run, from its place in the queue to its result; and its kinds, which say what a sandbox is told and what
 * becomes of it. */
#ifndef HUTCH_ENGINE_RUN_H
#define HUTCH_ENGINE_RUN_H

#include "runtime/data/changes.h"
#include "runtime/engine/input.h"
#include "runtime/engine/job.h"
#include "runtime/engine/look.h"
#include "runtime/engine/pool.h"
#include "runtime/engine/run_transfer.h"
#include "runtime/engine/slot.h"
#include "runtime/engine/tenant.h"
#include "runtime/hutch.h"
#include "runtime/run/result.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct engine_run;

/* How a run stands when nothing more comes from its sandbox. */
enum run_outcome {
    OUTCOME_JUDGE,  /* by what the supervisor saw */
    OUTCOME_AGAIN,  /* nothing of its code has run, through no fault of its own: it starts again */
    OUTCOME_REFUSE, /* it would come to the same end every time: the reason is given */
};

struct run_kind {
    /* The sandbox is entered: tells the worker what to execute. The reason for -1 in @err. Not with is_exec. */
    int (*start)(struct engine_run *run, struct hutch_err *err);
    /* Whether output goes to hear() as it comes; else it is captured in the result. */
    bool (*wants_output)(const struct engine_run *run);
    void (*hear)(struct engine_run *run, int stream, const char *data, size_t len); /* 1, 2: stdout, stderr */
    /* The worker's socket takes more. NULL where the kind watches that socket itself. */
    void (*on_writable)(struct engine_run *run);
    /* init follows another worker. NULL where none is ordered to. */
    void (*on_followed)(struct engine_run *run);
    /* init has signalled the worker. NULL: that makes no difference. */
    void (*on_signalled)(struct engine_run *run);
    /* init watches a process, or one that it watched has ended: INIT_WATCHED, INIT_PROCESS_ENDED. NULL: none is. */
    void (*on_process)(struct engine_run *run, const struct init_msg *msg);
    /* Its worker has ended, and what INIT_KEEP named has not. Whether the run goes on with that: then the result holds
     * the verdict for on_outlived(). NULL likewise. */
    bool (*can_outlive)(const struct engine_run *run);
    void (*on_outlived)(struct engine_run *run);
    /* Nothing more comes from the sandbox, its output is read. */
    enum run_outcome (*conclude)(struct engine_run *run, struct hutch_err *why);
    /* What belonged to the sandbox goes: the run gets another one, or ends. NULL: nothing. */
    void (*reset)(struct engine_run *run);
    /* No sandbox can be had, or none that works. */
    void (*refuse)(struct engine_run *run, const struct hutch_err *why);
    /* Everything in it is dead, what lies in its data directory is kept for another sandbox, and there is too much to
     * look at it in the loop: orders a look with run->look, in which it has a last count too, and hutch_run_looked()
     * follows. False where that cannot be had. NULL: the directory is the run's alone, or the caller's. */
    bool (*look)(struct engine_run *run, const struct collect_bounds *bounds);
    /* Everything in it is dead, and the result holds the verdict. @has_files: something lies in its data directory, or
     * did. The run may be freed. */
    void (*die)(struct engine_run *run, bool has_files);
    /* The result is about to be delivered: adds to it what only the kind knows. What its cell showed, as long as the
     * run; or NULL. NULL: a kind that has nothing to add. */
    const struct hutch_cell_result *(*finish)(struct engine_run *run);
    void (*free)(struct engine_run *run); /* kind_data. NULL: there is none */
};

enum run_stage { RUN_QUEUED, RUN_WAITING, RUN_RUNNING, RUN_ENDING };

/* All of one engine. */
struct runs {
    struct core *core;
    struct slots *slots;
    struct pools *pools;
    struct tenants tenants;          /* whose queues hold the runs that wait */
    struct run_list active, ending;  /* ending: have a result that is not delivered yet */
    unsigned n_queued, n_active, max_running, max_queued; /* the most are set by the owner */
    uint64_t next_id;                      /* of sessions, too */
    uint64_t submitted, finished, restarted;
};

struct engine_run {
    struct doomed doomed;            /* it may be freed while an event for its input waits */
    TAILQ_ENTRY(engine_run) link;    /* of its tenant's queue, the active, or the ending ones; a session's is in none */
    struct runs *runs;
    struct tenant *tenant;           /* a reference */
    const struct run_kind *kind;
    void *kind_data;           /* the kind's */
    uint64_t id;
    enum run_stage stage;
    struct pool_wait wait;
    bool is_exec;              /* init executes it */
    unsigned zygote_index;
    unsigned pool_index;       /* without a template */
    struct template *template; /* a reference; NULL: the pool's */
    struct slot *slot;         /* NULL: none yet */
    char *job;                 /* owned; what the worker is sent, NULL with is_exec */
    size_t job_len, job_sent;
    struct job_rlimits rlimits; /* that the job asks for in any sandbox: run_limits.h may add to them */
    bool lost_job;             /* the worker died before it had read all of its job: nothing of it has run */
    struct run_input input;
    char *data_dir;            /* owned; real path; NULL: a fresh one */
    struct slot_volume *volume; /* not owned; data_dir is that one; NULL: it is on disk */
    dev_t data_dev;            /* what the path led to when the run was asked for; */
    ino_t data_ino;            /* 0: a fresh one */
    bool keep_data, is_cancelled, was_prepared;
    bool lowers_cpu, lowers_file_size; /* by resource limits that come with the job */
    uint64_t limits[LIMIT_COUNT];
    uint64_t grace_ms;
    double t_submitted, t_active;
    struct deadline clock;     /* until its code has begun: when it is to have a sandbox */
    double t_waiting;          /* since when it wants one; 0: it does not */
    /* begun again; of these, not because of a sandbox that was in the pool before it came */
    unsigned restarts, strikes;
    struct run_transfer transfer;
    struct file_list before;   /* what lay in the caller's directory */
    int before_fd;             /* owned; that list as a memory file, where it is long; else -1 */
    bool keeps_list;           /* the kind knows what lay there: it is not looked for again */
    struct look look;          /* the first or the last one at its files, where there are many */
    void (*on_look)(struct engine_run *run, const struct hutch_err *why); /* run_files.h: what follows it */
    double t_landing;          /* when its files in memory began to be copied to the disk */
    struct hutch_err copy_err; /* why its files in memory could not be copied to the disk */
    bool has_looked;           /* it is done, and the result has its files */
    struct run_result result;
    void (*on_output)(void *user, uint64_t id, int stream, const char *data, size_t len);
    void (*on_result)(void *user, uint64_t id, const struct hutch_result *result);
    void *user;
};

void hutch_runs_init(struct runs *runs, struct pools *pools);
/* Frees them all, without a result. */
void hutch_runs_done(struct runs *runs);
/* Delivers what could not be delivered where it came to be. */
void hutch_runs_deliver_ending(struct runs *runs);
/* There is something for the next turn. */
bool hutch_runs_have_work(const struct runs *runs);
/* The engine is broken. */
void hutch_runs_refuse_all(struct runs *runs);
/* NULL: it is over, or never was. */
struct engine_run *hutch_run_find(struct runs *runs, uint64_t id);

/* For @tenant, who has @weight. NULL on ENOMEM. The kind and what it is to do are the caller's to set. */
struct engine_run *hutch_run_create(struct runs *runs, uint64_t tenant, unsigned weight);
void hutch_run_free(struct engine_run *run); /* NULL is fine */
/* Has a sandbox found or made for it. */
void hutch_run_activate(struct engine_run *run);
/* Its code has not begun: its sandbox goes, or it does not wait for one any more. */
void hutch_run_withdraw(struct engine_run *run);
/* After look(): what it came to, or NULL. */
void hutch_run_looked(struct engine_run *run, const struct disk_reply *reply);
/* In die(): the sandbox is over, and the run stays. */
void hutch_run_leave_slot(struct engine_run *run);
void hutch_run_cancel(struct engine_run *run);
/* As hutch_supervisor_pass_signal(). */
void hutch_run_signal(struct engine_run *run, int sig);
/* Ends it for good, with the result "setup_failed": what the kinds refuse() with that are queued. */
void hutch_run_fail(struct engine_run *run, const struct hutch_err *why);
/* Looks at its files where @has_files, and delivers. Frees it. */
void hutch_run_deliver(struct engine_run *run, bool has_files);

#endif
