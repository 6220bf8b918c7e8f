/* engine_priv.h - what the files of the warm engine share; nobody else includes it.
 *
 *   engine.c           the public functions and the loop
 *   engine/link.c      descriptors and sockets that are waited for
 *   engine/helper.c    the helper processes (opener, launcher), and the specs that the launcher knows
 *   engine/zygotes.c   the generations of interpreters: spares, deaths, recycling
 *   engine/slot.c       one sandbox, from the order to build it to its removal
 *   engine/pool.c      how many of them are kept, and for which interpreter
 *   engine/run.c       one run, from its place in the queue to its result
 *   session/interpreter.c     what is said to an interpreter that executes cells, and what it says
 *   session/execution.c      one cell, from its order to what is known of it at its end
 *   session/cell_run.c      a run that is one cell
 *   session/session.c   one session, from its first cell to its last
 *   lib/session.c  what a caller may ask of a session: checked, and made into its orders
 *   session/checkpoint.c    its checkpoints and branches
 *   lib/request.c   what a caller may ask for: checked, and made into a run */
#ifndef HUTCH_ENGINE_ENGINE_PRIV_H
#define HUTCH_ENGINE_ENGINE_PRIV_H

#include "runtime/cell/feed.h"
#include "runtime/cell/frames.h"
#include "runtime/data/changes.h"
#include "runtime/engine/link.h"
#include "runtime/hutch.h"
#include "runtime/config/profile.h"
#include "runtime/run/result.h"
#include "sandbox/sandbox.h"
#include "sandbox/spec.h"
#include "runtime/run/state.h"
#include "runtime/run/supervisor.h"
#include "runtime/launcher/wire.h"
#include "sandbox/zygote_wire.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#define ENGINE_MAX_ZYGOTES 32
#define ENGINE_MAX_MODULES 256   /* different ones, over all zygotes */
#define ENGINE_SETUP_MS    30000 /* a step of the building of a sandbox takes milliseconds; this is for a host that hangs */
#define ENGINE_IMPORT_MS   180000 /* an interpreter reads its libraries, perhaps from a slow disk */
#define ENGINE_MAX_RESTARTS 3    /* of one run; and failures in a row of anything that no run waits for */

struct interpreter;
struct slot;
struct hutch_cell_details;
struct engine_run;
struct zygote;
struct checkpoint;
struct pool;
struct cell_run;
struct session;
struct generation;

TAILQ_HEAD(session_list, session);
TAILQ_HEAD(slot_list, slot);
TAILQ_HEAD(run_list, engine_run);

/* --- specs that the launcher knows: engine/helper.c --- */

struct template {
    TAILQ_ENTRY(template) link;
    struct hutch_engine *engine;
    uint32_t id;
    unsigned refs;
    struct sandbox_spec spec;
    int memfd;             /* owned; encoded */
    int *fds;              /* owned, with is_mapped_away: root tree and binds as detached mounts; -1: not there yet */
    size_t n_fds, n_open;  /* how many there have to be; have been asked for and answered */
    uint64_t missing[4];
    bool is_sent;          /* the present launcher has it */
    bool has_failed;       /* a source, or the description; tried again for whoever wants it */
    struct hutch_err why;  /* has_failed, with more sources on their way: what the first one lacks */
};
TAILQ_HEAD(template_list, template);

/* Takes @spec over, on failure too. One reference is the caller's. */
struct template *hutch_template_create(struct hutch_engine *engine, struct sandbox_spec *spec, struct hutch_err *err);
void hutch_template_unref(struct template *b); /* NULL is fine */
/* For a sandbox that waits for it from now on. */
void hutch_template_want(struct template *b);

/* --- helper processes: engine/helper.c --- */

struct helper {
    pid_t pid;            /* of the opener; 0: not running */
    int pidfd;            /* owned; a caller that reaps every child may have its number given to another process */
    struct link opener, launcher, disk;
    bool has_hello, is_mapped_away, has_launcher;
    pid_t launcher_pid;
    double since;         /* when it was started, or its launcher was lost */
    double retry_at;      /* when it is started again; LOOP_NEVER */
    struct deadline clock;
    unsigned failures;    /* in a row, without a sandbox between */
    unsigned launchers;   /* that came since the start */
};

