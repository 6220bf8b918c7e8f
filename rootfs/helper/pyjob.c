#include "rootfs/helper/pyjob.h"

#include "rootfs/helper/pyobjects.h"
#include "rootfs/helper/spawner.h"
#include "sandbox/fd.h"
#include "sandbox/fdpass.h"
#include "sandbox/zygote_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define JOB_MAX (64u << 20) /* more than the engine ever sends */

struct field {
    const char *data;
    size_t len;
};

static char usual_job[64u << 10]; /* what a job takes that is no larger than most */
static struct field job[JOB_FIELDS];
static int spawner_fd = -1; /* came with the job, -1: without */

/* Nothing of the program has run, so the message goes to the run's own standard error. */
static _Noreturn void end_with_message(int errnum, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static _Noreturn void end_with_message(int errnum, const char *fmt, ...)
{
    va_list args;

    dprintf(STDERR_FILENO, "hutch: ");
    va_start(args, fmt);
    vdprintf(STDERR_FILENO, fmt, args);
    va_end(args);
    if (errnum)
        dprintf(STDERR_FILENO, ": %s", strerror(errnum));
    dprintf(STDERR_FILENO, "\n");
    _exit(125);
}

static _Noreturn void end_with_exception(const char *doing)
{
    if (PyErr_Occurred())
        PyErr_Print();
    end_with_message(0, "%s", doing);
}

static bool read_all(void *to, size_t len)
{
    for (size_t have = 0; have < len;) {
        ssize_t n = TEMP_FAILURE_RETRY(read(ZYGOTE_SOCKET_FD, (char *)to + have, len - have));

        if (n <= 0)
            return false;
        have += (size_t)n;
    }
    return true;
}

static bool split_fields(const char *body, size_t len)
{
    for (int i = 0; i < JOB_FIELDS; i++) {
        uint32_t n;

        if (len < sizeof(n))
            return false;
        memcpy(&n, body, sizeof(n));
        body += sizeof(n);
        len -= sizeof(n);
        if (n > len)
            return false;
        job[i] = (struct field){ body, n };
        body += n;
        len -= n;
    }
    return len == 0;
}

/* A descriptor comes with the first byte, and only recvmsg(2) takes it. */
static bool read_header(struct worker_job *header)
{
    size_t n_fds;
    ssize_t n = hutch_fdpass_receive(ZYGOTE_SOCKET_FD, header, sizeof(*header), &spawner_fd, 1, &n_fds, 0);

    if (n == 0)
        return false;
    if (n < 0) /* a filter of the operator's may forbid it */
        n = 0;
    return read_all((char *)header + n, sizeof(*header) - (size_t)n);
}

bool hutch_pyjob_receive(void)
{
    struct worker_job header;
    char *body = usual_job;

    if (!read_header(&header))
        return false;
    if (header.magic != WORKER_JOB_MAGIC || header.len > JOB_MAX)
        end_with_message(EBADMSG, "read the job");
    if (header.len > sizeof(usual_job))
        body = malloc(header.len); /* never freed: the process has nothing else to do */
    if (!body || !read_all(body, header.len) || !split_fields(body, header.len))
        end_with_message(body ? EBADMSG : ENOMEM, "read the job");
    return true;
}

static bool is_field(enum worker_job_field which, const char *text)
{
    return job[which].len == strlen(text) && memcmp(job[which].data, text, job[which].len) == 0;
}

/* As a string: what a path is. */
static void copy_field(enum worker_job_field which, char *to, size_t size)
{
    if (job[which].len >= size)
        end_with_message(ENAMETOOLONG, "read the job");
    memcpy(to, job[which].data, job[which].len);
    to[job[which].len] = '\0';
}

static void lower_limits(void)
{
    const char *at = job[JOB_RLIMITS].data, *end = at + job[JOB_RLIMITS].len;
    char *next;

    while (at < end) {
        long resource = strtol(at, &next, 10);
        struct rlimit limit;

        limit.rlim_cur = strtoull(next, &next, 10);
        limit.rlim_max = strtoull(next, &next, 10);
        if (next >= end || *next != '\n')
            end_with_message(EBADMSG, "read the limits");
        if (setrlimit((int)resource, &limit) < 0)
            end_with_message(errno, "set resource limit %ld", resource);
        at = next + 1;
    }
}

/* --- the program's file --- */

static int fill_program_file(int fd, const char *name)
{
    const char *at = job[JOB_CODE].data, *end = at + job[JOB_CODE].len;

    while (at < end) {
        ssize_t n = TEMP_FAILURE_RETRY(write(fd, at, (size_t)(end - at)));

        if (n <= 0)
            end_with_message(n < 0 ? errno : ENOSPC, "write the program '%s'", name);
        at += n;
    }
    if (lseek(fd, 0, SEEK_SET) < 0)
        end_with_message(errno, "write the program '%s'", name);
    return fd;
}

static int make_file(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0444);

    if (fd < 0)
        end_with_message(errno, "write the program '%s'", name);
    return fill_program_file(fd, name);
}

