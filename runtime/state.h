/* state.h - what a live run keeps on disk, and the sweep of what a killed one left there.
 *
 * <home>/runs/ID is a directory whose flock(2) is held as long as the run's hutch lives. It holds the fresh /mnt/data
 * and the name of the cgroup's parent, so that a later start can tell a dead run from a live one and undo it. */
#ifndef HUTCH_STATE_H
#define HUTCH_STATE_H

#include "cgroup.h"
#include "err.h"

struct run_state {
    char id[17];      /* 16 hex digits */
    char *home;       /* owned; absolute */
    char *path;       /* owned; <home>/runs/ID */
    int  runs_dirfd;  /* owned */
    int  dirfd;       /* owned, locked */
};
#define RUN_STATE_INIT { .runs_dirfd = -1, .dirfd = -1 }

/* Makes and locks a fresh one below @home, which is made if missing. */
int hutch_state_create(const char *home, struct run_state *ret, struct hutch_err *err);

/* Notes where the run's cgroup is going to be made, under the name that hutch_state_cgroup_name() gives. */
int hutch_state_note_cgroup(struct run_state *state, const struct cgroup_base *base, struct hutch_err *err);
void hutch_state_cgroup_name(const char *id, char ret[32]);

/* Makes the empty directory <path>/data. The caller frees *ret_path. */
int hutch_state_make_data(struct run_state *state, char **ret_path, struct hutch_err *err);

/* Moves <path>/data to <home>/outputs/ID, for the user to keep. The caller frees *ret_path. */
int hutch_state_keep_data(struct run_state *state, char **ret_path, struct hutch_err *err);

/* Removes the directory and all in it, and frees the state. */
int hutch_state_remove(struct run_state *state, struct hutch_err *err);

/* Undoes every run below @home whose hutch is dead. What cannot be undone is left for the next time: nothing here
 * keeps a new run from starting. Returns the number of runs removed. */
int hutch_state_sweep(const char *home);

#endif
