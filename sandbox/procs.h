/* procs.h - the processes of a sandbox, as its init sees them: in the sandbox's own procfs or, where the kernel gives
 * none, in the one that is around it. That one shows what runs beside the sandbox, too, and under other numbers; only
 * processes of init's own pid namespace are told here. Allocates nothing. */
#ifndef HUTCH_PROCS_H
#define HUTCH_PROCS_H

#include "sandbox/dents.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <sys/types.h>

#define PROCS_NAME 16

struct procs {
    int fd; /* owned: of a procfs, in which names of processes are looked up; -1: it cannot be read */
    struct dents dents;
};

/* Before all others, once, in a sandbox that has no procfs. @fd: of the one around it, the caller's. The caller is
 * process 1. Fails where not all processes could be told from others', as limits would count too little then: the
 * caller is not shown in it, or pidfd_send_signal(2) is forbidden. */
int hutch_procs_use_outer(int fd, struct hutch_err *err);

/* The same for a procfs that hides processes, hidepid in proc(5): while /proc/self/mountinfo can be read. */
int hutch_procs_check_mount(int fd, struct hutch_err *err);

void hutch_procs_open(struct procs *procs);
void hutch_procs_close(struct procs *procs);

/* Back to the first. */
void hutch_procs_rewind(struct procs *procs);

/* The name of the next process's directory below procs->fd, which stays until the next call; NULL: there is no more.
 * Init itself is left out. *@ret_pid: its number inside. */
const char *hutch_procs_next(struct procs *procs, pid_t *ret_pid);

/* The name of the directory of the process that is @pid inside. False: there is none. Ends a walk by
 * hutch_procs_next(). */
bool hutch_procs_find(struct procs *procs, pid_t pid, char ret_name[PROCS_NAME]);

/* What the process or thread whose directory is @path ("N", "N/task/M") is called inside; 0: it is gone. */
pid_t hutch_procs_number(const struct procs *procs, const char *path);

#endif
