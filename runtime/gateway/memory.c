#include "runtime/gateway/memory.h"

#include "sandbox/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

uint64_t hutch_memory_of(pid_t pid)
{
    char path[40] = "/proc/self/statm", text[128], *number;
    auto_fd fd = -1;
    ssize_t n;

    if (pid > 0)
        snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    strtoull(text, &number, 10); /* the size of its address space: proc(5) */
    return strtoull(number, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}