int hutch_helper_start(struct hutch_engine *engine, struct hutch_err *err);
void hutch_helper_stop(struct hutch_engine *engine); /* waits for the end of all that it started */
/* The launcher gets @request, now or, when it is not there, never: whoever waits for an answer hears of a launcher's loss. */
int hutch_helper_order(struct hutch_engine *engine, const struct launcher_request *request, const int *fds, size_t n_fds,
                       struct hutch_err *err);
/* Has a directory below the data root removed, whenever that is. False when nobody can. */
bool hutch_helper_disk_remove(struct hutch_engine *engine, const char *name);
/* An order about the files of a session, whose data root is the store. The answer comes to hutch_checkpoint_on_files(). False when nobody is there. */
bool hutch_helper_disk_order(struct hutch_engine *engine, const struct disk_request *request, int data_dirfd);
/* OPENER_OPEN; the answer comes to hutch_slot_on_opened() or to the template that asked. */
int hutch_helper_open(struct hutch_engine *engine, uint32_t id, const char *path, unsigned flags, struct hutch_err *err);

/* --- interpreters: engine/zygotes.c --- */

/* What the operator asked for; the same in every generation. */
struct zygote_conf {
    char *name;               /* owned */
    int parent;               /* index, -1 for the root */
    char *text;               /* owned: names to import, and "---" and code */
    size_t text_len;
    uint64_t modules[ENGINE_MAX_MODULES / 64]; /* bits: importable here, those of the ancestors too */
    uint64_t own[ENGINE_MAX_MODULES / 64];     /* bits: those that this one adds */
    size_t n_modules;         /* the bits in modules: its size */
    unsigned min, max;
    uint64_t recycled;
    bool has_given_up;        /* it cannot be made in this image: others stand in for it */
};

enum zygote_state { ZYGOTE_IS_STARTING, ZYGOTE_IS_READY };
/* One interpreter process. */
struct zygote {
    struct link link;
    struct hutch_engine *engine;
    struct generation *generation;
    unsigned index;     /* which conf */
    uint32_t id;
    bool is_spare;
    enum zygote_state state;
    pid_t pid;          /* as this process sees it; 0: not known */
    double since;
    uint64_t forks;     /* workers */
    unsigned n_forking; /* slots that wait for its answer */
    struct doomed doomed;
};

struct zygote_slot {
    struct zygote *zygote, *spare; /* NULL: none */
    double retry_at;           /* when the zygote is started; 0: now */
    unsigned failures;         /* in a row */
    unsigned refusals;         /* of these, with a reason: it will not be better the next time */
};
struct generation {
    struct hutch_engine *engine;
    struct zygote_slot zygote_slots[ENGINE_MAX_ZYGOTES];
    int stderr_fd; /* owned; a memfd: what its processes say when they cannot start */
    double since;
    struct generation *next; /* among those that retire */
};

int hutch_zygotes_configure(struct hutch_engine *engine, const struct hutch_zygote *zygotes, size_t n, struct hutch_err *err);
void hutch_zygotes_done(struct hutch_engine *engine);
/* The launcher is there, for the first time or again. */
void hutch_zygotes_on_launcher(struct hutch_engine *engine);
void hutch_zygotes_on_reply(struct hutch_engine *engine, const struct launcher_reply *reply); /* LAUNCHER_STARTED, LAUNCHER_FAILED */
void hutch_zygotes_drop_all(struct hutch_engine *engine); /* the helper is gone, and they with it */
/* The one that forks workers for @index now, NULL when none is ready. */
struct zygote *hutch_zygotes_find(struct hutch_engine *engine, unsigned index);
/* The index for a program that imports what the text says. */
unsigned hutch_zygotes_choose(const struct hutch_engine *engine, const char *code, size_t len);
/* The index of the one called @name; without a name, of the smallest that has what executes cells, else the last. -1: no such name. */
int hutch_zygotes_choose_for_cells(const struct hutch_engine *engine, const char *name);
void hutch_zygotes_release(struct zygote *zygote); /* a slot does not wait for it any more */

/* --- sandboxes: engine/slot.c --- */

