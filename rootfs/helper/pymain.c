/* pymain.c - what python3's own main() does around a program, in a process that a zygote has forked.
 *
 * A program must find nothing of hutch below it on the stack: sys._getframe(), traceback.print_stack(), a traceback's
 * first line, the depth at which recursion ends. No Python code can arrange that, as it would be on the stack itself; so the
 * calls that a program, its exceptions and its end consist of are made here, in the order in which CPython's
 * Modules/main.c, Python/pythonrun.c and Python/pylifecycle.c make them. What is different, and why:
 *
 *   - The interpreter is not taken apart at the end: with the libraries of a zygote that takes 20 ms. What a program can
 *     notice of it happens: non-daemon threads are waited for, atexit functions run, streams are flushed, garbage is
 *     collected, the program's own modules are emptied. Modules that the zygote imported stay.
 *   - Functions that C libraries registered with atexit(3) do not run; stdio's buffers are written.
 *
 * The functions of Python that are used are there in every version since 3.7. They are declared by hand, so that nothing of
 * Python is needed to compile this, and weak, so that a process without Python can load it. */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define WEAK __attribute__((weak))

typedef struct object PyObject;
typedef struct interpreter_state PyInterpreterState;
typedef struct thread_state PyThreadState;
typedef struct { int cf_flags, cf_feature_version; } PyCompilerFlags;

#define Py_file_input        257
#define Py_PRINT_RAW         1
#define PyCF_IGNORE_COOKIE   0x0010

extern PyObject _Py_NoneStruct WEAK, PyModule_Type WEAK;
#define Py_None (&_Py_NoneStruct)
extern PyObject *PyExc_SystemExit WEAK, *PyExc_KeyboardInterrupt WEAK, *PyExc_BaseException WEAK, *PyExc_LookupError WEAK;

extern WEAK PyInterpreterState *PyInterpreterState_Main(void);
extern WEAK PyThreadState *PyThreadState_New(PyInterpreterState *), *PyThreadState_Get(void), *PyThreadState_Swap(PyThreadState *);
extern WEAK void PyThreadState_Clear(PyThreadState *), PyThreadState_Delete(PyThreadState *);
extern WEAK PyObject *PyThreadState_GetDict(void), *PyContext_CopyCurrent(void);
extern WEAK int PyContext_Enter(PyObject *);

extern WEAK void Py_IncRef(PyObject *), Py_DecRef(PyObject *);
extern WEAK int PyArg_ParseTuple(PyObject *, const char *, ...);
extern WEAK PyObject *PyObject_CallFunction(PyObject *, const char *, ...), *PyObject_CallMethod(PyObject *, const char *, const char *, ...);
extern WEAK PyObject *PyObject_GetAttrString(PyObject *, const char *);
extern WEAK int PyObject_IsTrue(PyObject *), PyObject_IsInstance(PyObject *, PyObject *), PyCallable_Check(PyObject *);
extern WEAK int PyObject_Print(PyObject *, FILE *, int), PyFile_WriteObject(PyObject *, PyObject *, int);
extern WEAK long PyLong_AsLong(PyObject *);
extern PyObject PyLong_Type WEAK, PyDict_Type WEAK;
extern WEAK const char *PyUnicode_AsUTF8(PyObject *);
extern WEAK PyObject *PyUnicode_FromString(const char *);

extern WEAK PyObject *PyDict_GetItem(PyObject *, PyObject *), *PyDict_GetItemString(PyObject *, const char *);
extern WEAK int PyDict_SetItem(PyObject *, PyObject *, PyObject *), PyDict_SetItemString(PyObject *, const char *, PyObject *);
extern WEAK int PyDict_DelItem(PyObject *, PyObject *), PyDict_DelItemString(PyObject *, const char *);
extern WEAK int PyDict_Update(PyObject *, PyObject *), PyDict_Next(PyObject *, intptr_t *, PyObject **, PyObject **);
extern WEAK PyObject *PyList_New(intptr_t), *PyList_GetItem(PyObject *, intptr_t);
extern WEAK intptr_t PyList_Size(PyObject *);
extern WEAK int PyList_Append(PyObject *, PyObject *), PyList_SetSlice(PyObject *, intptr_t, intptr_t, PyObject *);
extern WEAK PyObject *PyCapsule_New(void *, const char *, void (*)(PyObject *)), *PyWeakref_NewRef(PyObject *, PyObject *);

