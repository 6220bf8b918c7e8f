#include "sandbox/pause.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <dirent.h>
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

/* By opendir(3), as init's own filter refuses what fdopendir(3) asks. */
static bool has_running_thread(const char *pid)
{
    char path[64];
    bool is_running = false;
    DIR *tasks;

    snprintf(path, sizeof(path), "/proc/%.16s/task", pid);
    tasks = opendir(path);
    if (!tasks)
        return errno != ENOENT; /* what cannot be looked at may run */
    for (struct dirent *entry; !is_running && (entry = readdir(tasks));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%.16s/stat", entry->d_name);
        is_running = !is_still(read_state(dirfd(tasks), path));
    }
    closedir(tasks);
    return is_running;
}

/* The next process that /proc shows, but for init; NULL: no more. */
static const char *next_process(DIR *proc)
{
    for (struct dirent *entry; (entry = readdir(proc));)
        if (atoi(entry->d_name) > 1)
            return entry->d_name;
    return NULL;
}

static bool does_any_run(DIR *proc)
{
    rewinddir(proc);
    for (const char *pid; (pid = next_process(proc));)
        if (has_running_thread(pid))
            return true;
    return false;
}

static void note_stopped(DIR *proc)
{
    char path[64];

    state.n_before = 0;
    for (const char *pid; state.n_before < PAUSE_MAX_BEFORE && (pid = next_process(proc));) {
        snprintf(path, sizeof(path), "%.16s/stat", pid);
        if (read_state(dirfd(proc), path) == 'T')
            state.before[state.n_before++] = atoi(pid);
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
    DIR *proc = opendir("/proc");
    bool does_run = true;

    if (proc && !state.is_on)
        note_stopped(proc);
    state.is_on = true;
    kill(-1, SIGSTOP);
    for (int turn = 0; proc && turn < TURNS && (does_run = does_any_run(proc)); turn++) {
        const struct timespec wait = { .tv_nsec = 1000000 };

        nanosleep(&wait, NULL);
        kill(-1, SIGSTOP);
    }
    if (proc)
        closedir(proc);
    plan_check(true);
    return !does_run;
}

bool hutch_pause_is_on(void)
{
    return state.is_on;
}

bool hutch_pause_check(void)
{
    DIR *proc = opendir("/proc");
    bool does_run = !proc || does_any_run(proc);

    if (does_run)
        kill(-1, SIGSTOP);
    if (proc)
        closedir(proc);
    plan_check(does_run);
    return !does_run;
}

void hutch_pause_end(void)
{
    DIR *proc = opendir("/proc");

    state.is_on = false;
    if (!proc || state.n_before == 0)
        kill(-1, SIGCONT); /* without a list all go on: none is left behind */
    else
        for (const char *pid; (pid = next_process(proc));)
            if (!was_stopped_before(atoi(pid)))
                kill(atoi(pid), SIGCONT);
    if (proc)
        closedir(proc);
}
