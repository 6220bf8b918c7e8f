/* process.h - the processes of a session beside its cells: each from the order to make it to its end, and what a
 * session has of them. sandbox/process_wire.h says who makes them.
 *
 * Nothing of what one writes is kept: a pipe that is not read makes its writer wait. How one ended is init's word. What
 * the spawner and a process say before their program is from inside, and is believed no further than it concerns them:
 * init watches no process but its own children. */
#ifndef HUTCH_SESSION_PROCESS_H
#define HUTCH_SESSION_PROCESS_H

#include "runtime/engine/link.h"
#include "runtime/engine/loop.h"
#include "runtime/hutch.h"
#include "sandbox/err.h"
#include "sandbox/init.h"
#include "sandbox/process_wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct session;
struct interpreter;

enum process_state {
    PROCESS_WAITING,  /* for a sandbox of its session's */
    PROCESS_ORDERED,  /* the spawner is to fork it */
    PROCESS_WATCHING, /* init is to watch it */
    PROCESS_STARTING, /* it may execute its program */
    PROCESS_RUNNING,
    PROCESS_ENDED,    /* there is no more of it than its pipes hold */
};

/* What it writes. */
struct process_stream {
    struct process *process;
    struct watch watch;
    int fd;      /* owned; -1: not open */
    int number;  /* for on_output */
    size_t left; /* PROCESS_ENDED: bytes that are still wanted */
};

struct process {
    TAILQ_ENTRY(process) link;
    struct session *session;
    uint64_t id;
    enum process_state state;
    pid_t pid;               /* as it says, in the sandbox; 0: not yet */
    struct hutch_process_options options; /* without the texts, which are in */
    struct process_order *order; /* owned; with what follows it, order_len bytes in all */
    size_t order_len;
    int control_fd;          /* owned; -1: closed */
    struct watch control;
    struct process_stream streams[2];
    int in_fd;               /* owned; a terminal's is another descriptor of its master */
    struct watch in;
    bool wants_room;         /* on_room is owed */
    bool has_room;           /* … and can be told */
    bool is_held, wants_read; /* wants_read: it is held no more */
    bool has_died;           /* its sandbox is over: it is not waited for */
    uint64_t told_bytes;
    double t_asked, t_started, t_ended;
    struct deadline clock;   /* of the next step, or of the wall time */
    double put_off_at;       /* that was due then, in a pause of the session; 0: it was not */
    const char *suspicion;   /* not owned; why it fails at its next deadline, if its sandbox lives on; NULL */
    bool was_asked_to_end;
    struct hutch_process_end end;
    char why[512];           /* end.why */
    struct doomed doomed;
};
TAILQ_HEAD(process_list, process);

/* Of one session. */
struct processes {
    struct process_list list;
    unsigned n, max;   /* n: with those whose end is not told */
    uint64_t last_id;  /* each session counts its own: an id says nothing of what others do */
    struct link spawner; /* fd -1: there is none; also for orders about paths, path.h */
    int theirs;        /* owned; the spawner's end, until the job takes it along */
    pid_t spawner_pid; /* as it says; 0: not yet */
    char *lost;        /* owned; sentences that a reply about checkpoints adds, as the items of a JSON array; NULL */
};

/* --- process.c --- */

/* One that waits. Errors: EINVAL, E2BIG, ENOMEM. */
struct process *hutch_process_create(struct session *session, const struct hutch_process_options *options,
                                     struct hutch_err *err);
/* PROCESS_WAITING, and there is a spawner. */
void hutch_process_order(struct process *process);
/* It was ordered in vain, and has not begun: it waits again, for another sandbox. */
void hutch_process_reset(struct process *process);
/* init's word. */
void hutch_process_take_watched(struct process *process, bool is_watched);
void hutch_process_take_end(struct process *process, int status);
/* It has not begun, or its sandbox is over. */
void hutch_process_fail(struct process *process, const char *why);
/* The same, unless its sandbox ends at this moment, which would be the better reason: @why is static. */
void hutch_process_fail_soon(struct process *process, const char *why);
/* It is going to be killed, and that is the reason, unless there is one. */
void hutch_process_blame(struct process *process, const char *why);
/* Calls back what is due. True when it is over: only on_end is left. */
bool hutch_process_work(struct process *process);
bool hutch_process_is_alive(const struct process *process);
/* A title of one line, cut, at @to. */
void hutch_process_describe(const struct process *process, char *to, size_t size);
void hutch_process_free(struct process *process);

/* As in hutch.h. */
int hutch_process_give(struct process *process, const char *data, size_t len, struct hutch_err *err);
int hutch_process_end_input(struct process *process, struct hutch_err *err);
int hutch_process_pass_signal(struct process *process, int signal, struct hutch_err *err);
int hutch_process_set_size(struct process *process, unsigned rows, unsigned cols, struct hutch_err *err);
void hutch_process_set_held(struct process *process, bool is_held);
/* Its session has stood still for so long. */
void hutch_process_shift_clock(struct process *process, double by_ms);

/* --- processes.c --- */

void hutch_processes_init(struct processes *processes);
/* The session is freed: nothing is told. */
void hutch_processes_done(struct processes *processes);
/* A sandbox is entered: @interpreter is sent @job, with the spawner's socket if there may be processes. Those that wait
 * are ordered. */
int hutch_processes_send_job(struct session *session, struct interpreter *interpreter, const char *job, size_t len,
                             struct hutch_err *err);
/* INIT_WATCHED, INIT_PROCESS_ENDED */
void hutch_processes_hear(struct session *session, const struct init_msg *msg);
/* Takes it over; it begins when it can. */
void hutch_processes_add(struct session *session, struct process *process);
struct process *hutch_processes_find(struct session *session, uint64_t id);
/* Nothing of the session's has begun in its sandbox, and it gets another. */
void hutch_processes_reset(struct session *session);
/* Its sandbox is over. */
void hutch_processes_lose(struct session *session, const char *why);
/* There will be no sandbox for those that wait. */
void hutch_processes_refuse(struct session *session, const char *why);
/* They are about to be killed by init: hutch_process_blame(). */
void hutch_processes_blame(struct session *session, const char *why);
/* Calls back, and frees those that are over. */
void hutch_processes_work(struct session *session);
/* Where orders can go: a worker that has its job, and is not on its way out. */
bool hutch_processes_have_sandbox(struct session *session);
bool hutch_processes_are_alive(const struct session *session);
bool hutch_processes_wait(const struct session *session);
/* The session goes on after a pause of so long. Those that were given to it meanwhile begin. */
void hutch_processes_resume(struct session *session, double by_ms);
/* What runs now is in no copy of the interpreter: for hutch_processes_add_lost(). */
void hutch_processes_note_lost(struct session *session);
/* @lost, a JSON array, with what was noted, for the caller to free; NULL: there is nothing to add, or no memory. */
char *hutch_processes_add_lost(struct session *session, const char *lost);
/* For the caller to free; NULL: ENOMEM. */
char *hutch_processes_list(const struct session *session);

#endif
