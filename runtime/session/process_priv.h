/* process_priv.h - what process.c and process_io.c share: the first has the life of a process, the second its
 * streams. */
#ifndef HUTCH_SESSION_PROCESS_PRIV_H
#define HUTCH_SESSION_PROCESS_PRIV_H

#include "runtime/session/process.h"

/* --- process.c --- */

/* Signals its group, through init. */
void hutch_process_kill(struct process *process, int sig);

/* --- process_io.c --- */

/* Its pipes, watched; @theirs: stdin, stdout, stderr. A terminal comes later. */
int hutch_process_make_streams(struct process *process, int theirs[3], struct hutch_err *err);
/* Takes *@fd over if it is the master of a terminal, and watches it. */
int hutch_process_take_terminal(struct process *process, int *fd, struct hutch_err *err);
/* PROCESS_ENDED: what is there now is all that is wanted. */
void hutch_process_bound_output(struct process *process);
/* Takes what is there, unless it is held. */
void hutch_process_read(struct process *process);
void hutch_process_close_input(struct process *process);
void hutch_process_close_streams(struct process *process);

#endif
