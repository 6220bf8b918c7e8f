/* watched.h - children of init, besides its worker, whose end is told: the processes of a session. */
#ifndef HUTCH_WATCHED_H
#define HUTCH_WATCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define WATCHED_MAX 64

struct watched {
    pid_t pids[WATCHED_MAX]; /* not reaped yet, so that no other process can have these numbers */
    size_t n;
};

/* Whether @pid is a child of the calling process that has not ended. */
bool hutch_watched_is_living_child(pid_t pid);

/* False: it is no living child, is watched already, or there are too many. */
bool hutch_watched_add(struct watched *watched, pid_t pid);
/* It was reaped. False: it was not watched. */
bool hutch_watched_take(struct watched *watched, pid_t pid);
/* To its process group, which it leads; nothing where it is not watched. */
void hutch_watched_signal(const struct watched *watched, pid_t pid, int sig);

#endif