enum slot_state {
    SLOT_NEW,        /* its spec, or the launcher, is not there yet */
    SLOT_BUILDING,   /* LAUNCHER_BUILD or LAUNCHER_EXEC was sent */
    SLOT_STANDING,   /* BUILT came, init works on it */
    SLOT_READY,      /* INIT_READY came; waits for its interpreter */
    SLOT_FORKING,    /* ZYGOTE_WORKER was sent */
    SLOT_PREPARED,
    SLOT_OPENING,    /* for its run: the data directory is opened */
    SLOT_ATTACHING,  /* … and mounted */
    SLOT_RUNNING,
    SLOT_DYING,      /* all is over but the processes, which its files wait for */
    SLOT_DESTROYING, /* LAUNCHER_DESTROY was sent */
    SLOT_DEAD,
};
struct slot {
    TAILQ_ENTRY(slot) link; /* of the engine */
    TAILQ_ENTRY(slot) idle; /* of its pool, while SLOT_PREPARED and without a run */
    struct hutch_engine *engine;
    uint32_t id;
    enum slot_state state;
    double since;
    struct deadline clock;
    struct doomed doomed;
    double t_prepared;
    struct pool *pool;       /* NULL: built for one run */
    struct template *template;
    struct engine_run *run;  /* NULL: not given to one yet */
    unsigned zygote_index;         /* index; with is_exec not used */
    bool is_exec, is_idle;
    bool is_reaping, is_reaped; /* LAUNCHER_DESTROY was sent before its time; and is done */
    bool has_usage;             /* what its cgroup counted was read before that */
    struct cgroup_usage usage;
    struct zygote *zygote;       /* SLOT_FORKING: who forks */
    bool is_adopted, has_hello; /* FORKED came and ADOPT was sent; the worker's word came */
    pid_t holder_pid;
    struct sandbox sb;
    char *seccomp;           /* owned until it is sent */
    size_t seccomp_len;
    int landlock_fd;         /* owned until it is sent */
    struct supervisor *supervisor; /* owned; from SLOT_FORKING on, or from the start with is_exec */
    int shut[4];             /* owned; what the program has closed: closed here when there is time */
    size_t n_shut;
    bool lost_job;           /* the worker died before it had read all of its job: nothing of it has run */
    int theirs[4];           /* stdin, stdout, stderr, job: the worker's ends, owned until they are sent */
    size_t job_sent;
    int data_dirfd;          /* owned; fresh, or the run's own */
    char name[32], data_name[32]; /* data_name "" without a fresh directory */
    struct watch control, out, err_out, in, source, job, death;
};

/* NULL on ENOMEM and the like. */
struct slot *hutch_slot_create(struct hutch_engine *engine, struct pool *pool, struct template *template, unsigned zygote_index,
                             struct engine_run *run, struct hutch_err *err);
void hutch_slot_set_state(struct slot *slot, enum slot_state state);
void hutch_slot_give(struct slot *slot, struct engine_run *run); /* SLOT_PREPARED */
/* It is of no use any more, or in the way: everything in it dies. */
void hutch_slot_discard(struct slot *slot);
/* Somebody else broke it. @why NULL: nobody knows. Its run starts again elsewhere, or fails. */
void hutch_slot_fail(struct slot *slot, const struct hutch_err *why);
void hutch_slot_on_launcher(struct slot *slot);       /* a launcher is there: where SLOT_NEW, ask it */
void hutch_slot_on_lost_launcher(struct slot *slot);  /* with it went what it was asked for */
void hutch_slot_on_built(struct slot *slot, const struct launcher_reply *reply, const char *text, int *fds, size_t n_fds);
bool hutch_slot_reap(struct slot *slot);              /* SLOT_DYING: hutch_run_on_death() follows when this returns true */
void hutch_slot_on_destroyed(struct slot *slot, const struct rusage *usage); /* NULL: not known */
void hutch_slot_on_zygote(struct slot *slot);         /* one is ready: where SLOT_READY, fork */
void hutch_slot_on_forked(struct slot *slot, pid_t pid);
void hutch_slot_on_opened(struct slot *slot, int fd);
/* Removes the directory @name of the data root, whenever that is. */
void hutch_slot_remove_directory(struct hutch_engine *engine, const char *name);
struct slot *hutch_slot_find(struct hutch_engine *engine, uint32_t id);
void hutch_slot_free(struct slot *slot);              /* at the engine's end, or SLOT_DEAD */

/* --- pools: engine/pool.c --- */

