#include "sandbox/procs.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static int outer_fd = -1;
static unsigned level; /* the column of NSpid, from 1 on, in which init's own namespace stands */

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

/* The numbers of NSpid, proc(5): one for each pid namespace, from the procfs' own inwards. Writes column @which to
 * *@ret_pid, 0 where there are fewer, and returns how many there are. Of any length is only the line of the groups,
 * which comes before. */
static unsigned read_numbers(int fd, const char *path, unsigned which, pid_t *ret_pid)
{
    static const char word[] = "\nNSpid:";
    char file[64], buf[1024];
    auto_fd status = -1;
    size_t matched = 0;
    unsigned column = 0;
    bool is_number = false;
    ssize_t n;

    *ret_pid = 0;
    snprintf(file, sizeof(file), "%.40s/status", path);
    status = openat(fd, file, O_RDONLY | O_CLOEXEC);
    while (status >= 0 && (n = TEMP_FAILURE_RETRY(read(status, buf, sizeof(buf)))) > 0)
        for (ssize_t i = 0; i < n; i++) {
            if (matched < sizeof(word) - 1) {
                matched = buf[i] == word[matched] ? matched + 1 : buf[i] == word[0];
            } else if (buf[i] >= '0' && buf[i] <= '9') {
                column += !is_number;
                is_number = true;
                if (column == which)
                    *ret_pid = *ret_pid * 10 + (buf[i] - '0');
            } else if (buf[i] == '\n') {
                return column;
            } else {
                is_number = false;
            }
        }
    return 0;
}

static pid_t number_inside(int fd, const char *path)
{
    pid_t pid;

    read_numbers(fd, path, level, &pid);
    return pid;
}

/* The kernel sends signals into the sender's own pid namespace alone, and those below, and says EINVAL otherwise:
 * pidfd_send_signal(2), which takes a process's directory for a pidfd. Nothing that the code inside can say of itself
 * is asked. */
static int signal_nothing(int fd, const char *name)
{
    auto_fd dir = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return dir < 0 ? -1 : (int)syscall(SYS_pidfd_send_signal, dir, 0, NULL, 0);
}

static bool is_inside(int fd, const char *name)
{
    return signal_nothing(fd, name) == 0 || errno == EPERM;
}

/* Reads "MOUNT-ID … - proc SOURCE OPTIONS", proc_pid_mountinfo(5), without memory or a buffered file. */
int hutch_procs_check_mount(int fd, struct hutch_err *err)
{
    static const char word[] = "hidepid=";
    auto_fd mounts = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    uint64_t number = 0;
    struct statx about;
    char block[4096];
    size_t matched = 0;
    int field = 0;
    ssize_t n;

    if (mounts < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &about) < 0)
        return hutch_err_set(err, errno, "look how /proc is mounted");
    while ((n = TEMP_FAILURE_RETRY(read(mounts, block, sizeof(block)))) > 0)
        for (ssize_t i = 0; i < n; i++) {
            if (block[i] == '\n') {
                field = 0;
                number = 0;
                matched = 0;
            } else if (block[i] == ' ') {
                field++;
                matched = 0;
            } else if (field == 0) {
                number = number * 10 + (uint64_t)(block[i] - '0');
            } else if (number == about.stx_mnt_id && matched == sizeof(word) - 1) {
                if (block[i] != '0' && block[i] != 'o') /* "off" */
                    return hutch_err_set(err, 0, "the /proc around hutch hides processes (hidepid), and limits could "
                                                 "not be counted there: start the container without that option");
                matched = 0;
            } else {
                matched = block[i] == word[matched] ? matched + 1 : block[i] == word[0];
            }
        }
    return n < 0 ? hutch_err_set(err, errno, "read '/proc/self/mountinfo'") : 0;
}

int hutch_procs_use_outer(int fd, struct hutch_err *err)
{
    pid_t pid;

    level = read_numbers(fd, "self", 0, &pid);
    if (level < 2 || number_inside(fd, "self") != 1)
        return hutch_err_set(err, 0, "the /proc around hutch does not show the sandbox's processes, and limits could "
                                     "not be counted there: is it that of another pid namespace?");
    if (signal_nothing(fd, "self") < 0)
        return hutch_err_set(err, errno, "tell the sandbox's processes from others by pidfd_send_signal (a filter "
                                         "around hutch has to allow it)");
    outer_fd = fd;
    return 0;
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