static int make_nameless_file(const char *name)
{
    int fd = open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

    if (fd < 0) /* which policies may forbid */
        fd = memfd_create("program", MFD_CLOEXEC);
    if (fd < 0)
        end_with_message(errno, "write the program '%s'", name);
    return fill_program_file(fd, name);
}

/* --- the interpreter --- */

static PyObject *decoded(const char *data, size_t len)
{
    PyObject *text = PyUnicode_DecodeFSDefaultAndSize(data, (intptr_t)len);

    if (!text)
        end_with_exception("read the job");
    return text;
}

static void replace_list(const char *name, PyObject *items)
{
    PyObject *list = PySys_GetObject(name);

    if (!list || PyList_SetSlice(list, 0, PyList_Size(list), items) < 0)
        end_with_exception("set the program's arguments");
    Py_DecRef(items);
}

/* sys.argv is @first and the arguments; sys.orig_argv the interpreter, @option if there is one, @program, and the
 * arguments. */
static void set_arguments(const struct pyobjects *py, PyObject *first, PyObject *option, PyObject *program)
{
    const char *at = job[JOB_ARGS].data, *end = at + job[JOB_ARGS].len;
    PyObject *argv = PyList_New(0), *original = PyList_New(0);

    if (!argv || !original)
        end_with_exception("set the program's arguments");
    PyList_Append(argv, first);
    PyList_Append(original, py->python);
    if (option)
        PyList_Append(original, option);
    PyList_Append(original, program);
    while (at < end) {
        const char *nul = memchr(at, '\0', (size_t)(end - at));
        PyObject *argument;

        if (!nul) {
            end_with_message(EBADMSG, "read the arguments");
            break; /* not reached, which the checker does not know */
        }
        argument = decoded(at, (size_t)(nul - at));
        PyList_Append(argv, argument);
        PyList_Append(original, argument);
        Py_DecRef(argument);
        at = nul + 1;
    }
    replace_list("argv", argv);
    if (py->python != Py_None)
        replace_list("orig_argv", original);
    else
        Py_DecRef(original);
}

static void set_script_path(const struct pyobjects *py, const char *directory, size_t len)
{
    PyObject *path = PySys_GetObject("path"), *first;

    if (py->has_script_path != Py_True || !path)
        return;
    first = decoded(directory, len);
    if (PyList_Insert(path, 0, first) < 0)
        end_with_exception("set the program's path");
    Py_DecRef(first);
}

void hutch_pyjob_make_main(const struct pyobjects *py)
{
    PyObject *module = PyModule_New("__main__"), *annotations = PyObject_CallFunction((PyObject *)PyDict_Type, NULL),
             *names;
    PyObject *modules = PyImport_GetModuleDict();

    if (!module || !annotations)
        end_with_exception("make the module __main__");
    names = PyModule_GetDict(module);
    if (PyDict_SetItemString(names, "__loader__", py->builtin_loader) < 0 ||
        PyDict_SetItemString(names, "__annotations__", annotations) < 0 ||
        PyDict_SetItemString(names, "__builtins__", PyDict_GetItemString(modules, "builtins")) < 0 ||
        PyDict_SetItemString(modules, "__main__", module) < 0)
        end_with_exception("make the module __main__");
    Py_DecRef(annotations);
    Py_DecRef(module);
    /* Where an interpreter's start leaves it: in the second of the collector's generations. From that follows in which
     * order the collector finds, and deletes, what it holds in the end. */
    Py_DecRef(PyObject_CallFunction(py->collect, "i", 0));
    PyErr_Clear();
}

static PyObject *main_globals(void)
{
    return PyModule_GetDict(PyDict_GetItemString(PyImport_GetModuleDict(), "__main__"));
}

static void set_file(PyObject *name)
{
    if (PyDict_SetItemString(main_globals(), "__file__", name) < 0 ||
        PyDict_SetItemString(main_globals(), "__cached__", Py_None) < 0)
        end_with_exception("make the module __main__");
}