extern WEAK PyObject *PyErr_Occurred(void);
extern WEAK int PyErr_ExceptionMatches(PyObject *);
extern WEAK void PyErr_Clear(void), PyErr_Print(void), PyErr_WriteUnraisable(PyObject *);
extern WEAK void PyErr_Fetch(PyObject **, PyObject **, PyObject **), PyErr_Restore(PyObject *, PyObject *, PyObject *);

extern WEAK PyObject *PySys_GetObject(const char *), *PyEval_GetBuiltins(void), *PyImport_GetModuleDict(void), *PyModule_GetDict(PyObject *);
extern WEAK int PySys_SetObject(const char *, PyObject *), PyErr_CheckSignals(void);
extern WEAK void PySys_WriteStderr(const char *, ...);
extern WEAK intptr_t PyGC_Collect(void);
extern WEAK PyObject *PyRun_FileExFlags(FILE *, const char *, int, PyObject *, PyObject *, int, PyCompilerFlags *);
extern WEAK PyObject *PyRun_StringFlags(const char *, int, PyObject *, PyObject *, PyCompilerFlags *);

/* What the worker's Python side hands over. */
struct kit {
    PyObject *prepare;    /* () -> descriptor of a file with a rehearsal */
    PyObject *begin;      /* () -> (descriptor or -1, file name, text or None): what to run */
    PyObject *run_atexit, *collect, *callbacks, *referrers, *getsignal, *setsignal; /* atexit._run_exitfuncs; gc.collect, gc.callbacks,
                           * gc.get_referrers; signal.getsignal, signal.signal. Held here: a program may replace them in their modules */
};

/* Which modules were there before the program: those that stand first in sys.modules. */
struct census {
    intptr_t  count;
    PyObject *last; /* name of the last of them, borrowed */
};

/* The Python code of the zygote is on the stack of the thread's state, and it will never return to it. So the thread gets another state, with
 * what the imports have left in the first: context variables, thread-local values. Deleting the first before the last is
 * made lets that become the one which PyGILState_Ensure() finds. */
static void take_fresh_thread_state(void)
{
    PyInterpreterState *interpreter = PyInterpreterState_Main();
    PyThreadState *old = PyThreadState_Get(), *between = PyThreadState_New(interpreter), *fresh;
    PyObject *context = PyContext_CopyCurrent(), *locals = PyThreadState_GetDict(), *fresh_locals;

    if (!between || !context || !locals)
        _exit(1);
    Py_IncRef(locals);
    PyThreadState_Swap(between);
    PyThreadState_Clear(old);
    PyThreadState_Delete(old);
    fresh = PyThreadState_New(interpreter);
    if (!fresh)
        _exit(1);
    PyThreadState_Swap(fresh);
    PyThreadState_Clear(between);
    PyThreadState_Delete(between);
    fresh_locals = PyThreadState_GetDict();
    if (!fresh_locals || PyDict_Update(fresh_locals, locals) < 0 || PyContext_Enter(context) < 0)
        _exit(1);
    Py_DecRef(locals);
    Py_DecRef(context);
}

/* --- streams --- */

static bool is_closed(PyObject *file)
{
    PyObject *closed = PyObject_GetAttrString(file, "closed");
    int is_true = 0;

    if (closed) {
        is_true = PyObject_IsTrue(closed);
        Py_DecRef(closed);
    }
    if (!closed || is_true < 0)
        PyErr_Clear();
    return is_true > 0;
}

/* -1 when something could not be written. As at the interpreter's end: stdout's failure is told, stderr's cannot be. */
static int flush_streams(void)
{
    PyObject *out = PySys_GetObject("stdout"), *err = PySys_GetObject("stderr"), *done;
    int rc = 0;

    if (out && out != Py_None && !is_closed(out)) {
        done = PyObject_CallMethod(out, "flush", NULL);
        if (!done) {
            PyErr_WriteUnraisable(out);
            rc = -1;
        } else {
            Py_DecRef(done);
        }
    }
    if (err && err != Py_None && !is_closed(err)) {
        done = PyObject_CallMethod(err, "flush", NULL);
        if (!done) {
            PyErr_Clear();
            rc = -1;
        } else {
            Py_DecRef(done);
        }
    }
    return rc;
}

/* --- the program --- */