struct pool {
    struct hutch_engine *engine;
    unsigned index;            /* of its zygote */
    struct slot_list idle;
    struct run_list waiting;
    unsigned n_idle, n_building, n_waiting;
    unsigned target;           /* how many are kept: from the zygote's min to its max */
    struct deadline clock;
    double last_missed;        /* a run found none */
    double retry_at;
    unsigned failures, deaths; /* in a row: with a reason; without one */
    double counted_death;      /* when; what dies together counts once */
};
void hutch_pool_init(struct pool *pool, struct hutch_engine *engine, unsigned index);
void hutch_pool_refill(struct pool *pool);
void hutch_pool_on_prepared(struct pool *pool, struct slot *slot);
/* A slot on its way did not get there. */
void hutch_pool_on_failed(struct pool *pool, const struct hutch_err *why);
/* For a run that takes one: now, or when it comes. */
void hutch_pool_ask(struct pool *pool, struct engine_run *run);

/* --- runs: engine/run.c --- */

enum run_stage { RUN_QUEUED, RUN_WAITING, RUN_RUNNING, RUN_ENDING };
struct engine_run {
    TAILQ_ENTRY(engine_run) link;    /* of the engine's queue, or of its active ones */
    TAILQ_ENTRY(engine_run) waiting; /* of a pool */
    struct hutch_engine *engine;
    uint64_t id;
    enum run_stage stage;
    bool is_in_pool;           /* among pool->waiting */
    bool is_exec;              /* init executes it */
    struct session *session;   /* not owned; what it is the sandbox of, else NULL. Then it is in no list of the engine's */
    struct cell_run *cell_run;         /* owned; it is one cell. Else NULL */
    struct interpreter *interpreter;       /* owned; from its begin on, where it executes cells */
    unsigned zygote_index;
    struct template *template; /* NULL: the pool's */
    struct slot *slot;           /* NULL: none yet */
    char *job;                 /* owned; NULL with is_exec */
    size_t job_len;
    char *input;               /* owned */
    size_t input_len;
    int source_fd;             /* owned; instead of input, a descriptor that is read as the program reads; -1: none */
    bool has_read_source;      /* what was taken from it cannot be had again */
    char *data_dir;            /* owned; real path; NULL: a fresh one */
    bool keep_data, is_cancelled, was_prepared;
    bool lowers_cpu, lowers_file_size; /* by resource limits that come with the job */
    uint64_t limits[LIMIT_COUNT];
    uint64_t grace_ms;
    double t_submitted, t_active;
    unsigned restarts, strikes; /* begun again; of these, not because of a sandbox that was in the pool before it came */
    struct file_list before;
    struct run_result result;
    void (*on_output)(void *user, uint64_t id, int stream, const char *data, size_t len);
    void (*on_result)(void *user, uint64_t id, const struct hutch_result *result);
    void *user;
};
void hutch_run_free(struct engine_run *run);
/* Has a sandbox found or made for it. */
void hutch_run_activate(struct engine_run *run);
/* Nobody wants it any more, and its code has not begun. */
void hutch_run_withdraw(struct engine_run *run);
void hutch_run_start_queued(struct hutch_engine *engine);
void hutch_run_enqueue(struct engine_run *run);
void hutch_run_cancel(struct engine_run *run);
int hutch_run_signal(struct hutch_engine *engine, uint64_t id, int sig); /* hutch_engine_signal() */
/* Delivers what could not be delivered where it came to be. */
void hutch_run_deliver_ending(struct hutch_engine *engine);
/* Its sandbox is prepared and has the data directory: it begins. */
void hutch_run_begin(struct slot *slot);
/* Something that the supervisor watches is ready. */
void hutch_run_turn(struct slot *slot, int which, short revents);
/* The sandbox is gone. Its code had not begun: it starts again, unless it has done so too often. */
void hutch_run_restart(struct engine_run *run, const struct hutch_err *why);
/* It cannot be run: a result that says why. */
void hutch_run_refuse(struct engine_run *run, const struct hutch_err *why);
/* The processes of a sandbox whose files are to be looked at are gone. */
void hutch_run_on_death(struct slot *slot);
void hutch_run_await_death(struct slot *slot);

/* --- interpreters: session/interpreter.c --- */

