#include "sandbox/procs.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

static int outer_fd = -1;

void hutch_procs_use_outer(int fd)
{
    outer_fd = fd;
}

void hutch_procs_open(struct procs *procs)
{
    procs->fd = outer_fd < 0 ? open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                             : openat(outer_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    hutch_dents_begin(&procs->dents, procs->fd);
}

void hutch_procs_close(struct procs *procs)
{
    hutch_fd_closep(&procs->fd);
}

void hutch_procs_rewind(struct procs *procs)
{
    hutch_dents_begin(&procs->dents, procs->fd);
}

/* The last number of NSpid, proc(5), which is that in the innermost namespace: init's own, as there is none below. */
static pid_t number_inside(int fd, const char *path)
{
    static const char word[] = "\nNSpid:";
    char file[64], buf[4096];
    const char *at, *end;
    auto_fd status = -1;
    ssize_t n;

    snprintf(file, sizeof(file), "%.40s/status", path);
    status = openat(fd, file, O_RDONLY | O_CLOEXEC);
    n = status < 0 ? -1 : hutch_fd_read_full(status, buf, sizeof(buf) - 1);
    if (n <= 0)
        return 0;
    buf[n] = '\0';
    at = strstr(buf, word);
    end = at ? strchr(at + 1, '\n') : NULL;
    if (!end)
        return 0;
    while (end > at && end[-1] >= '0' && end[-1] <= '9')
        end--;
    return atoi(end);
}

/* The kernel sends signals into the sender's own pid namespace alone, and says EINVAL otherwise: pidfd_send_signal(2),
 * which takes a process's directory for a pidfd. Nothing that the code inside can say of itself is asked. */
static bool is_inside(int fd, const char *name)
{
    auto_fd dir = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return dir >= 0 && (syscall(SYS_pidfd_send_signal, dir, 0, NULL, 0) == 0 || errno == EPERM);
}

const char *hutch_procs_next(struct procs *procs, pid_t *ret_pid)
{
    for (const char *name; (name = hutch_dents_next(&procs->dents));) {
        if (name[0] < '1' || name[0] > '9')
            continue;
        if (outer_fd < 0)
            *ret_pid = atoi(name);
        else
            *ret_pid = is_inside(procs->fd, name) ? number_inside(procs->fd, name) : 0;
        if (*ret_pid > 1)
            return name;
    }
    return NULL;
}

bool hutch_procs_find(struct procs *procs, pid_t pid, char ret_name[PROCS_NAME])
{
    const char *name = NULL;
    pid_t found = 0;

    if (outer_fd < 0) {
        snprintf(ret_name, PROCS_NAME, "%d", pid);
        return procs->fd >= 0;
    }
    hutch_procs_rewind(procs);
    while (found != pid && (name = hutch_procs_next(procs, &found)))
        ;
    snprintf(ret_name, PROCS_NAME, "%.15s", name ? name : "");
    return name != NULL;
}

pid_t hutch_procs_number(const struct procs *procs, const char *path)
{
    const char *last = strrchr(path, '/');

    return outer_fd < 0 ? atoi(last ? last + 1 : path) : number_inside(procs->fd, path);
}
