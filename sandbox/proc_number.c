#include "sandbox/proc_number.h"

#include "sandbox/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int hutch_proc_number(int pidfd, pid_t *ret, struct hutch_err *err)
{
    static const char word[] = "\nPid:";
    char path[48], text[512];
    auto_fd fd = -1;
    const char *at;
    ssize_t n;
    long pid;

    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : hutch_fd_read_full(fd, text, sizeof(text) - 1);
    if (n < 0)
        return hutch_err_set(err, errno, "read '%s' (is /proc mounted?)", path);
    text[n] = '\0';
    at = strstr(text, word);
    pid = at ? strtol(at + sizeof(word) - 1, NULL, 10) : 0;
    if (pid <= 0)
        return hutch_err_set(err, ESRCH, "find a process in /proc (is it that of another pid namespace?)");
    *ret = (pid_t)pid;
    return 0;
}
