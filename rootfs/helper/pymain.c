/* pymain.c - a zygote's main loop, and what a worker does before its program.
 *
 * A program must find nothing of hutch below it on the stack: sys._getframe(), traceback.print_stack(), the first line
 * of a traceback, the depth at which recursion ends. No Python code can arrange that, as it would be on the stack
 * itself; so the loop is here, and calls Python for the rest.
 *
 * A zygote with the usual libraries has 80 MB, and forks in a millisecond because nothing of that is copied. Whatever
 * is written to afterwards is, by the page, and a Python function that is called writes to about ten. So what a worker
 * does before its program is done in the zygote if that is possible, and here if not. What remains is done once for
 * nothing before the worker says that it is ready, so that those pages are copied before a run waits for them. */
#include "rootfs/helper/guards.h"
#include "rootfs/helper/pyjob.h"
#include "rootfs/helper/pyobjects.h"
#include "sandbox/fd.h"
#include "sandbox/zygote_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT        __attribute__((visibility("default")))
#define TEXT_MAX      (ZYGOTE_TEXT_MAX + 1)
#define MT19937_WORDS 624
#define FUNCTION_MARK "===\n" /* what a zygote that is a function is told begins with it: functions.py */

/* helper.c and, where there is one, freeze.c */
int hutch_zygote_serve(char *text, size_t size);
int hutch_zygote_ready(const char *missing);
void hutch_zygote_measure(bool is_more);
void hutch_zygote_be_born(void);
int hutch_zygote_freeze(int is_again) WEAK;
int hutch_worker_ready(void);

int malloc_trim(size_t pad) WEAK; /* GNU's */

/* Called by Python. */
EXPORT void hutch_zygote_main(PyObject *objects, const char *text);
EXPORT int hutch_worker_may_report(void);

static _Noreturn void end_with_exception(void)
{
    if (PyErr_Occurred())
        PyErr_Print();
    _exit(1);
}

static void call_or_end(PyObject *function)
{
    PyObject *done = PyObject_CallFunction(function, NULL);

    if (!done)
        end_with_exception();
    Py_DecRef(done);
}

/* --- the worker --- */

static struct {
    pid_t pid;
    dev_t dev;
    ino_t ino;
} worker;

/* The excepthook asks whether this is the process that was given the program, with its socket where it was. */
EXPORT int hutch_worker_may_report(void)
{
    struct stat st;

    return worker.pid && getpid() == worker.pid && fstat(ZYGOTE_SOCKET_FD, &st) == 0 && st.st_dev == worker.dev &&
           st.st_ino == worker.ino;
}

/* What a zygote's interpreter and its libraries have set; in the worker all were reset. */
static struct sigaction dispositions[NSIG];

static void note_dispositions(void)
{
    for (int sig = 1; sig < NSIG; sig++)
        if (sigaction(sig, NULL, &dispositions[sig]) < 0)
            dispositions[sig].sa_handler = SIG_DFL;
}

static void restore_dispositions(void)
{
    for (int sig = 1; sig < NSIG; sig++)
        if (dispositions[sig].sa_handler != SIG_DFL)
            sigaction(sig, &dispositions[sig], NULL);
}

/* Random words for the state of a Mersenne Twister. numpy derives them from 16 random bytes, by code that would cost a
 * worker half a megabyte. The first word is as numpy has it, so they are never all zero. */
static bool fill_mt19937_state(uint32_t *words)
{
    char *to = (char *)(words + 1), *end = (char *)(words + MT19937_WORDS);

    words[0] = 1u << 31;
    while (to < end) {
        long n = syscall(SYS_getrandom, to, end - to, 0);

        if (n > 0)
            to += n;
        else if (errno != EINTR)
            return false;
    }
    return true;
}

static bool are_pipes(void)
{
    struct stat st;

    for (int fd = 0; fd < 3; fd++)
        if (fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode))
            return false;
    return true;
}

static void become_worker(const struct pyobjects *py)
{
    struct stat st;

    if (fcntl(ZYGOTE_SOCKET_FD, F_SETFD, FD_CLOEXEC) < 0 || fstat(ZYGOTE_SOCKET_FD, &st) < 0)
        _exit(1);
    worker.pid = getpid();
    worker.dev = st.st_dev;
    worker.ino = st.st_ino;
    restore_dispositions();
    for (intptr_t i = 0; i < PyList_Size(py->mt19937_states); i++)
        if (!fill_mt19937_state(PyLong_AsVoidPtr(PyList_GetItem(py->mt19937_states, i))))
            _exit(1);
    call_or_end(py->renew);
    if (!are_pipes())
        call_or_end(py->change_streams);
}

static _Noreturn void execute_cells(const struct pyobjects *py, PyObject *environment)
{
    PyObject *start = hutch_pyjob_set_up_cells(py, environment), *status;

    hutch_pyjob_fork_spawner(); /* while nothing of the session's code has run here */
    status = PyObject_CallFunction(py->cells, "O", start);
    if (!status)
        end_with_exception();
    hutch_pyrun_finish(py, (int)PyLong_AsLong(status));
}

