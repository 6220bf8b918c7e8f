#include "sandbox/kill_all_but.h"

#include "sandbox/fd.h"
#include "sandbox/procs.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TURNS 200 /* of a millisecond */

/* Neither dead nor waiting to be reaped. */
static bool is_alive(int proc_fd, const char *pid)
{
    char path[32], buf[512];
    const char *rest;
    auto_fd fd = -1;
    long threads;
    char state;
    ssize_t n;

    snprintf(path, sizeof(path), "%.16s/stat", pid);
    fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : hutch_fd_read_full(fd, buf, sizeof(buf) - 1);
    if (n <= 0)
        return false;
    buf[n] = '\0';
    rest = strrchr(buf, ')'); /* the name before it can hold anything */
    /* Fields 3 and 20 of proc(5): one whose first thread has ended looks dead, and the others run. */
    if (!rest || sscanf(rest + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld", &state,
                        &threads) != 2)
        return false;
    return (state != 'Z' && state != 'X') || threads > 1;
}

static bool is_spared(pid_t pid, const pid_t *spared, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (spared[i] == pid)
            return true;
    return false;
}

bool hutch_kill_all_but(const pid_t *spared, size_t n)
{
    bool is_done = false;
    struct procs procs;

    hutch_procs_open(&procs);
    for (int turn = 0; procs.fd >= 0 && turn < TURNS && !is_done; turn++) {
        const struct timespec pause = { .tv_nsec = 1000000 };
        pid_t pid;

        if (turn > 0)
            nanosleep(&pause, NULL);
        is_done = true;
        hutch_procs_rewind(&procs);
        for (const char *name; (name = hutch_procs_next(&procs, &pid));) {
            if (is_spared(pid, spared, n) || !is_alive(procs.fd, name))
                continue;
            kill(pid, SIGKILL);
            is_done = false;
        }
    }
    hutch_procs_close(&procs);
    return is_done;
}
