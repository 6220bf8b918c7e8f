/* checkpoint.h - the checkpoints and branches of a session: copies of its interpreter that only make copies of
 * themselves, with the files that belong to each; and the one order about them that is at work, from step to step. */
#ifndef HUTCH_SESSION_CHECKPOINT_H
#define HUTCH_SESSION_CHECKPOINT_H

#include "runtime/cell/feed.h"
#include "runtime/cell/frames.h"
#include "runtime/engine/look.h"
#include "runtime/engine/loop.h"
#include "runtime/launcher/wire.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct cJSON;
struct checkpoint;
struct interpreter;
struct order;
struct session;

/* What an order waits for. */
enum step {
    STEP_NONE,
    STEP_PARK,   /* its interpreter says "parked", and the copy that it is here */
    STEP_SPAWN,  /* a copy of the chosen one says that it is here */
    STEP_FILES,  /* the disk worker's answer */
    STEP_FOLLOW, /* init's */
    STEP_RENEW,  /* the copy, which is the session's interpreter by now, says what it has not */
};

TAILQ_HEAD(checkpoint_list, checkpoint);

struct checkpoints {
    struct checkpoint_list list; /* with the branches that the session is not in */
    unsigned n, max;
    uint64_t held_bytes, max_bytes; /* the files of all of them; 0: no limit */
    uint64_t next_id, branch;    /* branch: the one that the session is in */
    uint64_t states_mark;        /* when they were last checked: what says that something has run since */
    double states_at;            /* when they are checked next */
    struct look look;            /* such a check, at the state of the branch … */
    uint64_t looked_at;          /* … of this number */
    /* The order that is at work. */
    enum step step;
    double t_step;
    double stop_at;              /* it has taken too long; 0: it is bounded otherwise */
    bool is_advancing, has_parked, has_failed, has_files_reply, has_renewed;
    struct checkpoint *made;     /* owned; on its way to be in the list */
    struct checkpoint *chosen;   /* of the list */
    struct interpreter *next;    /* owned; of the copy that is going to be the worker */
    pid_t next_pid;
    char *lost;                  /* owned; JSON of what a copy has not, or why there is none; NULL: not known */
    bool is_loss_unknown;        /* it was told, and could not be kept */
    struct disk_request files_order;
    struct disk_reply files_reply;
};

void hutch_checkpoints_init(struct checkpoints *checkpoints);
/* Its interpreter is gone, and with it all of them; their files, unless the engine's end removes them anyhow. */
void hutch_checkpoints_drop_all(struct session *session, bool removes_files);

/* Whether there is one to go back to, and nothing half done, if the interpreter dies now. */
bool hutch_checkpoints_survive(const struct session *session);

/* How many there are, without the branch that the session is in. */
void hutch_checkpoints_count(const struct session *session, unsigned *ret_checkpoints, unsigned *ret_branches);
/* Adds "checkpoints" and "branches" to @object: [{"id", "bytes"}]. False on ENOMEM. */
bool hutch_checkpoints_add_lists(const struct session *session, struct cJSON *object);

/* Orders of every kind but cells. The answer comes by hutch_session_answer_order(). */
void hutch_checkpoint_begin(struct session *session, const struct order *order);
void hutch_checkpoint_hear(struct session *session, const struct cell_event *event); /* CELL_OTHER */
/* Something came that it may have waited for. */
void hutch_checkpoint_turn(struct session *session);
/* The disk worker's answer; NULL: it is gone. */
void hutch_checkpoint_on_files(struct session *session, const struct disk_reply *reply);
/* The order is answered. */
void hutch_checkpoint_clear(struct session *session);
/* Does what is due: an order that took too long; kept files that something writes to. When that is due next. */
double hutch_checkpoint_check(struct session *session, double now);

#endif
