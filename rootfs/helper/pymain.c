/* pymain.c - a zygote's main loop, and in its workers what python3's own main() does around a program.
 *
 * A program must find nothing of hutch below it on the stack: sys._getframe(), traceback.print_stack(), the first line of a
 * traceback, the depth at which recursion ends. No Python code can arrange that, as it would be on the stack itself; so the
 * loop is here, and so are the calls that a program, its exceptions and its end consist of, in the order in which CPython's
 * Modules/main.c, Python/pythonrun.c and Python/pylifecycle.c make them. What is different, and why:
 *
 *   - The interpreter is not taken apart at the end: with the libraries of a zygote that takes 20 ms. What a program can
 *     notice of it happens: non-daemon threads are waited for, atexit functions run, streams are flushed, garbage is
 *     collected, the program's own modules are emptied. Modules that the zygote imported stay as they are.
 *   - Functions that C libraries registered with atexit(3) do not run; stdio's buffers are written.
 *
 * The functions of Python that are used are there in every version since 3.7. They are declared by hand, so that nothing of
 * Python is needed to compile this, and weak, so that a process without Python can load it. */
#include "warm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define WEAK   __attribute__((weak))

typedef struct object PyObject;
typedef struct interpreter_state PyInterpreterState;
typedef struct thread_state PyThreadState;
typedef struct { int cf_flags, cf_feature_version; } PyCompilerFlags;
typedef struct { const char *name; PyObject *(*call)(PyObject *, PyObject *); int flags; const char *doc; } PyMethodDef;

enum { Py_file_input = 257, Py_PRINT_RAW = 1, PyCF_IGNORE_COOKIE = 0x10, METH_VARARGS = 1, METH_KEYWORDS = 2 };

/* An opaque object's own layout is never used, only its address. */
extern WEAK char _Py_NoneStruct[], PyLong_Type[], PyUnicode_Type[], PyDict_Type[], PyModule_Type[];
extern WEAK PyObject *PyExc_BaseException, *PyExc_SystemExit, *PyExc_KeyboardInterrupt, *PyExc_ImportError;
#define Py_None ((PyObject *)_Py_NoneStruct)

extern WEAK PyInterpreterState *PyInterpreterState_Main(void);
extern WEAK PyThreadState *PyThreadState_New(PyInterpreterState *interpreter);
extern WEAK PyThreadState *PyThreadState_Get(void);
extern WEAK PyThreadState *PyThreadState_Swap(PyThreadState *state);
extern WEAK void PyThreadState_Clear(PyThreadState *state);
extern WEAK void PyThreadState_Delete(PyThreadState *state);

extern WEAK void Py_IncRef(PyObject *object);
extern WEAK void Py_DecRef(PyObject *object); /* NULL is fine */
extern WEAK int PyArg_ParseTuple(PyObject *tuple, const char *format, ...);
extern WEAK PyObject *PyObject_CallFunction(PyObject *function, const char *format, ...);
extern WEAK PyObject *PyObject_CallMethod(PyObject *object, const char *name, const char *format, ...);
extern WEAK PyObject *PyObject_GetAttrString(PyObject *object, const char *name);
extern WEAK int PyObject_IsTrue(PyObject *object);
extern WEAK int PyObject_IsInstance(PyObject *object, PyObject *type);
extern WEAK int PyObject_Print(PyObject *object, FILE *file, int flags);
extern WEAK int PyFile_WriteObject(PyObject *object, PyObject *file, int flags);
extern WEAK int PyCallable_Check(PyObject *object);
extern WEAK long PyLong_AsLong(PyObject *number);
extern WEAK void *PyLong_AsVoidPtr(PyObject *number);
extern WEAK PyObject *PyBytes_FromStringAndSize(const char *data, intptr_t len);
extern WEAK char *PyBytes_AsString(PyObject *bytes);
extern WEAK PyObject *PyUnicode_FromString(const char *text);
extern WEAK const char *PyUnicode_AsUTF8(PyObject *text);
extern WEAK PyObject *PySet_New(PyObject *items);
extern WEAK PyObject *PyWeakref_NewRef(PyObject *object, PyObject *callback);
extern WEAK PyObject *PyCFunction_NewEx(PyMethodDef *method, PyObject *self, PyObject *module);

