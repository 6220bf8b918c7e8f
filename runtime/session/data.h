/* data.h - the files of a session: one directory for all of its sandboxes, and what was there after its last cell. */
#ifndef HUTCH_SESSION_DATA_H
#define HUTCH_SESSION_DATA_H

#include "runtime/data/changes.h"
#include "runtime/engine/run.h"
#include "sandbox/err.h"

#include <stdbool.h>

struct session_data {
    int dirfd;             /* owned; -1 before the first sandbox */
    char name[32];         /* below the data root; "" for a directory of the caller's */
    struct file_list seen; /* the files there at the end of the last cell */
    bool has_foreign;      /* the caller has changed them since */
};
#define SESSION_DATA_INIT { .dirfd = -1, .seen = FILE_LIST_INIT }

/* The first sandbox's own directory is the session's from here on: @run gets it again in every other one. */
int hutch_session_data_take(struct session_data *data, struct engine_run *run, struct hutch_err *err);
/* Another program has removed them all, with their directory. */
bool hutch_session_data_is_lost(const struct session_data *data, struct core *core);
/* What has changed since the last call goes to @ret, as hutch_collect_step() says. On failure it is empty, and
 * truncated. */
void hutch_session_data_step(struct session_data *data, struct file_changes *ret);
/* What the caller has done to the files since the last cell is not what the next one does. */
void hutch_session_data_forget_changes(struct session_data *data);
/* The session is over. With @keeps, or in the caller's own directory, every directory can be entered; a fresh one with
 * files in it moves to where the caller finds it: its path, for the caller to free, else NULL. @ret_why, of @size
 * bytes, is set when that was not to be had and the files are lost. */
char *hutch_session_data_end(struct session_data *data, struct core *core, bool keeps, char *ret_why, size_t size);
/* Frees; the files stay. Fine twice. */
void hutch_session_data_done(struct session_data *data);

#endif
