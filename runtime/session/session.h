/* session.h - an interpreter kept for many cells, in one sandbox after the other, with the same files. */
#ifndef HUTCH_SESSION_SESSION_H
#define HUTCH_SESSION_SESSION_H

#include "runtime/cell/result_json.h"
#include "runtime/engine/run.h"
#include "runtime/hutch.h"
#include "runtime/session/calls.h"
#include "runtime/session/checkpoint.h"
#include "runtime/session/contexts.h"
#include "runtime/session/data.h"
#include "runtime/session/data_wait.h"
#include "runtime/session/dir_watch.h"
#include "runtime/session/execution.h"
#include "runtime/session/interpreter.h"
#include "runtime/session/path.h"
#include "runtime/session/pause.h"
#include "runtime/session/question.h"
#include "runtime/session/process.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct cJSON;
struct session;

TAILQ_HEAD(session_list, session);

/* All of one engine. */
struct sessions {
    struct core *core;
    struct helper *helper;
    struct runs *runs;
    struct session_list list;
    unsigned n, max;       /* the most is set by the owner, as max_seating */
    unsigned n_seeking;    /* want a sandbox */
    unsigned n_seating, max_seating; /* get one */
    unsigned n_idle;    /* have had no cell for a while */
    int idle_check_ms;           /* from one check of such a one to the next */
    bool has_work;         /* for hutch_sessions_work() */
    struct dir_watches dir_watches;
};

enum order_kind {
    ORDER_CELL,
    ORDER_CHECKPOINT,
    ORDER_ROLLBACK,
    ORDER_FORK,
    ORDER_SWITCH,
    ORDER_DROP,
    ORDER_ASK, /* question.h */
};
/* What a session is to do, one after the other. */
struct order {
    TAILQ_ENTRY(order) link;
    enum order_kind kind;
    uint64_t id;              /* of a cell; 0: it is none */
    double t_queued;
    struct hutch_cell cell;   /* ORDER_CELL: as given, with its own copies of the texts */
    char *code, *context;     /* owned; ORDER_ASK: context: the one that is to be reset or dropped, else NULL */
    char *cwd;                /* owned; cell.cwd */
    struct cJSON *calls;      /* owned; as hutch_calls_read() makes it; NULL: none */
    char **env;               /* owned; NULL-terminated; cell.env */
    bool was_lost;            /* it had not begun when its interpreter died, and waits again */
    uint64_t target;          /* others: a checkpoint or branch */
    struct cJSON *question;   /* ORDER_ASK: owned; what the interpreter is told, but for its id … */
    uint64_t timeout_ms;      /* … and how long it may take */
    /* … and what an answer means here, beside that it is passed on. NULL: nothing */
    void (*on_answered)(struct session *session, const struct order *order);
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
    SESSION_PARKED,  /* its interpreter has died, and its checkpoints have not: the next order goes back to one, or has
                      * another interpreter made, which they end for */
};

enum stop_reason { STOP_NOT, STOP_TIMEOUT, STOP_CPU_TIME, STOP_OUTPUT, STOP_OUTPUTS };

/* The cell that runs. */
struct session_cell {
    struct execution execution;
    double stop_at, check_at;  /* deadlines; 0: not set */
    enum stop_reason stop;
    bool was_interrupted, wants_interrupt, is_asking;
    bool interrupts_next;      /* one that waits for a list of files before it begins */
    struct session_calls calls;
    uint64_t told_bytes;       /* to on_output, also of what was cleared away since */
    uint64_t cpu_user_us, cpu_system_us; /* at its begin; UINT64_MAX: not known */
    uint64_t sampled_cpu_ms;
    bool is_over;              /* the result has all but its files, which are looked for */
    bool parks;                /* … and its interpreter has died, but not its checkpoints */
    struct hutch_cell_result result;
    struct hutch_cell_details details;
    char why[512];             /* the message of the result */
};

struct session {
    TAILQ_ENTRY(session) link;
    struct sessions *sessions;
    struct deadline clock;
    uint64_t id;
    enum session_state state;
    char token[INTERPRETER_TOKEN_SIZE];
    struct engine_run *run;    /* owned; its sandbox, one after the other */
    struct interpreter *interpreter; /* owned; in that sandbox; NULL: none */
    struct order_list orders, doomed; /* doomed: those from before a restart */
    struct order_list cancelled; /* those that are not going to be done, whatever is at work */
    unsigned n_orders;
    uint64_t last_cell;        /* the number of the last one that was given */
    uint64_t output_bytes, wall_ms, cpu_ms; /* the most of a cell; 0: no limit */
    double idle_ms;            /* LOOP_NEVER: as long as it may */
    double t_opened, t_used, ends_at; /* ends_at: its lifetime is over, LOOP_NEVER: never */
    bool keep_data, is_closing, is_restarting, is_idle;
    bool has_variables;        /* a cell has run since its interpreter began */
    bool is_deaf;              /* its interpreter closed its socket */
    unsigned false_starts;     /* interpreters in a row that were ended before they were ready */
    bool is_calling;           /* a callback runs: nothing begins */
    void (*on_end)(void *user, uint64_t session, const char *why, const char *directory);
    void *user;
    char why[512]; /* is_closing: the last word. SESSION_LOST: how its interpreter ended, "" when there was none */
    bool is_fresh;             /* the next cell finds no variables, though there were some */