extern WEAK PyObject *PyList_New(intptr_t len);
extern WEAK intptr_t PyList_Size(PyObject *list);
extern WEAK PyObject *PyList_GetItem(PyObject *list, intptr_t i); /* borrowed */
extern WEAK int PyList_Append(PyObject *list, PyObject *item);
extern WEAK int PyList_SetSlice(PyObject *list, intptr_t from, intptr_t to, PyObject *items);
extern WEAK PyObject *PyDict_GetItem(PyObject *dict, PyObject *key);             /* borrowed; no error */
extern WEAK PyObject *PyDict_GetItemString(PyObject *dict, const char *key);     /* likewise */
extern WEAK int PyDict_SetItem(PyObject *dict, PyObject *key, PyObject *value);
extern WEAK int PyDict_SetItemString(PyObject *dict, const char *key, PyObject *value);
extern WEAK int PyDict_DelItemString(PyObject *dict, const char *key);
extern WEAK int PyDict_Next(PyObject *dict, intptr_t *pos, PyObject **key, PyObject **value); /* borrowed */

extern WEAK PyObject *PyErr_Occurred(void);
extern WEAK int PyErr_ExceptionMatches(PyObject *type);
extern WEAK void PyErr_Clear(void);
extern WEAK void PyErr_Print(void);
extern WEAK void PyErr_WriteUnraisable(PyObject *where);
extern WEAK void PyErr_SetString(PyObject *type, const char *text);
extern WEAK void PyErr_Fetch(PyObject **type, PyObject **value, PyObject **traceback);
extern WEAK void PyErr_Restore(PyObject *type, PyObject *value, PyObject *traceback);

extern WEAK PyObject *PySys_GetObject(const char *name); /* borrowed */
extern WEAK int PySys_SetObject(const char *name, PyObject *value);
extern WEAK void PySys_WriteStderr(const char *format, ...);
extern WEAK PyObject *PyEval_GetBuiltins(void);       /* borrowed */
extern WEAK PyObject *PyImport_GetModuleDict(void);   /* borrowed */
extern WEAK PyObject *PyModule_GetDict(PyObject *module); /* borrowed */
extern WEAK intptr_t PyGC_Collect(void);
extern WEAK PyObject *PyRun_FileExFlags(FILE *file, const char *name, int start, PyObject *globals, PyObject *locals, int closes,
                                        PyCompilerFlags *flags);
extern WEAK PyObject *PyRun_StringFlags(const char *text, int start, PyObject *globals, PyObject *locals, PyCompilerFlags *flags);

#define TEXT_MAX      (64u << 10)
#define JOB_MAX       (16u << 20) /* more than the engine ever sends */
#define TWISTER_WORDS 624

/* helper.c and, where there is one, freeze.c */
int hutch_zygote_serve(char *text, size_t size);
int hutch_zygote_ready(const char *missing);
int hutch_zygote_freeze(void) WEAK;
int hutch_worker_pin(void);
int hutch_worker_ready(void);

int malloc_trim(size_t pad) WEAK; /* GNU's */

/* What the Python side hands over. Functions of the interpreter are here because a program may replace them in their modules. */
struct kit {
    PyObject *load;     /* (list of imports) -> report, "error: ..." for one that must not fork */
    PyObject *settle;   /* () -> None: when its memory is where it will be */
    PyObject *renew;    /* () -> None: in the worker, what makes it differ from others */
    PyObject *streams;  /* () -> None: new ones, as they are not pipes */
    PyObject *set_up;   /* (job) -> (descriptor, file's name, None) or (-1, b"", text): the program */
    PyObject *twisters; /* list of addresses, each of the state of a Mersenne Twister */
    PyObject *collect, *callbacks, *referrers, *get_signal, *set_signal; /* gc.collect, gc.callbacks, gc.get_referrers;
                         * signal.getsignal, signal.signal */
    PyObject *yes;      /* () -> True */
    const char *prefix; /* below it is what the image brings: modules that need no emptying */
};

