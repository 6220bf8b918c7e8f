/* core.h - what all parts of one engine share: the loop, the directories of its runs, its health, and how long it
 * waits. */
#ifndef HUTCH_ENGINE_CORE_H
#define HUTCH_ENGINE_CORE_H

#include "runtime/engine/loop.h"
#include "runtime/run/state.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CORE_SETUP_MS     30000 /* a sandbox for a run takes milliseconds; this is for a host that hangs */
#define CORE_ANSWER_MS    10000 /* as does the answer of a helper process; it hangs when it is silent for so long */
#define CORE_IMPORT_MS    180000 /* an interpreter reads its libraries, perhaps from a slow disk */
#define CORE_MAX_RESTARTS 3      /* of one run; and failures in a row of anything that no run waits for */

struct core {
    struct loop loop;
    struct run_state state;
    char *data_root;   /* owned; path of the directory that fresh data directories are made in */
    int data_root_fd;  /* owned */
    bool has_worked;   /* a sandbox was prepared once: what fails from here on is tried again */
    bool is_broken;    /* nothing can ever run */
    struct hutch_err why;
    uint32_t next_id;
    double setup_ms, answer_ms, import_ms; /* CORE_SETUP_MS and so on, or as the options say */
    uint64_t hung;     /* processes that did not answer, and were killed */
    char hung_who[64]; /* the last of them, as in "the launcher" */
    double hung_at;
};
#define CORE_INIT { .loop = LOOP_INIT, .state = RUN_STATE_INIT, .data_root_fd = -1, .setup_ms = CORE_SETUP_MS, \
                    .answer_ms = CORE_ANSWER_MS, .import_ms = CORE_IMPORT_MS }

/* Opens the loop, and below @home the directories. @core may not move from here on. Done by hutch_core_done(), on
 * failure too. */
int hutch_core_open(struct core *core, const char *home, struct hutch_err *err);
/* What cannot be removed from the disk until the moment @until is left to the next start. */
void hutch_core_done(struct core *core, double until);

/* A number that no other part of this engine has, never 0. */
uint32_t hutch_core_make_id(struct core *core);
/* Nothing can ever run. The first reason stays. */
void hutch_core_break(struct core *core, const struct hutch_err *why);

/* Whether the directory @dirfd, which the engine has made, was removed by another program, as those that clean up do.
 * Where all of them were, with the place for what is kept, the engine is broken. */
bool hutch_core_is_removed(struct core *core, int dirfd);

/* A process did not answer in time, and another takes its place. */
void hutch_core_note_hung(struct core *core, const char *who);
/* Adds to @err which process did not answer since @since, if there is one: it may be the reason of what @err tells. */
void hutch_core_blame_hung(const struct core *core, double since, struct hutch_err *err);

/* The last line of the @len bytes that a process has written to its stderr before it ended; it ends @text, which has
 * room for one byte more. NULL when there is none, or @len is negative as after a failed read. */
const char *hutch_core_last_line(char *text, ssize_t len);

#endif