/* The part of an interpreter that executes cells, on its descriptor 3. Frames are those of cell/feed.h. */
struct interpreter {
    struct hutch_engine *engine;
    struct slot *slot;            /* not owned: whose pipes it writes to */
    int fd;                     /* owned; its socket */
    struct watch watch;
    struct cell_frames frames;
    struct cell_feed *feed;     /* owned */
    char *out;                  /* owned; what is still to be sent: out_len bytes from out_start on */
    size_t out_start, out_len, out_room;
    uint64_t heard_bytes;       /* of frames, since the cell began or ended */
    bool is_in_cell;
    bool is_ready;              /* it takes orders */
    bool has_left;              /* it closed its socket, which its end follows */
    bool is_refused;            /* what it said is no frame of the protocol: it is not listened to any more */
    bool is_over;               /* so is its process: orders make no sense any more */
    char why[256];              /* is_refused: the reason; before is_ready: why it is not going to be */
    char *language_info;        /* owned; JSON, NULL before is_ready */
    char last_words[256];       /* until is_ready: the end of what it wrote on stderr */
    size_t n_last_words;
    cell_event_fn *on_event;    /* the owner's, with itself as @user */
    void (*on_turn)(void *user); /* after what came was dealt with: the moment to act on events */
    void *user;
    struct deadline clock;      /* of text that waits for its place, and of frames that wait for their turn */
    struct doomed doomed;
};

/* For an interpreter in @slot at the other end of @fd, which is taken over in any case. Orders are kept until it reads. */
struct interpreter *hutch_interpreter_create(struct slot *slot, int fd, const char *token, cell_event_fn *on_event, void (*on_turn)(void *user), void *user,
                                 struct hutch_err *err);
/* Its memory goes when no handler can be at work with it. NULL is fine. */
void hutch_interpreter_free(struct interpreter *interpreter);
/* For the worker that a supervisor has the socket of: its only listener from here on. */
struct interpreter *hutch_interpreter_create_for_worker(struct slot *slot, const char *token, cell_event_fn *on_event, void (*on_turn)(void *user),
                                            void *user, struct hutch_err *err);
/* Bytes as they are: the job. -1: ENOMEM. */
int hutch_interpreter_send_raw(struct interpreter *interpreter, const char *data, size_t len);
/* A frame with @order as its text; @fd goes with it, -1 for none. Errors: ENOMEM, and with @fd those of sending, as that cannot wait. */
int hutch_interpreter_send(struct interpreter *interpreter, const struct cJSON *order, int fd, struct hutch_err *err);
/* What came through the worker's stdout (1) or stderr (2). */
void hutch_interpreter_hear(struct interpreter *interpreter, int stream, const char *data, size_t len);
/* A cell begins, or has ended: how much it may say follows from that. */
void hutch_interpreter_set_in_cell(struct interpreter *interpreter, bool is_in_cell);
/* It can be told something. */
bool hutch_interpreter_is_there(const struct interpreter *interpreter);
/* Its sandbox is over and the pipes have been read: takes what it said last. */
void hutch_interpreter_finish(struct interpreter *interpreter);

/* --- cells: session/execution.c --- */

/* What happens to one cell after the other, as far as the interpreter tells: times, and not verdicts. */
struct execution {
    int64_t id;
    bool is_silent, has_begun, is_done, is_error;
    double t_begun;                  /* hutch_clock_ms() */
    double t_busy, t_input, t_reply; /* seconds since 1970; 0: not yet */
    int64_t count, line;
    char *cause;                     /* owned; NULL: not known */
    char *outputs;                   /* owned; from hutch_execution_fill() on */
    struct cell_error error;         /* likewise */
};
/* Orders a cell; @cell's own texts are not looked at. */
int hutch_execution_begin(struct execution *c, struct interpreter *interpreter, const struct hutch_cell *cell, const char *code, const char *context,
                       uint64_t output_bytes, struct hutch_err *err);
/* More came in frames than the outputs and what replaced some of them can be. */
bool hutch_execution_is_flooded(const struct interpreter *interpreter, uint64_t output_bytes);
void hutch_execution_hear(struct execution *c, const struct cell_event *event);
/* Outputs, error, count and times of @result, which points into @c and @details then. */
void hutch_execution_fill(struct execution *c, const struct interpreter *interpreter, struct hutch_cell_result *result, struct hutch_cell_details *details);
void hutch_execution_done(struct execution *c); /* frees; fine twice */

/* --- cell_run runs: session/cell_run.c --- */