/* Which modules were there before the program: so many, at the beginning of sys.modules. */
struct census {
    intptr_t  count;
    PyObject *last; /* the name of the last of them, borrowed: its module is not going away */
};

static _Noreturn void die(void)
{
    if (PyErr_Occurred())
        PyErr_Print();
    _exit(1);
}

/* The frames of the Python code that called us hang on the state of its thread, and nobody will return to them. The first state that is
 * made after that one's end becomes the one that PyGILState_Ensure() finds; hence one in between. */
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

/* --- streams --- */

static bool is_closed(PyObject *file)
{
    PyObject *closed = PyObject_GetAttrString(file, "closed");
    int is_true = closed ? PyObject_IsTrue(closed) : -1;

    Py_DecRef(closed);
    if (is_true < 0)
        PyErr_Clear();
    return is_true > 0;
}

static bool flush(PyObject *file)
{
    PyObject *done;

    if (!file || file == Py_None || is_closed(file))
        return true;
    done = PyObject_CallMethod(file, "flush", NULL);
    Py_DecRef(done);
    return done != NULL;
}

/* After a script, before its exception is printed: whatever fails here fails again at the end. */
static void flush_quietly(void)
{
    static const char *const names[] = { "stderr", "stdout" };
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    for (size_t i = 0; i < 2; i++) {
        PyObject *file = PySys_GetObject(names[i]);

        if (file)
            Py_DecRef(PyObject_CallMethod(file, "flush", NULL));
        PyErr_Clear();
    }
    PyErr_Restore(type, value, traceback);
}

/* False when something could not be written. stdout's failure is told; where would stderr's be? */
static bool flush_streams(void)
{
    PyObject *out = PySys_GetObject("stdout");
    bool is_fine = flush(out);

    if (!is_fine)
        PyErr_WriteUnraisable(out);
    if (!flush(PySys_GetObject("stderr"))) {
        PyErr_Clear();
        is_fine = false;
    }
    return is_fine;
}

/* --- the program --- */

/* What its module code returns, NULL with an exception. */
static PyObject *run_text(PyObject *globals, PyObject *text)
{
    PyCompilerFlags flags = { .cf_flags = PyCF_IGNORE_COOKIE };
    const char *utf8 = PyUnicode_AsUTF8(text);

    if (utf8)
        return PyRun_StringFlags(utf8, Py_file_input, globals, globals, &flags);
    PySys_WriteStderr("Unable to decode the command from the command line:\n");
    return NULL;
}

/* Likewise; @fd is closed before it begins. */
static PyObject *run_file(PyObject *globals, int fd, const char *name)
{
    FILE *file = fdopen(fd, "r");
    PyObject *value;

    if (!file)
        _exit(1);
    value = PyRun_FileExFlags(file, name, Py_file_input, globals, globals, 1, NULL);
    flush_quietly();
    return value;
}

/* The exit code that the SystemExit stands for, which is gone then. */
static int code_of_exit(void)
{
    PyObject *type, *value, *traceback, *code, *err;
    int ret = 0;

    fflush(stdout);
    PyErr_Fetch(&type, &value, &traceback);
    if (value && PyObject_IsInstance(value, PyExc_BaseException) > 0) {
        code = PyObject_GetAttrString(value, "code");
        if (code) {
            Py_DecRef(value);
            value = code;
        }
    }
    if (!value || value == Py_None) {
        ret = 0;
    } else if (PyObject_IsInstance(value, (PyObject *)PyLong_Type) > 0) {
        ret = (int)PyLong_AsLong(value); /* -1 for what no long holds */
    } else {
        PyErr_Clear();
        err = PySys_GetObject("stderr");
        if (err && err != Py_None) {
            PyFile_WriteObject(value, err, Py_PRINT_RAW);
        } else {
            PyObject_Print(value, stderr, Py_PRINT_RAW);
            fflush(stderr);
        }
        PySys_WriteStderr("\n");
        ret = 1;
    }
    PyErr_Restore(type, value, traceback);
    PyErr_Clear();
    return ret;
}