/* python3 NAME */
static void set_up_script(const struct pyobjects *py, const char *path)
{
    PyObject *name = decoded(path, strlen(path)), *cache = PySys_GetObject("path_importer_cache");
    PyObject *loader = PyObject_CallFunction(py->script_loader, "sO", "__main__", name);
    const char *slash = strrchr(path, '/');

    if (!loader || PyDict_SetItemString(main_globals(), "__loader__", loader) < 0)
        end_with_exception("make the module __main__");
    set_file(name);
    if (cache && PyDict_SetItem(cache, name, Py_None) < 0) /* it was asked whether it is an archive of modules */
        PyErr_Clear();
    set_script_path(py, path, slash ? (size_t)(slash - path) : 0);
    set_arguments(py, name, NULL, name);
    Py_DecRef(loader);
    Py_DecRef(name);
}

/* python3 -c TEXT */
static PyObject *set_up_text(const struct pyobjects *py)
{
    PyObject *text = PyUnicode_DecodeUTF8(job[JOB_CODE].data, (intptr_t)job[JOB_CODE].len, "surrogateescape");
    PyObject *option = PyUnicode_FromString("-c");

    if (!text || !option)
        end_with_exception("read the program");
    set_script_path(py, "", 0);
    set_arguments(py, option, option, text);
    Py_DecRef(option);
    return text;
}

/* python3 - */
static void set_up_input(const struct pyobjects *py)
{
    PyObject *dash = PyUnicode_FromString("-"), *name = PyUnicode_FromString("<stdin>");

    if (!dash || !name)
        end_with_exception("read the program");
    set_file(name);
    set_script_path(py, "", 0);
    set_arguments(py, dash, NULL, dash);
    Py_DecRef(dash);
    Py_DecRef(name);
}

/* --- its environment --- */

struct variable {
    const char *name;
    size_t name_len;
    const char *value; /* a string */
};

/* The one at @at, which is moved on. False when it is none. */
static bool next_variable(const char **at, const char *end, struct variable *ret)
{
    const char *nul = memchr(*at, '\0', (size_t)(end - *at));
    const char *equals = nul ? memchr(*at, '=', (size_t)(nul - *at)) : NULL;

    if (!equals || equals == *at)
        return false;
    *ret = (struct variable){ .name = *at, .name_len = (size_t)(equals - *at), .value = equals + 1 };
    *at = nul + 1;
    return true;
}

static bool is_named(const struct variable *v, const char *name)
{
    return v->name_len == strlen(name) && memcmp(v->name, name, v->name_len) == 0;
}

/* One directory, as os.path.abspath() leaves it. */
static bool is_plain_directory(const char *path)
{
    size_t len = strlen(path);

    return path[0] == '/' && path[len - 1] != '/' && !strchr(path, ':') && !strstr(path, "//") && !strstr(path, "/.");
}

/* Whether nothing reads it but the program: environment.py has the list. */
static bool is_only_kept(const struct variable *v)
{
    return !is_named(v, "TZ") && (v->name_len < 6 || memcmp(v->name, "PYTHON", 6) != 0);
}

static bool is_in_path(PyObject *directory)
{
    PyObject *path = PySys_GetObject("path");
    int is_there = path ? PySequence_Contains(path, directory) : -1;

    PyErr_Clear();
    return is_there != 0;
}

/* Whether all that follows the present variables can be added to them here. @ret_path: PYTHONPATH among it, or NULL. */
static bool is_simple_addition(const char *at, const char *end, PyObject **ret_path)
{
    struct variable v;

    *ret_path = NULL;
    while (at < end) {
        if (!next_variable(&at, end, &v))
            return false;
        if (is_only_kept(&v))
            continue;
        if (*ret_path || !is_named(&v, "PYTHONPATH") || getenv("PYTHONPATH") || !is_plain_directory(v.value))
            return false;
        *ret_path = decoded(v.value, strlen(v.value));
        if (is_in_path(*ret_path))
            return false;
    }
    return true;
}

static void add_variable(const struct pyobjects *py, const struct variable *v)
{
    PyObject *name = PyBytes_FromStringAndSize(v->name, (intptr_t)v->name_len);
    PyObject *value = PyBytes_FromStringAndSize(v->value, (intptr_t)strlen(v->value));

    if (!name || !value || PyDict_SetItem(py->variables, name, value) < 0)
        end_with_exception("set the environment");
    if (setenv(PyBytes_AsString(name), v->value, 1) < 0)
        end_with_message(errno, "set the environment");
    Py_DecRef(name);
    Py_DecRef(value);
}

/* What change() in environment.py comes to where there are some more variables, said in C: as a call of that function
 * costs a worker 30 pages, and one for PYTHONPATH 50. False when there is more to it. */