/* Makes @run the execution of one cell, @code. */
int hutch_cell_run_create(struct engine_run *run, const char *code, size_t len, struct hutch_err *err);
void hutch_cell_run_free(struct cell_run *cell_run); /* NULL is fine */
const char *hutch_cell_run_token(const struct cell_run *cell_run);
/* Its sandbox is there. -1: hutch_slot_fail() is to follow. */
int hutch_cell_run_begin(struct cell_run *cell_run, struct slot *slot, struct hutch_err *err);
/* The run is judged, or was refused: adds to its result what the cell showed. */
void hutch_cell_run_finish(struct cell_run *cell_run);
const struct hutch_cell_result *hutch_cell_run_result(const struct cell_run *cell_run); /* after that, as long as the run */

/* --- sessions: session/session.c --- */

#define SESSION_TOKEN_SIZE (CELL_TOKEN_LEN + 1)

enum order_kind { ORDER_CELL, ORDER_CHECKPOINT, ORDER_ROLLBACK, ORDER_FORK, ORDER_SWITCH, ORDER_DROP };
/* What a session is to do, one after the other. */
struct order {
    TAILQ_ENTRY(order) link;
    enum order_kind kind;
    double t_queued;
    struct hutch_cell cell;   /* ORDER_CELL: as given, with its own copies of the texts */
    char *code, *context;     /* owned */
    bool was_lost;            /* it had not begun when its interpreter died, and waits again */
    uint64_t target;          /* others: a checkpoint or branch */
    hutch_on_reply on_reply;
    void *user;
    enum hutch_verdict verdict; /* among the doomed: what it is told */
    const char *why;            /* not owned */
};
TAILQ_HEAD(order_list, order);

enum session_state {
    SESSION_LOST,    /* without an interpreter until there is an order */
    SESSION_SEEKING, /* wants one, when it is its turn */
    SESSION_SEATING, /* its run gets a sandbox, and the interpreter gets ready */
    SESSION_IDLE,
    SESSION_BUSY,    /* with the first of its orders */
};
/* What a session waits for that makes a checkpoint or changes over to another. */
enum step {
    STEP_NONE,
    STEP_PARK,   /* its interpreter says "parked", and the copy that it is here */
    STEP_SPAWN,  /* a copy of the chosen one says that it is here */
    STEP_FILES,  /* the disk worker's answer */
    STEP_FOLLOW, /* init's */
};
/* A copy of the interpreter that does nothing but make copies of itself, and the files that belong to it. */
struct checkpoint {
    TAILQ_ENTRY(checkpoint) link;
    struct session *session;
    uint64_t id;
    bool is_branch, is_dead;
    pid_t pid;           /* as it says, in the sandbox; 0: not yet */
    int fd;              /* owned; its socket */
    struct watch watch;
    struct cell_frames frames;
    char name[32];       /* of the state of the files, below the data root */
    uint64_t bytes;      /* of them */
    bool is_in_reach;    /* the files are those that lay in /mnt/data: somebody inside may hold some of them open */
    uint64_t disk_bytes; /* then: what they took when they were moved, which stays so */
    double looked_at;    /* when that was last looked at */
    struct doomed doomed;
};
TAILQ_HEAD(checkpoint_list, checkpoint);

enum stop_reason { STOP_NOT, STOP_TIMEOUT, STOP_CPU_TIME, STOP_OUTPUT };

struct session {
    TAILQ_ENTRY(session) link; /* of the engine */
    struct hutch_engine *engine;
    struct deadline clock;
    uint64_t id;
    enum session_state state;
    char token[SESSION_TOKEN_SIZE];
    struct engine_run *run;    /* owned; its sandbox, one after the other */
    struct order_list orders, doomed; /* doomed: those from before a restart */
    unsigned n_orders;
    uint64_t output_bytes, wall_ms, cpu_ms; /* the most of a cell; 0: no limit */
    double idle_ms, lifetime_ms;
    double t_opened, t_used;
    bool keep_data, is_closing, is_restarting, is_resting;
    bool has_variables;        /* a cell has run since its interpreter began */
    bool is_deaf;              /* its interpreter closed its socket */
    unsigned false_starts;     /* interpreters in a row that were ended before they were ready */
    bool is_calling;           /* a callback runs: nothing begins */
    void (*on_end)(void *user, uint64_t session, const char *why, const char *directory);
    void *user;
    char why[512];             /* is_closing: the last word. SESSION_LOST: how its interpreter ended, "" when there was none */
    bool is_fresh;             /* the next cell finds no variables, though there were some */