/* --- its end --- */

/* If the module is there at all. */
static void call_in_module(const char *name, const char *function)
{
    PyObject *module = PyDict_GetItemString(PyImport_GetModuleDict(), name), *done;

    if (!module || module == Py_None)
        return;
    Py_IncRef(module);
    done = PyObject_CallMethod(module, function, NULL);
    if (!done)
        PyErr_WriteUnraisable(module);
    Py_DecRef(done);
    Py_DecRef(module);
}

static void forget_signal_handlers(const struct kit *kit)
{
    for (int sig = 1; sig < NSIG; sig++) {
        PyObject *handler = PyObject_CallFunction(kit->get_signal, "i", sig);

        if (handler && PyCallable_Check(handler))
            Py_DecRef(PyObject_CallFunction(kit->set_signal, "ii", sig, 0)); /* 0: SIG_DFL */
        Py_DecRef(handler);
        PyErr_Clear();
    }
}

static void collect(const struct kit *kit)
{
    Py_DecRef(PyObject_CallFunction(kit->collect, NULL));
    PyErr_Clear();
}

/* Nothing can be imported from a certain moment on. */
static PyObject *refuse_import(PyObject *self, PyObject *args)
{
    (void)self;
    (void)args;
    PyErr_SetString(PyExc_ImportError, "sys.meta_path is None, Python is likely shutting down");
    return NULL;
}

static void empty_sys(void)
{
    static PyMethodDef import = { "__import__", refuse_import, METH_VARARGS, NULL };
    static const char *const gone[] = { "path", "argv", "ps1", "ps2", "last_type", "last_value", "last_traceback", "last_exc",
                                        "path_hooks", "path_importer_cache", "meta_path", "__interactivehook__" };
    static const char *const streams[][2] = { { "stdin", "__stdin__" }, { "stdout", "__stdout__" }, { "stderr", "__stderr__" } };
    PyObject *builtins = PyEval_GetBuiltins(), *refusal = PyCFunction_NewEx(&import, NULL, NULL);

    PyDict_SetItemString(builtins, "_", Py_None);
    if (refusal)
        PyDict_SetItemString(builtins, "__import__", refusal);
    Py_DecRef(refusal);
    for (size_t i = 0; i < sizeof(gone) / sizeof(*gone); i++)
        if (PySys_GetObject(gone[i]))
            PySys_SetObject(gone[i], Py_None);
    for (size_t i = 0; i < sizeof(streams) / sizeof(*streams); i++) {
        PyObject *original = PySys_GetObject(streams[i][1]);

        PySys_SetObject(streams[i][0], original ? original : Py_None);
    }
    PyErr_Clear();
}

static struct census count_modules(void)
{
    struct census census = { .count = 0 };
    PyObject *modules = PyImport_GetModuleDict(), *name, *module;

    for (intptr_t pos = 0; PyDict_Next(modules, &pos, &name, &module); census.count++)
        census.last = name;
    return census;
}

/* It came with the image, so nothing happens when it goes. */
static bool is_of_image(PyObject *module, const char *prefix)
{
    PyObject *file = PyObject_GetAttrString(module, "__file__");
    const char *path = file && PyObject_IsInstance(file, (PyObject *)PyUnicode_Type) > 0 ? PyUnicode_AsUTF8(file) : NULL;
    bool is_so = path && strncmp(path, prefix, strlen(prefix)) == 0;

    Py_DecRef(file);
    PyErr_Clear();
    return is_so;
}

/* Names of the modules that the program brought in, and __main__ before them. If it has taken away some of those that were there,
 * then the last one of them is where its own begin. */
