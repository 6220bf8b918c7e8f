#include "sandbox/watched.h"

#include <signal.h>
#include <sys/wait.h>

bool hutch_watched_is_living_child(pid_t pid)
{
    siginfo_t info = { 0 };

    return pid > 1 && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

static size_t find(const struct watched *watched, pid_t pid)
{
    size_t i = 0;

    while (i < watched->n && watched->pids[i] != pid)
        i++;
    return i;
}

bool hutch_watched_add(struct watched *watched, pid_t pid)
{
    if (watched->n == WATCHED_MAX || find(watched, pid) < watched->n || !hutch_watched_is_living_child(pid))
        return false;
    watched->pids[watched->n++] = pid;
    return true;
}

bool hutch_watched_take(struct watched *watched, pid_t pid)
{
    size_t i = find(watched, pid);

    if (i == watched->n)
        return false;
    watched->pids[i] = watched->pids[--watched->n];
    return true;
}

void hutch_watched_signal(const struct watched *watched, pid_t pid, int sig)
{
    if (pid <= 1 || sig <= 0 || sig >= NSIG || find(watched, pid) == watched->n)
        return;
    if (kill(-pid, sig) < 0 || sig == SIGKILL) /* before it has a group of its own, it has nothing else either */
        kill(pid, sig);
}
