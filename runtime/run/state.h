/* state.h - what a live run keeps on disk, and the sweep of what a killed one left there.
 *
 * <home>/runs/N is the lock file of a run: its flock(2) is held as long as the run's hutch lives, and it names the
 * run's cgroup. <home>/runs/N.data is its fresh /mnt/data. A run takes the first lock file that no other run holds and
 * undoes what a dead holder left. Lock files stay, so that a start makes nothing on disk; there are never more than
 * runs were live at once. */
#ifndef HUTCH_RUN_STATE_H
#define HUTCH_RUN_STATE_H

#include "sandbox/cgroup.h"
#include "sandbox/err.h"

#define STATE_ID_LEN 16

struct run_state {
    char id[STATE_ID_LEN + 1]; /* hex digits, of this run alone */
    char cgroup_name[32]; /* "hutch-ID" */
    char *home;           /* owned; absolute */
    int  home_dirfd;      /* owned */
    int  runs_dirfd;      /* owned */
    int  lock_fd;         /* owned; the lock file, locked */
    char data_name[24];   /* "N.data" */
};
#define RUN_STATE_INIT { .home_dirfd = -1, .runs_dirfd = -1, .lock_fd = -1 }

/* Takes a lock file below @home, which is made if missing, and undoes whatever dead runs left with any of them. */
int hutch_state_open(const char *home, struct run_state *ret, struct hutch_err *err);

/* Notes where the run's cgroup is going to be made, under cgroup_name. */
int hutch_state_note_cgroup(struct run_state *state, const struct cgroup_base *base, struct hutch_err *err);

/* An empty directory that no other run has touched. The caller frees *ret_path. */
int hutch_state_make_data(struct run_state *state, char **ret_path, struct hutch_err *err);

/* Moves it to <home>/outputs/ID, for the user to keep; to <home>/runs/ID.kept when that cannot be. The caller frees
 * *ret_path. */
int hutch_state_keep_data(struct run_state *state, char **ret_path, struct hutch_err *err);

/* The same for @name in @dirfd, a directory somewhere below it, under the name @id. */
int hutch_state_keep_directory(struct run_state *state, int dirfd, const char *name, const char *id, char **ret_path,
                               struct hutch_err *err);

/* Gives the lock back; a data directory that was not kept goes. Call it when no process and no cgroup is left. */
int hutch_state_close(struct run_state *state, struct hutch_err *err);
/* The same, no longer than until the moment @until of hutch_clock_ms(): ETIMEDOUT, and the next start sweeps the
 * rest. */
int hutch_state_close_until(struct run_state *state, double until, struct hutch_err *err);

#endif
