/* data.h - the files of a session: one directory for all of its sandboxes, and what was there after its last cell. */
#ifndef HUTCH_SESSION_DATA_H
#define HUTCH_SESSION_DATA_H

#include "runtime/data/changes.h"
#include "runtime/engine/run.h"
#include "sandbox/err.h"

#include <stdbool.h>

struct session_data {
    int dirfd;             /* owned; -1 before the first sandbox */
    struct slot_volume volume; /* base_fd -1: it is on disk */
    char name[32];         /* below the data root, also of a volume that is kept; "" for a caller's directory */
    struct file_list seen; /* the files there at the end of the last cell; where there are many: their newest_ns, and */
    int seen_fd;           /* owned; that list as a memory file, which only the disk worker reads; else -1 */
    bool has_foreign;      /* the caller has changed them since */
    bool has_looked;       /* the disk worker has found the next step, */
    struct file_changes looked; /* which is owned until it is taken */
};
#define SESSION_DATA_INIT                                                                                              \
    { .dirfd = -1, .volume = { .base_fd = -1, .dirfd = -1 }, .seen = FILE_LIST_INIT, .seen_fd = -1,                    \
      .looked = FILE_CHANGES_INIT }

/* The first sandbox's own directory is the session's from here on: @run gets it again in every other one. @on_greedy,
 * which stays the caller's with @owner: file_memory.h. */
int hutch_session_data_take(struct session_data *data, struct engine_run *run, void (*on_greedy)(void *owner),
                            void *owner, struct hutch_err *err);
/* Another program has removed them all, with their directory. */
bool hutch_session_data_is_lost(const struct session_data *data, struct core *core);
/* There is too much to go through it in the loop. */
bool hutch_session_data_is_large(const struct session_data *data);
/* Has the disk worker find the next step, or with DISK_LIST, where the session is over, open its directories up:
 * @look's on_done follows. False when that cannot be had. */
bool hutch_session_data_look(struct session_data *data, struct looks *looks, struct look *look, enum disk_order what,
                             const struct collect_bounds *bounds);
/* The next step, as on_done has it. What did not come is looked for by that step itself. */
void hutch_session_data_take_look(struct session_data *data, const struct disk_reply *reply, const int *fds,
                                  size_t n_fds);
/* What has changed since the last call goes to @ret, as hutch_collect_step() says. On failure it is empty, and
 * truncated. */
void hutch_session_data_step(struct session_data *data, struct file_changes *ret);
/* What the caller has done to the files since the last cell is not what the next one does. has_foreign stays as it is:
 * more may have come since a look was ordered. */
void hutch_session_data_forget_changes(struct session_data *data);
/* Whether files of the session outlive it: with @keeps, or in the caller's own directory. Then no directory is left
 * that the caller cannot enter; with DISK_LIST the disk worker sees to that, else the next function. */
bool hutch_session_data_outlives(const struct session_data *data, struct core *core, bool keeps);
void hutch_session_data_open_up(struct session_data *data);
bool hutch_session_data_is_empty(const struct session_data *data);
/* Its files are in memory: they are copied to the disk, where the session has them from here on. Then or on failure no
 * sandbox can have the volume. */
bool hutch_session_data_is_in_memory(const struct session_data *data);
int hutch_session_data_land(struct session_data *data, struct engine_run *run, struct hutch_err *err);
/* The same by the disk worker: @look's on_done follows, and then hutch_session_data_take_landed(). False when that
 * cannot be had. */
bool hutch_session_data_begin_landing(struct session_data *data, struct looks *looks, struct look *look);
int hutch_session_data_take_landed(struct session_data *data, struct engine_run *run, struct hutch_err *err);
/* The session is over, and a fresh directory with files in it moves to where the caller finds it: its path, for the
 * caller to free, else NULL. @ret_why, of @size bytes, is set when that was not to be had and the files are lost. */
char *hutch_session_data_end(struct session_data *data, struct core *core, bool keeps, char *ret_why, size_t size);
/* The session is over, and its files are not kept. */
void hutch_session_data_drop(struct session_data *data, struct helper *helper);
/* Frees; the files stay. Fine twice. */
void hutch_session_data_done(struct session_data *data);

#endif
