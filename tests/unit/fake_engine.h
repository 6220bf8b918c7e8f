/* fake_engine.h - stands in for an engine where what is tested is what uses one: runs Python programs at once, without
 * any sandbox, or answers what a test wants it to. */
#ifndef HUTCH_TEST_FAKE_ENGINE_H
#define HUTCH_TEST_FAKE_ENGINE_H

#include "runtime/hutch.h"
#include "runtime/run/result.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAKE_QUEUE 64

struct fake_run {
    uint64_t id;
    struct hutch_result result;
    void (*on_result)(void *user, uint64_t id, const struct hutch_result *result);
    void *user;
    char *out, *err;
};

struct hutch_engine {
    int fd;                       /* eventfd: readable while results wait */
    unsigned room;                /* of its queue */
    struct fake_run runs[FAKE_QUEUE];
    unsigned n_runs;
    uint64_t n_submitted;
    bool is_broken;               /* dispatch says so */
    bool gives_nothing_back;      /* results wait until they are cancelled */
    unsigned most_at_once;
    /* A test's own answer instead of a run; false: run it. @n counts from 0. */
    bool (*answer)(uint64_t n, const struct hutch_request *request, struct hutch_result *result);
};

static char *fake_slurp(int fd, size_t *ret_len)
{
    struct stat st;
    char *data;

    if (fstat(fd, &st) < 0 || !(data = calloc(1, (size_t)st.st_size + 1)) ||
        pread(fd, data, (size_t)st.st_size, 0) != st.st_size)
        abort();
    *ret_len = (size_t)st.st_size;
    return data;
}

/* The result that a run of the program gives, as far as a verdict needs it. */
static void fake_execute(const struct hutch_request *request, struct fake_run *run)
{
    int in = memfd_create("in", MFD_CLOEXEC), out = memfd_create("out", MFD_CLOEXEC),
        err = memfd_create("err", MFD_CLOEXEC);
    struct hutch_result *r = &run->result;
    struct rusage usage;
    char *argv[80] = { (char *)"python3", (char *)"-c", (char *)request->code };
    int status;
    pid_t pid;

    for (int i = 0; request->args && request->args[i] && i < 70; i++)
        argv[3 + i] = (char *)request->args[i];
    if (request->input_len && write(in, request->input, request->input_len) != (ssize_t)request->input_len)
        abort();
    lseek(in, 0, SEEK_SET);
    pid = fork();
    if (pid == 0) {
        struct rlimit cpu = { (request->cpu_ms + 999) / 1000, (request->cpu_ms + 999) / 1000 + 1 };

        dup2(in, 0);
        dup2(out, 1);
        dup2(err, 2);
        setsid();
        if (request->cpu_ms)
            setrlimit(RLIMIT_CPU, &cpu);
        execvp("python3", argv);
        _exit(127);
    }
    if (pid < 0 || wait4(pid, &status, 0, &usage) != pid)
        abort();
    r->out = run->out = fake_slurp(out, &r->out_len);
    r->err = run->err = fake_slurp(err, &r->err_len);
    r->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    r->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    r->verdict = r->signal == SIGXCPU ? HUTCH_CPU_TIME : r->exit_code == 0 ? HUTCH_OK : HUTCH_ERROR;
    r->cpu_user_ms = (uint64_t)usage.ru_utime.tv_sec * 1000 + (uint64_t)usage.ru_utime.tv_usec / 1000;
    r->cpu_system_ms = 0;
    if (strstr(r->err, "SyntaxError")) {
        r->error_name = "SyntaxError";
        r->error_value = "invalid syntax";
    }
    close(in);
    close(out);
    close(err);
}

static int fake_submit(struct hutch_engine *engine, const struct hutch_request *request, uint64_t *ret_id,
                       struct hutch_error *err)
{
    static struct run_result details;
    static struct hutch_run_details internal = { &details };
    struct fake_run *run = &engine->runs[engine->n_runs];

    if (engine->n_runs >= engine->room) {
        err->code = EAGAIN;
        snprintf(err->message, sizeof(err->message), "the queue is full");
        return -1;
    }
    hutch_result_init(&details);
    *run = (struct fake_run){ .id = engine->n_submitted + 1, .on_result = request->on_result, .user = request->user };
    run->result = (struct hutch_result){ .size = sizeof(run->result),
                                         .message = "",
                                         .out = "",
                                         .err = "",
                                         .run_ms = 1,
                                         .memory_peak_bytes = HUTCH_UNKNOWN,
                                         .pids_peak = HUTCH_UNKNOWN,
                                         .internal = &internal };
    if (!engine->answer || !engine->answer(engine->n_submitted, request, &run->result))
        fake_execute(request, run);
    engine->n_submitted++;
    engine->n_runs++;
    if (engine->n_runs > engine->most_at_once)
        engine->most_at_once = engine->n_runs;
    *ret_id = run->id;
    if ((!engine->gives_nothing_back || engine->is_broken) && eventfd_write(engine->fd, 1) < 0)
        abort();
    return 0;
}

static int fake_cancel(struct hutch_engine *engine, uint64_t id)
{
    for (unsigned i = 0; i < engine->n_runs; i++)
        if (engine->runs[i].id == id) {
            engine->runs[i].result.verdict = HUTCH_KILLED;
            engine->gives_nothing_back = false;
            return eventfd_write(engine->fd, 1) < 0 ? -1 : 1;
        }
    return 0;
}

static int fake_fd(const struct hutch_engine *engine)
{
    return engine->fd;
}

/* The latest first: nobody may count on an order. */
static int fake_dispatch(struct hutch_engine *engine, struct hutch_error *err)
{
    eventfd_t ignored;
    unsigned n = engine->n_runs;

    if (eventfd_read(engine->fd, &ignored) < 0 && errno != EAGAIN)
        abort();
    for (; n > 0 && !engine->gives_nothing_back; n--) {
        struct fake_run run = engine->runs[engine->n_runs - 1];

        engine->n_runs--;
        run.on_result(run.user, run.id, &run.result);
        free(run.out);
        free(run.err);
    }
    if (engine->is_broken) {
        snprintf(err->message, sizeof(err->message), "the first zygote does not start");
        return -1;
    }
    return 0;
}

static void fake_init(struct hutch_engine *engine)
{
    *engine = (struct hutch_engine){ .fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), .room = FAKE_QUEUE };
}

#endif
