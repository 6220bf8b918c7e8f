/* run_files.h - the files of one run: what lay in its directory before its code began, and what has become of it.
 *
 * Where there are many, the disk worker goes through them, as the loop does not wait: look.h. */
#ifndef HUTCH_ENGINE_RUN_FILES_H
#define HUTCH_ENGINE_RUN_FILES_H

#include "runtime/engine/run.h"

void hutch_run_files_init(struct engine_run *run);
void hutch_run_files_done(struct engine_run *run);

/* Lists what lies in the directory of its slot, in the loop. */
int hutch_run_files_remember(struct engine_run *run, struct hutch_err *err);
/* The same, by the disk worker where there are many. @on_known is called once, perhaps before this returns. @why:
 * NULL, or why there is no list. */
void hutch_run_files_note(struct engine_run *run,
                          void (*on_known)(struct engine_run *run, const struct hutch_err *why));

/* Nothing lies in the fresh directory of its slot, so there is nothing to say and nothing to keep. To be asked once, as
 * the descriptor is read to its end. */
bool hutch_run_files_are_none(const struct engine_run *run);
/* Everything in the sandbox is dead: a last count for the limits, and where the disk worker takes it the list of
 * changes, too. True when it is done; else @on_looked follows, or hutch_run_looked(), as the kind has it. A second call
 * ends the disk worker's look, and counts here. */
bool hutch_run_files_look(struct engine_run *run,
                          void (*on_looked)(struct engine_run *run, const struct hutch_err *why));
/* @reply: what a look of the kind's came to, or NULL. */
void hutch_run_files_take_count(struct engine_run *run, const struct disk_reply *reply);
/* After that: has the files of a directory in memory copied to the disk, where the caller wants to keep them. True when
 * it is done, or there is nothing to do; else @on_copied follows. A second call, when the time of a sandbox that dies
 * is over, gives the copy up after ten minutes in all; a disk worker that hangs is noticed and replaced before. */
bool hutch_run_files_land(struct engine_run *run,
                          void (*on_copied)(struct engine_run *run, const struct hutch_err *why));
/* Into the result: what it did to its files, and where they are. */
void hutch_run_files_collect(struct engine_run *run);

#endif