/* The value of its module code, NULL with an exception. @fd is closed. */
static PyObject *run(PyObject *globals, int fd, const char *name, const char *text)
{
    PyCompilerFlags flags = { .cf_flags = text ? PyCF_IGNORE_COOKIE : 0 };
    FILE *file;

    if (text)
        return PyRun_StringFlags(text, Py_file_input, globals, globals, &flags);
    file = fdopen(fd, "r");
    if (!file)
        _exit(1);
    return PyRun_FileExFlags(file, name, Py_file_input, globals, globals, 1, &flags);
}

/* The exit code that a SystemExit stands for; takes the exception. */
static int code_of_exit(void)
{
    PyObject *kind, *value, *traceback, *code, *err;
    int ret = 0;

    fflush(stdout);
    PyErr_Fetch(&kind, &value, &traceback);
    if (value && value != Py_None && PyObject_IsInstance(value, PyExc_BaseException) > 0) {
        code = PyObject_GetAttrString(value, "code");
        if (code) {
            Py_DecRef(value);
            value = code;
        }
    }
    if (value && value != Py_None) {
        if (PyObject_IsInstance(value, &PyLong_Type) > 0) {
            ret = (int)PyLong_AsLong(value); /* one that does not fit is -1 */
        } else {
            PyErr_Clear();
            ret = 1;
            err = PySys_GetObject("stderr");
            if (err && err != Py_None) {
                PyFile_WriteObject(value, err, Py_PRINT_RAW);
            } else {
                PyObject_Print(value, stderr, Py_PRINT_RAW);
                fflush(stderr);
            }
            PySys_WriteStderr("\n");
        }
    }
    PyErr_Restore(kind, value, traceback); /* gives up what is left of them */
    PyErr_Clear();
    return ret;
}

/* --- its end --- */

static struct census count_modules(void)
{
    struct census census = { .count = 0 };
    PyObject *modules = PyImport_GetModuleDict(), *name, *module;
    intptr_t pos = 0;

    while (PyDict_Next(modules, &pos, &name, &module)) {
        census.count++;
        census.last = name;
    }
    return census;
}

/* Names of modules that the program brought in, __main__ first. Where it has taken away some of the others, the last of those that
 * were there is looked for. */
static PyObject *list_modules(const struct census *census)
{
    PyObject *modules = PyImport_GetModuleDict(), *names = PyList_New(0), *main_name = PyUnicode_FromString("__main__");
    PyObject *name, *module;
    intptr_t pos = 0, n = 0, skip = 0;

    while (PyDict_Next(modules, &pos, &name, &module)) {
        n++;
        if (name == census->last)
            skip = n;
    }
    if (skip == 0)
        skip = census->count < n ? census->count : n;
    PyList_Append(names, main_name);
    Py_DecRef(main_name);
    pos = 0;
    for (n = 0; PyDict_Next(modules, &pos, &name, &module); n++)
        if (n >= skip)
            PyList_Append(names, name);
    return names;
}

static void set_to_none(PyObject *dict, PyObject *name, const PyObject *value)
{
    if (value != Py_None && PyDict_SetItem(dict, name, Py_None) < 0)
        PyErr_WriteUnraisable(NULL);
}

/* As _PyModule_Clear(): names that begin with one underscore first, and __builtins__ stays, for destructors. */
static void empty_dict(PyObject *dict)
{
    PyObject *name, *value;
    const char *text;

    for (int pass = 0; pass < 2; pass++) {
        intptr_t pos = 0;

        while (PyDict_Next(dict, &pos, &name, &value)) {
            text = PyUnicode_AsUTF8(name);
            if (!text)
                PyErr_Clear();
            else if (pass == 0 ? text[0] == '_' && text[1] != '_' : strcmp(text, "__builtins__") != 0)
                set_to_none(dict, name, value);
        }
    }
}

/* What a module's globals hold lives on when something outside refers to one of its functions: there, something that would be
 * gone by now if the interpreter were taken apart. A capsule among the globals tells, and finds them. */
static const char capsule_name[] = "globals";

static void mark(PyObject *dict)
{
    PyObject *capsule = PyCapsule_New((void *)capsule_name, capsule_name, NULL), *ref;

    (void)ref;
    if (!capsule)
        return;
    PyDict_SetItemString(dict, "__cached__", capsule);
    Py_DecRef(capsule);
}