    int data_dirfd;            /* owned; -1 before the first sandbox */
    char data_name[32];        /* below the data root; "" for a directory of the caller's */
    struct file_list seen;     /* the files there at the end of the last cell */
    bool has_foreign_files;    /* somebody else has changed them since */

    /* The cell that runs. */
    struct execution execution;
    double stop_at, kill_at, look_at; /* clocks; 0: not set */
    enum stop_reason stop;
    bool was_interrupted, wants_interrupt, is_asking;
    uint64_t told_bytes;       /* to on_output, also of what was cleared away since */
    uint64_t cpu_user_us, cpu_system_us; /* at its begin; UINT64_MAX: not known */
    uint64_t sampled_cpu_ms;

    struct checkpoint_list checkpoints; /* checkpoints, and the branches that it is not in */
    unsigned n_checkpoints, max_checkpoints;
    uint64_t held_bytes, checkpoint_bytes; /* the most of the former; 0: no limit */
    uint64_t next_copy, branch;
    uint64_t states_mark;      /* when they were last looked at: what says that something has run since */
    double states_at;          /* when they are looked at next */
    /* The order about them that is at work. */
    enum step step;
    double t_step;
    bool is_advancing, has_parked, has_failed, has_files_reply;
    struct checkpoint *made;       /* owned; on its way to be in the list */
    struct checkpoint *chosen;     /* of the list */
    struct interpreter *next;        /* owned; of the copy that is going to be the worker */
    pid_t next_pid;
    char *lost;                /* owned; JSON of what a copy has not, or why there is none; NULL: not known */
    struct disk_request files_order;
    struct disk_reply files_reply;
    uint64_t kept_bytes;
};

/* NUL-terminated random hex digits. */
int hutch_session_make_token(char token[SESSION_TOKEN_SIZE], struct hutch_err *err);
/* Its sandbox is there and its code may begin. -1: hutch_slot_fail() is to follow. */
int hutch_session_begin(struct session *session, struct slot *slot, struct hutch_err *err);
/* No sandbox can be had. */
void hutch_session_on_refused(struct session *session, const struct hutch_err *why);
/* All of its sandbox is dead, and its run's result says how. */
void hutch_session_on_death(struct session *session);
/* Answers the order about checkpoints that is at work. */
void hutch_session_answer(struct session *session, const struct hutch_reply *reply);
/* Another interpreter in the same sandbox is its own now. */
void hutch_session_take_interpreter(struct session *session, struct interpreter *interpreter);
void hutch_session_set_state(struct session *session, enum session_state state);
/* The order that is under way; NULL when there is none, also while a callback tells of its end. */
struct order *hutch_session_at_work(const struct session *session);
/* Takes @order over: it waits for its turn. */
void hutch_session_enqueue(struct session *session, struct order *order);
/* The orders that wait from @order on are not going to be done; they are answered by the next dispatch. */
void hutch_session_doom(struct session *session, struct order *order, enum hutch_verdict verdict, const char *why);
void hutch_order_free(struct order *order);
/* To the running cell; kept until it has begun. */
void hutch_session_send_interrupt(struct session *session);
/* Unless it was killed for something else before. */
void hutch_session_kill_interpreter(struct session *session);
/* Nothing more is taken; on_end follows. */
void hutch_session_begin_end(struct session *session, const char *why);
/* Does what could not be done where it came to be: gives out sandboxes, ends what is to end. */
void hutch_sessions_work(struct hutch_engine *engine);
/* The engine is broken: no cell can be executed. */
void hutch_sessions_refuse_all(struct hutch_engine *engine);
void hutch_sessions_free(struct hutch_engine *engine);
void hutch_session_on_due(void *session, double now); /* its clock's */

/* --- checkpoints and branches: session/checkpoint.c --- */

