/* pyrun.h - a program, its exceptions and its end, as python3's own main() has them.
 *
 * The calls are made in the order in which CPython's Modules/main.c, Python/pythonrun.c and Python/pylifecycle.c make
 * them. What is different, and why:
 *
 *   - The interpreter is not taken apart at the end: with the libraries of a zygote that takes 20 ms. What a program
 *     can notice of it happens: non-daemon threads are waited for, atexit functions run, streams are flushed, garbage
 *     is collected, the program's own modules are emptied. Modules that the zygote imported stay as they are.
 *   - Functions that C libraries registered with atexit(3) do not run; stdio's buffers are written. */
#ifndef HUTCH_PYRUN_H
#define HUTCH_PYRUN_H

#include "rootfs/helper/pyapi.h"

struct pyobjects;

struct program {
    int fd;            /* of its text, at the beginning; closed before it begins. -1: as text */
    const char *name;  /* of the file, as tracebacks have it */
    PyObject *text;    /* python3 -c */
};

/* Runs it in the module __main__ and ends the process. There must be no Python frame below: a program can see them. */
_Noreturn void hutch_pyrun(const struct pyobjects *py, const struct program *program);

/* Ends the process with @status: atexit functions run, streams are flushed; threads are not waited for. */
_Noreturn void hutch_pyrun_finish(const struct pyobjects *py, int status);

/* Runs one for nothing, in a namespace of its own, by the way that the next will take. -1 with an exception. */
int hutch_pyrun_rehearse(const struct pyobjects *py, const struct program *program);

#endif
