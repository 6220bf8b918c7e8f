/* pyobjects.h - objects that the zygote's Python side (rootfs/python/zygote/main.py) hands over to its C side, which
 * holds them for good. */
#ifndef HUTCH_PYOBJECTS_H
#define HUTCH_PYOBJECTS_H

#include "rootfs/helper/pyapi.h"

struct pyobjects {
    PyObject *load;               /* (list of imports) -> report, which begins with "error: " when this zygote must
                                   * not fork */
    PyObject *use_again;          /* () -> the environment, as it stands in a job; uses the libraries once more */
    PyObject *renew;              /* () -> None: in a worker, what makes it differ from others */
    PyObject *change_environment; /* (as it stands in a job) -> None */
    PyObject *variables;          /* what os.environ keeps them in: a dict of bytes */
    PyObject *change_streams;     /* () -> None: to some that are not pipes */
    PyObject *mt19937_states;     /* list of addresses, each of the state of a Mersenne Twister */
    PyObject *script_loader, *builtin_loader; /* importlib's SourceFileLoader and BuiltinImporter */
    PyObject *python;             /* what a program's sys.orig_argv begins with, or None where there is no such thing */
    PyObject *has_script_path;    /* whether sys.path begins with the script's directory */
    /* atexit._run_exitfuncs, gc.collect, gc.callbacks, gc.get_referrers, signal.getsignal, signal.signal,
     * _thread._count: here because a program may replace them in their modules. */
    PyObject *run_atexit, *collect, *callbacks, *referrers, *get_signal, *set_signal, *count_threads;
    PyObject *builtins;           /* what the interpreter itself has put there, by its name */
    PyObject *yes;                /* () -> True */
    PyObject *rehearse_cells;     /* () -> None: in a worker, if it has a shell */
    PyObject *cells;              /* (JOB_CODE, as bytes) -> the exit status: a worker that executes cells until it
                                   * is told to end */
    PyObject *function;           /* (JOB_CODE, as bytes) -> the exit status: a worker that answers one call */
    PyObject *rehearse_call;      /* () -> None: in such a worker */
    const char *prefix;           /* below it is what the image brings: modules that need no emptying */
};

#endif