static _Noreturn void call_function(const struct pyobjects *py, PyObject *environment)
{
    PyObject *event = hutch_pyjob_set_up_cells(py, environment);
    PyObject *status = PyObject_CallFunction(py->function, "O", event);

    if (!status)
        end_with_exception();
    hutch_pyrun_finish(py, (int)PyLong_AsLong(status));
}

static void rehearse_program(const struct pyobjects *py, PyObject *environment)
{
    struct program program;

    hutch_pyjob_rehearse(py, environment, &program);
    if (hutch_pyrun_rehearse(py, &program) < 0)
        end_with_exception();
    call_or_end(py->rehearse_cells);
}

static _Noreturn void run_worker(const struct pyobjects *py, PyObject *environment, bool is_function)
{
    struct program program;

    become_worker(py);
    if (is_function)
        call_or_end(py->rehearse_call);
    else
        rehearse_program(py, environment);
    hutch_pyjob_make_main(py);
    if (hutch_worker_ready() < 0)
        _exit(1);
    if (!hutch_pyjob_receive())
        _exit(0);
    if (hutch_pyjob_has_cells())
        execute_cells(py, environment);
    if (hutch_pyjob_has_call())
        call_function(py, environment);
    if (hutch_pyjob_has_processes())
        hutch_pyjob_serve_processes(py, environment);
    hutch_pyjob_set_up(py, environment, &program);
    hutch_pyrun(py, &program);
}

/* --- the zygote --- */

/* The frames of the calling Python code hang on the state of its thread, and are not returned to. The first state that
 * is made after the end of that one becomes the one that PyGILState_Ensure() finds; hence one in between. */
static void take_fresh_thread_state(void)
{
    PyInterpreterState *interpreter = PyInterpreterState_Main();
    PyThreadState *old = PyThreadState_Get(), *between = PyThreadState_New(interpreter), *fresh;

    if (!between)
        _exit(1);
    PyThreadState_Swap(between);
    PyThreadState_Clear(old);
    PyThreadState_Delete(old);
    fresh = PyThreadState_New(interpreter);
    if (!fresh)
        _exit(1);
    PyThreadState_Swap(fresh);
    PyThreadState_Clear(between);
    PyThreadState_Delete(between);
}

/* The first request for memory of some size makes libc sort what was freed before: all over the heap, and in each
 * worker anew if it were not done here. */
static void tidy_heap(void)
{
    void *volatile large = malloc(100 << 10);

    free(large);
    if (malloc_trim)
        malloc_trim(0);
}

/* @is_again: some was moved before, and this is what the process has written to since. False: nothing was moved. */
static bool move_memory(bool is_again)
{
    hutch_zygote_measure(is_again);
    hutch_guards_note(false);
    return hutch_zygote_freeze && hutch_zygote_freeze(is_again) == 0;
}

/* Returns the environment, as it stands in a job. */
static PyObject *load_modules(const struct pyobjects *py, const char *text)
{
    PyObject *report = PyObject_CallFunction(py->load, "y", text), *environment = NULL;
    const char *lines = report ? PyUnicode_AsUTF8(report) : NULL;
    bool is_moved;

    if (!lines) {
        end_with_exception();
    } else if (strncmp(lines, "error: ", 7) == 0) {
        hutch_zygote_ready(lines);
        _exit(1);
    }
    is_moved = move_memory(false);
    environment = PyObject_CallFunction(py->use_again, NULL);
    if (!environment)
        end_with_exception();
    tidy_heap();
    if (is_moved)
        move_memory(true);
    note_dispositions();
    hutch_guards_note(true);
    if (hutch_zygote_ready(lines) < 0)
        _exit(1);
    Py_DecRef(report);
    return environment;
}

/* @objects: a struct pyobjects, as a tuple in its order. @text: the first list of imports. Does not return. */
EXPORT void hutch_zygote_main(PyObject *objects, const char *text)
{
    static char order[TEXT_MAX];
    struct pyobjects py;

    if (!PyArg_ParseTuple(objects, "OOOOOOOOOOOOOOOOOOOOOOOOs", &py.load, &py.use_again, &py.renew,
                          &py.change_environment, &py.variables, &py.change_streams, &py.mt19937_states,
                          &py.script_loader, &py.builtin_loader, &py.python, &py.has_script_path, &py.run_atexit,
                          &py.collect, &py.callbacks, &py.referrers, &py.get_signal, &py.set_signal,
                          &py.count_threads, &py.builtins, &py.yes, &py.rehearse_cells, &py.cells, &py.function,
                          &py.rehearse_call, &py.prefix))
        end_with_exception();
    take_fresh_thread_state();
    hutch_zygote_be_born();
    for (;;) {
        bool is_function = strncmp(text, FUNCTION_MARK, strlen(FUNCTION_MARK)) == 0;
        PyObject *environment = load_modules(&py, text);
        int what = hutch_zygote_serve(order, sizeof(order));

        if (what == 1) {
            if (hutch_guards_renew() < 0)
                _exit(1);
            run_worker(&py, environment, is_function);
        }
        if (what != 2)
            _exit(0);
        Py_DecRef(environment);
        text = order;
    }
}
