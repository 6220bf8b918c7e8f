#include "sandbox/pause.h"

#include "sandbox/clock.h"
#include "sandbox/dents.h"
#include "sandbox/fd.h"
#include "sandbox/procs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

#define TURNS 50 /* of a millisecond */
#define CHECK_MIN_MS 5 /* from one look at what is paused to the next: at first, and when something ran … */
#define CHECK_MAX_MS 500 /* … and when nothing has for some time */

static struct {
    bool is_on;
    double check_at, wait_ms; /* check_at: hutch_clock_ms() */
    pid_t before[PAUSE_MAX_BEFORE]; /* were stopped already */
    size_t n_before;
} state;

/* Field 3 of proc(5), of a process or thread; 0: it is gone. */
static char read_state(int dirfd, const char *path)
{
    auto_fd fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
    char buf[512], found;
    const char *rest;
    ssize_t n = fd < 0 ? -1 : hutch_fd_read_full(fd, buf, sizeof(buf) - 1);

    if (n <= 0)
        return 0;
    buf[n] = '\0';
    rest = strrchr(buf, ')'); /* the name before it can hold anything */
    return rest && sscanf(rest + 1, " %c", &found) == 1 ? found : 0;
}

/* A thread that the kernel holds (D) stops before it is back in its own code. */
static bool is_still(char thread_state)
{
    return thread_state == 0 || strchr("TtDZX", thread_state);
}

static bool has_running_thread(const struct procs *procs, const char *name)
{
    struct dents tasks;
    auto_fd fd = -1;
    char path[64];

    snprintf(path, sizeof(path), "%.16s/task", name);
    fd = openat(procs->fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno != ENOENT; /* what cannot be looked at may run */
    hutch_dents_begin(&tasks, fd);
    for (const char *thread; (thread = hutch_dents_next(&tasks));) {
        snprintf(path, sizeof(path), "%.16s/stat", thread);
        if (!is_still(read_state(fd, path)))
            return true;
    }
    return false;
}

static bool does_any_run(struct procs *procs)
{
    pid_t pid;

    if (procs->fd < 0)
        return true; /* for all that is known */
    hutch_procs_rewind(procs);
    for (const char *name; (name = hutch_procs_next(procs, &pid));)
        if (has_running_thread(procs, name))
            return true;
    return false;
}

static void note_stopped(struct procs *procs)
{
    char path[64];
    pid_t pid;

    state.n_before = 0;
    for (const char *name; state.n_before < PAUSE_MAX_BEFORE && (name = hutch_procs_next(procs, &pid));) {
        snprintf(path, sizeof(path), "%.16s/stat", name);
        if (read_state(procs->fd, path) == 'T')
            state.before[state.n_before++] = pid;
    }
}

static bool was_stopped_before(pid_t pid)
{
    for (size_t i = 0; i < state.n_before; i++)
        if (state.before[i] == pid)
            return true;
    return false;
}

static void plan_check(bool did_run)
{
    state.wait_ms = did_run || state.wait_ms < CHECK_MIN_MS ? CHECK_MIN_MS : state.wait_ms * 2;
    state.wait_ms = state.wait_ms < CHECK_MAX_MS ? state.wait_ms : CHECK_MAX_MS;
    state.check_at = hutch_clock_ms() + state.wait_ms;
}

int hutch_pause_wait_ms(void)
{
    double left = state.check_at - hutch_clock_ms();

    return left > 0 ? (int)left + 1 : 0;
}

bool hutch_pause_begin(void)
{
    struct procs procs;
    bool does_run = true;

    hutch_procs_open(&procs);
    if (!state.is_on)
        note_stopped(&procs);
    state.is_on = true;
    kill(-1, SIGSTOP);
    for (int turn = 0; procs.fd >= 0 && turn < TURNS && (does_run = does_any_run(&procs)); turn++) {
        const struct timespec wait = { .tv_nsec = 1000000 };

        nanosleep(&wait, NULL);
        kill(-1, SIGSTOP);
    }
    hutch_procs_close(&procs);
    plan_check(true);
    return !does_run;
}

bool hutch_pause_is_on(void)
{
    return state.is_on;
}

bool hutch_pause_check(void)
{
    struct procs procs;
    bool does_run;

    hutch_procs_open(&procs);
    does_run = does_any_run(&procs);
    if (does_run)
        kill(-1, SIGSTOP);
    hutch_procs_close(&procs);
    plan_check(does_run);
    return !does_run;
}

void hutch_pause_end(void)
{
    struct procs procs;
    pid_t pid;

    hutch_procs_open(&procs);
    state.is_on = false;
    if (procs.fd < 0 || state.n_before == 0)
        kill(-1, SIGCONT); /* without a list all go on: none is left behind */
    else
        while (hutch_procs_next(&procs, &pid))
            if (!was_stopped_before(pid))
                kill(pid, SIGCONT);
    hutch_procs_close(&procs);
}
