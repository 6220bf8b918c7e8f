#include "rootfs/helper/pyrun.h"

#include "sandbox/fd.h"
#include "rootfs/helper/pyobjects.h"

#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* Which modules were there before the program: so many, at the beginning of sys.modules. */
struct census {
    intptr_t  count;
    PyObject *last; /* the name of the last of them, borrowed: its module is not going away */
};

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

/* After a script, before its exception is printed, when whatever fails here fails again at the end; and after that,
 * when it was told. */
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

/* @what is @whose, in the words of 3.13. */
static void tell_of_failure(const char *what, PyObject *whose)
{
    if (PyErr_FormatUnraisable)
        PyErr_FormatUnraisable("Exception ignored on %s", what);
    else
        PyErr_WriteUnraisable(whose);
}

/* False when something could not be written. stdout's failure is told; where would stderr's be? */
static bool flush_streams(void)
{
    PyObject *out = PySys_GetObject("stdout");
    bool is_fine = flush(out);

    if (!is_fine)
        tell_of_failure("flushing sys.stdout", out);
    if (!flush(PySys_GetObject("stderr"))) {
        PyErr_Clear();
        is_fine = false;
    }
    return is_fine;
}

/* From 3.13 on a traceback shows the lines of "python3 -c", which the module linecache is told of. */
static bool register_lines(PyObject *code, PyObject *text)
{
    PyObject *module = PyImport_ImportModule("linecache"), *done = NULL;

    if (module)
        done = PyObject_CallMethod(module, "_register_code", "OOs", code, text, "<string>");
    Py_DecRef(done);
    Py_DecRef(module);
    return done;
}

static PyObject *run_text(PyObject *globals, PyObject *text)
{
    PyCompilerFlags flags = { .cf_flags = PyCF_IGNORE_COOKIE };
    const char *utf8 = PyUnicode_AsUTF8(text);
    PyObject *code, *value = NULL;

    if (!utf8) {
        PySys_WriteStderr("Unable to decode the command from the command line:\n");
        return NULL;
    }
    if (!PyErr_FormatUnraisable) /* before 3.13 */
        return PyRun_StringFlags(utf8, Py_file_input, globals, globals, &flags);
    code = Py_CompileStringExFlags(utf8, "<string>", Py_file_input, &flags, -1);
    if (code && register_lines(code, text))
        value = PyEval_EvalCode(code, globals, globals);
    Py_DecRef(code);
    return value;
}