void hutch_checkpoint_begin(struct session *s, const struct order *order);
void hutch_checkpoint_hear(struct session *s, const struct cell_event *event); /* CELL_OTHER */
void hutch_checkpoint_turn(struct session *s);    /* something came that it may have waited for */
void hutch_checkpoint_give_up(struct session *s); /* a process inside took too long */
double hutch_checkpoint_clocks(struct session *s, double now); /* looks whether somebody writes to the kept files */
void hutch_checkpoint_clear(struct session *s);   /* the order is answered */
/* NULL: the disk worker is gone. */
void hutch_checkpoint_on_files(struct hutch_engine *engine, const struct disk_reply *reply);
/* Its interpreter is gone, and with it all of them; their files, unless the engine's end removes them anyhow. */
void hutch_checkpoint_drop_all(struct session *s, bool removes_files);

/* --- requests: lib/request.c --- */

/* What a session's sandboxes are made by. Its run executes cells with @token. */
int hutch_request_accept_session(struct hutch_engine *engine, const struct hutch_session_options *options, const char *token,
                                 struct engine_run **ret, struct hutch_err *err);

int hutch_request_accept(struct hutch_engine *engine, const struct hutch_request *request, struct engine_run **ret,
                         struct hutch_err *err);

/* What a profile asks for in the engine's image, without program and /mnt/data. */
int hutch_request_make_spec(const struct hutch_engine *engine, const struct profile *profile, struct sandbox_spec *ret,
                            struct hutch_err *err);
/* … with what a worker that comes from a zygote needs besides. */
int hutch_request_make_worker(const struct hutch_engine *engine, struct sandbox_spec *spec, struct hutch_err *err);

/* --- the engine: engine.c --- */

#define SPARE_SUPERVISORS 32

struct hutch_engine {
    struct loop loop;
    bool has_worked;   /* a sandbox was prepared once: what fails from here on is tried again */
    bool is_broken;
    struct hutch_err why;

    struct profile profile; /* owned */
    char *launcher;    /* owned */
    int image_lockfd;  /* owned */
    struct run_state state;
    char *cgroup;      /* owned; where the sandboxes' groups go, "" for nowhere */
    char cgroup_why_not[160];
    char *data_root;   /* owned; path of the directory that fresh data directories are made in */
    int data_root_fd;  /* owned */
    struct sandbox_spec spec; /* what every run of the pool has, without program and /mnt/data */
    struct template *worker_template, *zygote_template; /* of sandboxes in the pool, and of interpreters */

    unsigned max_running, max_queued, max_building, recycle_forks;
    uint64_t recycle_ms, trim_ms;
    double setup_ms, import_ms; /* ENGINE_..._MS, but for tests */

    struct helper helper;
    struct template_list templates;
    struct zygote_conf confs[ENGINE_MAX_ZYGOTES];
    size_t n_confs;
    char *modules[ENGINE_MAX_MODULES]; /* owned; their names */
    size_t n_modules;
    struct generation *generation, *next_generation, *retiring;
    struct deadline zygotes_clock;
    struct pool pools[ENGINE_MAX_ZYGOTES]; /* as confs */
    struct slot_list slots;
    struct run_list queue, active, ending; /* ending: have a result that is not delivered yet */
    unsigned n_queued, n_active, n_prepared, n_building;
    uint64_t next_run;         /* of sessions, too */
    struct session_list sessions;
    unsigned n_sessions, max_sessions;
    unsigned n_seeking, n_seating; /* sessions that want a sandbox; that get one */
    unsigned n_resting; /* that have had no cell for a while */
    int rest_ms;        /* from one look at such a one to the next */
    bool has_session_work;
    uint32_t next_id;

    uint64_t submitted, finished, from_pool, on_demand, restarted, lost_zygotes, lost_launchers, lost_sandboxes;
    struct hutch_zygote_stats zygote_stats[ENGINE_MAX_ZYGOTES];

    struct supervisor *spare_supervisors[SPARE_SUPERVISORS];
    size_t n_spare_supervisors;
};

/* Nothing can ever run. */
void hutch_engine_break(struct hutch_engine *engine, const struct hutch_err *why);
/* For the caller: -1. @code 0: that of @err. */
int hutch_engine_tell(struct hutch_error *to, const struct hutch_err *err, int code);
/* A struct of the caller's, who may know fewer fields, or more. */
void hutch_engine_copy_sized(void *to, size_t to_size, const void *from);
uint32_t hutch_engine_make_id(struct hutch_engine *engine);
struct supervisor *hutch_engine_take_supervisor(struct hutch_engine *engine, struct hutch_err *err);
void hutch_engine_give_supervisor(struct hutch_engine *engine, struct supervisor *s);

#endif