static PyObject *list_modules(const struct kit *kit, const struct census *census)
{
    PyObject *modules = PyImport_GetModuleDict(), *names = PyList_New(0), *main_name = PyUnicode_FromString("__main__");
    PyObject *name, *module;
    intptr_t pos = 0, skip = 0, n;

    for (n = 0; PyDict_Next(modules, &pos, &name, &module); n++)
        if (name == census->last)
            skip = n + 1;
    if (skip == 0)
        skip = census->count < n ? census->count : n;
    PyList_Append(names, main_name);
    Py_DecRef(main_name);
    pos = 0;
    for (n = 0; PyDict_Next(modules, &pos, &name, &module); n++)
        if (n >= skip && !is_of_image(module, kit->prefix))
            PyList_Append(names, name);
    return names;
}

/* Names with one underscore first; __builtins__ stays, as destructors may need it. */
static void empty_dict(PyObject *dict)
{
    PyObject *name, *value;

    for (int pass = 0; pass < 2; pass++) {
        for (intptr_t pos = 0; PyDict_Next(dict, &pos, &name, &value);) {
            const char *text = PyUnicode_AsUTF8(name);
            bool is_next = text && (pass ? strcmp(text, "__builtins__") != 0 : text[0] == '_' && text[1] != '_');

            PyErr_Clear();
            if (is_next && value != Py_None && PyDict_SetItem(dict, name, Py_None) < 0)
                PyErr_WriteUnraisable(NULL);
        }
    }
}

/* Appends a weak reference to each module, and to a mark among its globals. */
static void take_away(PyObject *name, PyObject *refs, PyObject *marks)
{
    PyObject *modules = PyImport_GetModuleDict(), *module = PyDict_GetItem(modules, name), *mark = PySet_New(NULL);

    if (module && mark && PyObject_IsInstance(module, (PyObject *)PyModule_Type) > 0) {
        PyObject *ref = PyWeakref_NewRef(module, NULL), *mark_ref = PyWeakref_NewRef(mark, NULL);

        if (ref && mark_ref && PyDict_SetItemString(PyModule_GetDict(module), "__cached__", mark) == 0) {
            PyList_Append(refs, ref);
            PyList_Append(marks, mark_ref);
        }
        Py_DecRef(ref);
        Py_DecRef(mark_ref);
    }
    Py_DecRef(mark);
    PyDict_SetItem(modules, name, Py_None);
    PyErr_Clear();
}

/* Empties the globals whose mark is still there: whatever outside refers to one of the functions that belong to them would be gone
 * by now, if the interpreter were taken apart. */
static void empty_marked(const struct kit *kit, PyObject *mark)
{
    PyObject *holders = PyObject_CallFunction(kit->referrers, "O", mark);

    for (intptr_t i = 0; holders && i < PyList_Size(holders); i++) {
        PyObject *holder = PyList_GetItem(holders, i);

        if (PyObject_IsInstance(holder, (PyObject *)PyDict_Type) > 0)
            empty_dict(holder);
    }
    Py_DecRef(holders);
}

static void forget_modules(const struct kit *kit, const struct census *census)
{
    PyObject *names = list_modules(kit, census), *refs = PyList_New(0), *marks = PyList_New(0), *object;

    for (intptr_t i = 0; i < PyList_Size(names); i++)
        take_away(PyList_GetItem(names, i), refs, marks);
    PyList_SetSlice(kit->callbacks, 0, PyList_Size(kit->callbacks), NULL);
    collect(kit);
    for (intptr_t i = PyList_Size(refs); i-- > 0;) { /* those that something refers to */
        object = PyObject_CallFunction(PyList_GetItem(refs, i), NULL);
        if (object && object != Py_None)
            empty_dict(PyModule_GetDict(object));
        Py_DecRef(object);
    }
    for (intptr_t i = PyList_Size(marks); i-- > 0;) {
        object = PyObject_CallFunction(PyList_GetItem(marks, i), NULL);
        if (object && object != Py_None)
            empty_marked(kit, object);
        Py_DecRef(object);
    }
    PyErr_Clear();
}