    double kill_at;            /* the interpreter, which does not do what it should; 0: not set */
    bool was_shot;             /* the interpreter was killed alone: if that does not help, all of the sandbox is */
    /* when the next cell is tried again: the times of files can tell it from the last, or process 1 has had its time to
     * signal; 0: not set */
    double settle_at;
    double signal_until;       /* the next cell waits for process 1, which is to signal; 0: it does not */
    struct session_data data;
    struct look look;          /* at these, between sandboxes or while one lives */
    struct look landing;       /* the copy of files in memory to the disk */
    bool has_opened_up;        /* is_closing: what outlives the session can be entered by the caller */
    struct session_cell cell;
    struct checkpoints checkpoints;
    struct session_question question;
    struct contexts contexts;  /* of its interpreter */
    struct session_pause pause;
    struct processes processes;
    struct paths paths;
    struct data_waits data_waits;
    bool has_no_interpreter;   /* its worker only makes processes */
};

void hutch_sessions_init(struct sessions *sessions, struct helper *helper, struct runs *runs);
void hutch_sessions_done(struct sessions *sessions);
/* Does what could not be done where it came to be: gives out sandboxes, ends what is to end. */
void hutch_sessions_work(struct sessions *sessions);
/* A cell or another order has not been answered. */
bool hutch_sessions_have_orders(const struct sessions *sessions);
/* The engine is broken: no cell can be executed. */
void hutch_sessions_refuse_all(struct sessions *sessions);
/* NULL also for one that is closing. */
struct session *hutch_session_find(struct sessions *sessions, uint64_t id);
/* As the disk worker answers; NULL: it is gone. */
void hutch_sessions_on_files(struct sessions *sessions, const struct disk_reply *reply);
/* The opener is gone, and with it every sandbox: files in memory go to the disk before there is another. */
void hutch_sessions_on_lost_opener(struct sessions *sessions);
void hutch_sessions_on_launcher(struct sessions *sessions);

/* Without a run yet. NULL on ENOMEM. */
struct session *hutch_session_create(struct sessions *sessions, struct hutch_err *err);
/* Takes @run over: what its sandboxes are made by, with the limits of its cells. It seeks one from here on. */
void hutch_session_start(struct session *session, struct engine_run *run);
/* Before it was started. */
void hutch_session_free(struct session *session);
/* The order that is under way; NULL when there is none, also while a callback tells of its end. */
struct order *hutch_session_at_work(const struct session *session);
/* Takes @order over: it waits for its turn. */
void hutch_session_enqueue(struct session *session, struct order *order);
/* The orders that wait from @order on are not going to be done; they are answered by the next turn. */
void hutch_session_doom(struct session *session, struct order *order, enum hutch_verdict verdict, const char *why);
/* hutch_session_cancel_cell() of hutch.h. */
int hutch_session_cancel_order(struct session *session, uint64_t cell);
void hutch_order_free(struct order *order);
/* To the running cell; kept until it has begun. False when there is none. */
bool hutch_session_interrupt_cell(struct session *session);
/* Answers input() of the cell that runs, NULL: the end of the input. False when it does not ask. */
bool hutch_session_give_input(struct session *session, const char *text);
/* Unless it was killed for something else before. */
void hutch_session_kill_interpreter(struct session *session);
/* Counted from now; 0: stays as it is, UINT64_MAX: none. */
void hutch_session_set_lifetime_ms(struct session *session, uint64_t idle_ms, uint64_t lifetime_ms);
/* Another interpreter, with the same files. */
void hutch_session_begin_restart(struct session *session);
/* Nothing more is taken; on_end follows. */
void hutch_session_begin_end(struct session *session, const char *why);
/* Answers the order at work, which is no cell. */
void hutch_session_answer_order(struct session *session, const struct hutch_reply *reply);
/* Another interpreter in the same sandbox is its own now. @is_fresh: the next cell finds no variables in it, though
 * there were some. */
void hutch_session_take_interpreter(struct session *session, struct interpreter *interpreter, bool is_fresh);

#endif
