/* pyjob.h - a worker's job (struct worker_job in sandbox/zygote_wire.h), and the interpreter made ready for it. */
#ifndef HUTCH_PYJOB_H
#define HUTCH_PYJOB_H

#include "rootfs/helper/pyrun.h"

#include <stdbool.h>

struct pyobjects;

/* A new __main__, as it is before a program: what the interpreter itself puts there, in its order. */
void hutch_pyjob_make_main(const struct pyobjects *py);

/* Waits for the job. False when there is none, and the worker is not needed. */
bool hutch_pyjob_receive(void);

/* What the job has: limits, working directory, environment, sys.argv, sys.path, what __main__ begins with; and writes
 * the program's file. @environment is the present one. Ends the process, with a message, when something is not to be
 * had. */
void hutch_pyjob_set_up(const struct pyobjects *py, PyObject *environment, struct program *ret);

/* Whether it is not a program but cells, on orders that follow; and what such a job has: limits, directory,
 * environment. Returns JOB_CODE. */
bool hutch_pyjob_has_cells(void);
/* … or the call of a function, which has the same, with its event as JOB_CODE. */
bool hutch_pyjob_has_call(void);
PyObject *hutch_pyjob_set_up_cells(const struct pyobjects *py, PyObject *environment);

/* The processes that a session has besides its cells (rootfs/helper/spawner.h), where the job came with a socket for
 * that: forks what makes them. And whether the job is nothing but that, when the worker makes them itself, tells
 * the engine that it is ready, and does not return. */
void hutch_pyjob_fork_spawner(void);
bool hutch_pyjob_has_processes(void);
_Noreturn void hutch_pyjob_serve_processes(const struct pyobjects *py, PyObject *environment);

/* The same for a program that does nothing; nothing of it remains. */
void hutch_pyjob_rehearse(const struct pyobjects *py, PyObject *environment, struct program *ret);

#endif