static bool add_variables(const struct pyobjects *py, const char *present, size_t present_len)
{
    const char *at = job[JOB_ENV].data, *end = at + job[JOB_ENV].len;
    PyObject *path = NULL;
    struct variable v;
    bool is_simple;

    if (job[JOB_ENV].len < present_len || memcmp(at, present, present_len) != 0)
        return false;
    at += present_len;
    is_simple = is_simple_addition(at, end, &path);
    while (is_simple && next_variable(&at, end, &v))
        add_variable(py, &v);
    if (is_simple && path && PyList_Insert(PySys_GetObject("path"), 0, path) < 0)
        end_with_exception("set the program's path");
    Py_DecRef(path);
    return is_simple;
}

static void set_environment(const struct pyobjects *py, PyObject *present)
{
    PyObject *wanted, *done;

    if (add_variables(py, PyBytes_AsString(present), (size_t)PyBytes_Size(present)))
        return;
    wanted = PyBytes_FromStringAndSize(job[JOB_ENV].data, (intptr_t)job[JOB_ENV].len);
    done = wanted ? PyObject_CallFunction(py->change_environment, "O", wanted) : NULL;
    if (!done)
        end_with_exception("set the environment");
    Py_DecRef(done);
    Py_DecRef(wanted);
}

static void set_up_surroundings(const struct pyobjects *py, PyObject *environment)
{
    static char cwd[PATH_MAX];

    lower_limits();
    copy_field(JOB_CWD, cwd, sizeof(cwd));
    if (chdir(cwd) < 0)
        end_with_message(errno, "enter '%s'", cwd);
    set_environment(py, environment);
}

void hutch_pyjob_set_up(const struct pyobjects *py, PyObject *environment, struct program *ret)
{
    static char name[PATH_MAX];

    set_up_surroundings(py, environment);
    *ret = (struct program){ .fd = -1 };
    if (is_field(JOB_MODE, "file")) {
        copy_field(JOB_NAME, name, sizeof(name));
        ret->fd = make_file(name);
        ret->name = name;
        set_up_script(py, name);
    } else if (is_field(JOB_MODE, "code")) {
        ret->text = set_up_text(py);
    } else if (is_field(JOB_MODE, "stdin")) {
        ret->name = "<stdin>";
        ret->fd = make_nameless_file(ret->name);
        set_up_input(py);
    } else {
        end_with_message(EBADMSG, "read the job");
    }
}

bool hutch_pyjob_has_cells(void)
{
    return is_field(JOB_MODE, "cells");
}

bool hutch_pyjob_has_call(void)
{
    return is_field(JOB_MODE, "function");
}

PyObject *hutch_pyjob_set_up_cells(const struct pyobjects *py, PyObject *environment)
{
    PyObject *start = PyBytes_FromStringAndSize(job[JOB_CODE].data, (intptr_t)job[JOB_CODE].len);

    set_up_surroundings(py, environment);
    if (!start)
        end_with_exception("read the job");
    return start;
}

/* --- processes beside the cells --- */

void hutch_pyjob_fork_spawner(void)
{
    if (spawner_fd < 0)
        return;
    hutch_spawner_fork(spawner_fd, job[JOB_ENV].data, job[JOB_ENV].len);
    hutch_fd_closep(&spawner_fd);
}

bool hutch_pyjob_has_processes(void)
{
    return is_field(JOB_MODE, "processes");
}

void hutch_pyjob_serve_processes(const struct pyobjects *py, PyObject *environment)
{
    static const char ready[] = "\x27\0\0\0{\"is\":\"ready\",\"n\":1,\"language_info\":{}}"; /* docs/cells.md */

    if (spawner_fd < 0)
        end_with_message(EBADMSG, "read the job");
    set_up_surroundings(py, environment);
    if (write(ZYGOTE_SOCKET_FD, ready, sizeof(ready) - 1) != (ssize_t)sizeof(ready) - 1)
        _exit(1);
    hutch_spawner_serve(spawner_fd, job[JOB_ENV].data, job[JOB_ENV].len);
}

void hutch_pyjob_rehearse(const struct pyobjects *py, PyObject *environment, struct program *ret)
{
    static const char name[] = "/rehearsal.py", code[] = "print(end='')\n";
    PyObject *path = PySys_GetObject("path");

    hutch_pyjob_make_main(py);
    job[JOB_CODE] = (struct field){ code, sizeof(code) - 1 };
    job[JOB_ARGS] = (struct field){ "", 1 };
    job[JOB_ENV] = (struct field){ PyBytes_AsString(environment), (size_t)PyBytes_Size(environment) };
    job[JOB_CWD] = (struct field){ "/", 1 };
    set_up_surroundings(py, environment);
    *ret = (struct program){ .fd = make_nameless_file(name), .name = name };
    set_up_script(py, name);

    PyDict_DelItemString(PySys_GetObject("path_importer_cache"), name);
    if (py->has_script_path == Py_True)
        PyList_SetSlice(path, 0, 1, NULL);
    PyErr_Clear();
}