/* What its module code returns, NULL with an exception. */
static PyObject *run(PyObject *globals, const struct program *program)
{
    PyObject *value;
    FILE *file;

    if (program->fd < 0)
        return run_text(globals, program->text);
    file = fdopen(program->fd, "r");
    if (!file)
        _exit(1);
    value = PyRun_FileExFlags(file, program->name, Py_file_input, globals, globals, 1, NULL);
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

static void wait_for_threads(void)
{
    PyObject *threading = PyDict_GetItemString(PyImport_GetModuleDict(), "threading"), *done;

    if (!threading)
        return;
    Py_IncRef(threading);
    done = PyObject_CallMethod(threading, "_shutdown", NULL);
    if (!done)
        tell_of_failure("threading shutdown", threading);
    Py_DecRef(done);
    Py_DecRef(threading);
}

/* Python's main thread is over, as the version has it. */
static bool end_main_thread(PyObject *thread)
{
    PyObject *handle = PyObject_GetAttrString(thread, "_handle"); /* from 3.13 on */
    PyObject *done = handle ? PyObject_CallMethod(handle, "_set_done", NULL) : NULL;
    bool is_done = done;

    Py_DecRef(done);
    Py_DecRef(handle);
    PyErr_Clear();
    return is_done || (!handle && PyObject_SetAttrString(thread, "_is_stopped", Py_True) == 0 &&
                       PyObject_SetAttrString(thread, "_tstate_lock", Py_None) == 0);
}

/* What threading._shutdown() comes to when there are no other threads and no callbacks: said in C, as a call of that
 * function costs a worker 40 pages. False when there is more to it, or when it is another version's. */
static bool end_alone(const struct pyobjects *py)
{
    PyObject *threading = PyDict_GetItemString(PyImport_GetModuleDict(), "threading"), *locks, *functions, *thread,
             *count;
    bool is_alone = false;

    if (!threading || threading == Py_None)
        return !threading;
    locks = PyObject_GetAttrString(threading, "_shutdown_locks"); /* before 3.13, where the interpreter has them */
    PyErr_Clear();
    functions = PyObject_GetAttrString(threading, "_threading_atexits");
    thread = PyObject_GetAttrString(threading, "_main_thread");
    count = PyObject_CallFunction(py->count_threads, NULL);
    if (functions && thread && count)
        is_alone = (!locks || PySet_Size(locks) <= 1) && PyList_Size(functions) == 0 && PyLong_AsLong(count) == 0 &&
                   end_main_thread(thread);
    PyErr_Clear();
    Py_DecRef(locks);
    Py_DecRef(functions);
    Py_DecRef(thread);
    Py_DecRef(count);
    return is_alone;
}

static void forget_signal_handlers(const struct pyobjects *py)
{
    for (int sig = 1; sig < NSIG; sig++) {
        PyObject *handler = PyObject_CallFunction(py->get_signal, "i", sig);

        if (handler && PyCallable_Check(handler))
            Py_DecRef(PyObject_CallFunction(py->set_signal, "ii", sig, 0)); /* 0: SIG_DFL */
        Py_DecRef(handler);
        PyErr_Clear();
    }
}

static void collect(const struct pyobjects *py)
{
    Py_DecRef(PyObject_CallFunction(py->collect, NULL));
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

static const char *const gone_at_end[] = {
    "path", "argv", "ps1", "ps2", "last_type", "last_value", "last_traceback", "last_exc", "path_hooks",
    "path_importer_cache", "meta_path", "__interactivehook__",
};

static void empty_sys(void)
{
    static PyMethodDef import = { "__import__", refuse_import, METH_VARARGS, NULL };
    static const char *const streams[][2] = {
        { "stdin", "__stdin__" }, { "stdout", "__stdout__" }, { "stderr", "__stderr__" },
    };
    PyObject *builtins = PyEval_GetBuiltins(), *refusal = PyCFunction_NewEx(&import, NULL, NULL);

    PyDict_SetItemString(builtins, "_", Py_None);
    if (refusal)
        PyDict_SetItemString(builtins, "__import__", refusal);
    Py_DecRef(refusal);
    for (size_t i = 0; i < ARRAY_SIZE(gone_at_end); i++)
        if (PySys_GetObject(gone_at_end[i]))
            PySys_SetObject(gone_at_end[i], Py_None);
    for (size_t i = 0; i < ARRAY_SIZE(streams); i++) {
        PyObject *original = PySys_GetObject(streams[i][1]);

        PySys_SetObject(streams[i][0], original ? original : Py_None);
    }
    PyErr_Clear();
}

/* To what they were before the io module and site.py added theirs, and programs what they like. */
static void restore_builtins(const struct pyobjects *py)
{
    PyObject *builtins = PyEval_GetBuiltins(), *changed = PyList_New(0), *name, *value;

    for (intptr_t pos = 0; PyDict_Next(builtins, &pos, &name, &value);)
        if (PyDict_GetItem(py->builtins, name) != value)
            PyList_Append(changed, name);
    for (intptr_t i = 0; i < PyList_Size(changed); i++) {
        const char *text = PyUnicode_AsUTF8(name = PyList_GetItem(changed, i));

        value = PyDict_GetItem(py->builtins, name);
        if (!text)
            PyErr_Clear();
        else if (!value)
            PyDict_DelItem(builtins, name);
        else if (strcmp(text, "__import__") != 0) /* as empty_sys() made it */
            PyDict_SetItem(builtins, name, value);
    }
    Py_DecRef(changed);
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
    const char *path =
        file && PyObject_IsInstance(file, (PyObject *)PyUnicode_Type) > 0 ? PyUnicode_AsUTF8(file) : NULL;
    bool is_so = path && strncmp(path, prefix, strlen(prefix)) == 0;

    Py_DecRef(file);
    PyErr_Clear();
    return is_so;
}

/* Names of the modules that the program brought in, and __main__ before them. If it has taken away some of those that
 * were there, then the last one of them is where its own begin. */
static PyObject *list_modules(const struct pyobjects *py, const struct census *census)
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
        if (n >= skip && !is_of_image(module, py->prefix))
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

/* Empties the globals whose mark is still there: whatever outside refers to one of the functions that belong to them
 * would be gone by now, if the interpreter were taken apart. */
static void empty_marked(const struct pyobjects *py, PyObject *mark)
{
    PyObject *holders = PyObject_CallFunction(py->referrers, "O", mark);

    for (intptr_t i = 0; holders && i < PyList_Size(holders); i++) {
        PyObject *holder = PyList_GetItem(holders, i);

        if (PyObject_IsInstance(holder, (PyObject *)PyDict_Type) > 0)
            empty_dict(holder);
    }
    Py_DecRef(holders);
}

/* Takes away @names from sys.modules, and empties those that are not gone with that. */
static void forget_modules(const struct pyobjects *py, PyObject *names, bool is_end)
{
    PyObject *refs = PyList_New(0), *marks = PyList_New(0), *object;

    for (intptr_t i = 0; i < PyList_Size(names); i++)
        take_away(PyList_GetItem(names, i), refs, marks);
    if (is_end)
        restore_builtins(py);
    collect(py);
    for (intptr_t i = PyList_Size(refs); i-- > 0;) { /* those that something refers to */
        object = PyObject_CallFunction(PyList_GetItem(refs, i), NULL);
        if (object && object != Py_None)
            empty_dict(PyModule_GetDict(object));
        Py_DecRef(object);
    }
    for (intptr_t i = PyList_Size(marks); i-- > 0;) {
        object = PyObject_CallFunction(PyList_GetItem(marks, i), NULL);
        if (object && object != Py_None)
            empty_marked(py, object);
        Py_DecRef(object);
    }
    Py_DecRef(refs);
    Py_DecRef(marks);
    PyErr_Clear();
}

/* The one thing in Python's own modules that does something when it is deleted, from 3.12 on: it waits for a process
 * that removes what the program has left, and tells of it. */
static void end_resource_tracker(void)
{
    PyObject *module = PyDict_GetItemString(PyImport_GetModuleDict(), "multiprocessing.resource_tracker");
    PyObject *tracker = module && module != Py_None ? PyObject_GetAttrString(module, "_resource_tracker") : NULL;
    PyObject *delete = tracker ? PyObject_GetAttrString(tracker, "__del__") : NULL;

    if (delete) {
        PyObject *done = PyObject_CallFunction(delete, NULL);

        if (!done)
            PyErr_WriteUnraisable(delete);
        Py_DecRef(done);
    }
    PyErr_Clear();
    Py_DecRef(delete);
    Py_DecRef(tracker);
}

/* False when output was lost. */
static bool end_interpreter(const struct pyobjects *py, const struct census *census)
{
    PyObject *names;
    bool is_fine;

    if (!end_alone(py))
        wait_for_threads();
    Py_DecRef(PyObject_CallFunction(py->run_atexit, NULL));
    PyErr_Clear();
    PySys_SetObject("is_finalizing", py->yes);
    is_fine = flush_streams();
    forget_signal_handlers(py);
    PyGC_Collect();
    names = list_modules(py, census);
    empty_sys();
    PyList_SetSlice(py->callbacks, 0, PyList_Size(py->callbacks), NULL);
    forget_modules(py, names, true);
    end_resource_tracker();
    flush_quietly();
    return is_fine;
}

_Noreturn void hutch_pyrun(const struct pyobjects *py, const struct program *program)
{
    struct census census = count_modules();
    PyObject *module = PyDict_GetItemString(PyImport_GetModuleDict(), "__main__");
    PyObject *globals = PyModule_GetDict(module), *value;
    bool is_interrupted, is_exit = false, is_script = program->fd >= 0;
    int status = 0;

    Py_IncRef(module);
    Py_IncRef(globals);
    value = run(globals, program);
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
    if (is_script && !is_exit) { /* its atexit functions find no __file__, unless it called sys.exit() */
        if (PyDict_DelItemString(globals, "__file__") < 0)
            PyErr_Clear();
        if (PyDict_DelItemString(globals, "__cached__") < 0)
            PyErr_Clear();
    }
    Py_DecRef(globals);

    if (!end_interpreter(py, &census))
        status = 120;
    fflush(NULL);
    if (is_interrupted) {
        signal(SIGINT, SIG_DFL);
        kill(getpid(), SIGINT);
        status = 128 + SIGINT;
    }
    _exit(status);
}

_Noreturn void hutch_pyrun_finish(const struct pyobjects *py, int status)
{
    Py_DecRef(PyObject_CallFunction(py->run_atexit, NULL));
    flush_quietly();
    fflush(NULL);
    _exit(status);
}

int hutch_pyrun_rehearse(const struct pyobjects *py, const struct program *program)
{
    PyObject *modules = PyImport_GetModuleDict(), *module = PyModule_New("rehearsal"), *names = PyList_New(0), *name,
             *value;
    struct census census = count_modules();

    name = PyUnicode_FromString("rehearsal");
    if (!module || !names || !name || PyDict_SetItem(modules, name, module) < 0 || PyList_Append(names, name) < 0)
        return -1;
    PyDict_SetItemString(PyModule_GetDict(module), "__builtins__", PyEval_GetBuiltins());
    value = run(PyModule_GetDict(module), program);
    Py_DecRef(module);
    Py_DecRef(value);
    if (!value)
        return -1;
    flush_streams();
    PyGC_Collect();
    Py_DecRef(list_modules(py, &census));
    for (size_t i = 0; i < ARRAY_SIZE(gone_at_end); i++) {
        PyObject *object = PySys_GetObject(gone_at_end[i]);

        Py_IncRef(object); /* for good: taking it apart at the end would be in vain */
        if (object)
            PySys_SetObject(gone_at_end[i], object);
    }
    forget_modules(py, names, false);
    PyDict_DelItemString(modules, "rehearsal");
    Py_DecRef(names);
    Py_DecRef(name);
    return 0;
}