/* False when output was lost. */
static bool end(const struct kit *kit, const struct census *census)
{
    bool is_fine;

    call_in_module("threading", "_shutdown"); /* waits for those that are not daemons */
    call_in_module("atexit", "_run_exitfuncs");
    PySys_SetObject("is_finalizing", kit->yes);
    is_fine = flush_streams();
    forget_signal_handlers(kit);
    PyGC_Collect();
    empty_sys();
    forget_modules(kit, census);
    return flush_streams() && is_fine;
}

/* --- the worker --- */

static struct {
    pid_t pid;
    dev_t dev;
    ino_t ino;
} worker;

/* Called by the excepthook: whether this is the process that was given the program, with its socket where it was. */
EXPORT int hutch_worker_may_report(void);

EXPORT int hutch_worker_may_report(void)
{
    struct stat st;

    return worker.pid && getpid() == worker.pid && fstat(WARM_SOCKET_FD, &st) == 0 && st.st_dev == worker.dev &&
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

/* numpy derives these words from 16 random bytes; with the code that it does it by, that would cost a worker half a
 * megabyte. The first word is as numpy has it, so never are all of them zero. */
static bool fill_twister(uint32_t *words)
{
    char *to = (char *)(words + 1), *end = (char *)(words + TWISTER_WORDS);

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

static void call(PyObject *function)
{
    PyObject *done = PyObject_CallFunction(function, NULL);

    if (!done)
        die();
    Py_DecRef(done);
}

static void become_worker(const struct kit *kit)
{
    struct stat st;

    if (fcntl(WARM_SOCKET_FD, F_SETFD, FD_CLOEXEC) < 0 || fstat(WARM_SOCKET_FD, &st) < 0)
        _exit(1);
    worker.pid = getpid();
    worker.dev = st.st_dev;
    worker.ino = st.st_ino;
    restore_dispositions();
    for (intptr_t i = 0; i < PyList_Size(kit->twisters); i++)
        if (!fill_twister(PyLong_AsVoidPtr(PyList_GetItem(kit->twisters, i))))
            _exit(1);
    call(kit->renew);
    if (!are_pipes())
        call(kit->streams);
}

/* Runs nothing by the way that the program will take, so that the pages which that writes to are the worker's own by then. */
static void rehearse(const struct kit *kit)
{
    static const char *const names[] = { "path", "argv", "path_hooks", "path_importer_cache", "meta_path", "stdin", "stdout", "stderr" };
    PyObject *globals = PyObject_CallFunction((PyObject *)PyDict_Type, NULL), *done;
    PyCompilerFlags flags = { .cf_flags = 0 };

    done = globals ? PyRun_StringFlags("print(end='')\n", Py_file_input, globals, globals, &flags) : NULL;
    if (!done)
        die();
    Py_DecRef(done);
    Py_DecRef(globals);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        PySys_SetObject(names[i], PySys_GetObject(names[i]));
    flush_streams();
    collect(kit);
}

/* The fields of the job; NULL when nobody needs this worker. */
static PyObject *receive(void)
{
    struct worker_job header;
    PyObject *fields;
    size_t have = 0;
    char *to;

    while (have < sizeof(header)) {
        ssize_t n = TEMP_FAILURE_RETRY(read(WARM_SOCKET_FD, (char *)&header + have, sizeof(header) - have));

        if (n <= 0)
            return NULL;
        have += (size_t)n;
    }
    if (header.magic != WORKER_JOB_MAGIC || header.len > JOB_MAX)
        return NULL;
    fields = PyBytes_FromStringAndSize(NULL, header.len);
    if (!fields)
        die();
    to = PyBytes_AsString(fields);
    for (have = 0; have < header.len;) {
        ssize_t n = TEMP_FAILURE_RETRY(read(WARM_SOCKET_FD, to + have, header.len - have));

        if (n <= 0)
            return NULL;
        have += (size_t)n;
    }
    return fields;
}

static _Noreturn void work(const struct kit *kit)
{
    PyObject *fields, *program, *module, *globals, *value, *text;
    bool is_interrupted, is_exit = false;
    struct census census;
    const char *name;
    int fd, status = 0;

    become_worker(kit);
    rehearse(kit);
    if (hutch_worker_pin() < 0 || hutch_worker_ready() < 0)
        _exit(1);
    fields = receive();
    if (!fields)
        _exit(0);
    program = PyObject_CallFunction(kit->set_up, "O", fields);
    if (!program || !PyArg_ParseTuple(program, "iyO", &fd, &name, &text))
        die();
    Py_DecRef(fields);
    census = count_modules();
    module = PyDict_GetItemString(PyImport_GetModuleDict(), "__main__");
    Py_IncRef(module);
    globals = PyModule_GetDict(module);
    Py_IncRef(globals);

    value = fd < 0 ? run_text(globals, text) : run_file(globals, fd, name);
    is_interrupted = !value && PyErr_Occurred() == PyExc_KeyboardInterrupt;
    Py_DecRef(value);
    Py_DecRef(module);
    if (PyErr_Occurred()) {
        is_exit = PyErr_ExceptionMatches(PyExc_SystemExit);
        status = 1;
        if (is_exit)
            status = code_of_exit();
        else
            PyErr_Print();
    }
    if (!is_exit && fd >= 0) { /* a script's atexit functions find no __file__, unless it called sys.exit() */
        if (PyDict_DelItemString(globals, "__file__") < 0)
            PyErr_Clear();
        if (PyDict_DelItemString(globals, "__cached__") < 0)
            PyErr_Clear();
    }
    Py_DecRef(globals);
    Py_DecRef(program);

    if (!end(kit, &census))
        status = 120;
    fflush(NULL);
    if (is_interrupted) {
        signal(SIGINT, SIG_DFL);
        kill(getpid(), SIGINT);
        status = 128 + SIGINT;
    }
    _exit(status);
}

/* --- the zygote --- */

/* The first request for memory of some size makes libc sort what was freed before: all over the heap, and in each worker
 * anew if it were not done here. */
static void tidy_heap(void)
{
    void *volatile large = malloc(100 << 10);

    free(large);
    if (malloc_trim)
        malloc_trim(0);
}

static void load(const struct kit *kit, const char *text)
{
    PyObject *report = PyObject_CallFunction(kit->load, "y", text);
    const char *lines = report ? PyUnicode_AsUTF8(report) : NULL;
    bool may_fork;

    if (!lines)
        die();
    may_fork = strncmp(lines, "error: ", 7) != 0;
    if (may_fork) {
        if (hutch_zygote_freeze)
            hutch_zygote_freeze();
        call(kit->settle);
        tidy_heap();
        note_dispositions();
    }
    if (hutch_zygote_ready(lines) < 0 || !may_fork)
        _exit(1);
    Py_DecRef(report);
}

/* @parts: the kit, as a tuple in its order. @text: the first list of imports. Does not return. */
EXPORT void hutch_zygote_main(PyObject *parts, const char *text);

EXPORT void hutch_zygote_main(PyObject *parts, const char *text)
{
    static char order[TEXT_MAX];
    struct kit kit;

    if (!PyArg_ParseTuple(parts, "OOOOOOOOOOOOs", &kit.load, &kit.settle, &kit.renew, &kit.streams, &kit.set_up, &kit.twisters,
                          &kit.collect, &kit.callbacks, &kit.referrers, &kit.get_signal, &kit.set_signal, &kit.yes, &kit.prefix))
        die();
    take_fresh_thread_state();
    for (load(&kit, text);; load(&kit, order)) {
        int what = hutch_zygote_serve(order, sizeof(order));

        if (what == 1)
            work(&kit);
        if (what != 2)
            _exit(0);
    }
}
