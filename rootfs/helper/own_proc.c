#include "rootfs/helper/own_proc.h"

#include "sandbox/fd.h"
#include "sandbox/zygote_wire.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* Called by Python. */
EXPORT int hutch_own_proc_open(const char *name);
EXPORT int hutch_own_proc_next_descriptor(int from);

static const char *const names[OWN_PROC_FILES] = OWN_PROC_NAMES;

static struct {
    pid_t pid; /* whose they are: a fork's own files are others */
    int fds[OWN_PROC_FILES];
} received = { .fds = { -1, -1, -1, -1 } };
_Static_assert(OWN_PROC_FILES == 4, "all are unset at first");

bool hutch_own_proc_is_missing(void)
{
    auto_fd fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);

    received.pid = 0;
    return fd < 0;
}

void hutch_own_proc_take(const int *fds, unsigned n_fds)
{
    received.pid = getpid();
    for (unsigned i = 0; i < OWN_PROC_FILES; i++)
        received.fds[i] = i < n_fds ? fds[i] : -1;
}

int hutch_own_proc_open(const char *name)
{
    char path[64];

    for (unsigned i = 0; received.pid == getpid() && i < OWN_PROC_FILES; i++)
        if (received.fds[i] >= 0 && strcmp(names[i], name) == 0)
            return lseek(received.fds[i], 0, SEEK_SET) < 0 ? -1 : fcntl(received.fds[i], F_DUPFD_CLOEXEC, 3);
    snprintf(path, sizeof(path), "/proc/self/%s", name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* The line of the groups, which comes before, is of any length. */
bool hutch_own_proc_status(const char *word, uint64_t *ret)
{
    auto_fd fd = hutch_own_proc_open("status");
    bool is_begin = true, is_found = false, has_digits = false;
    size_t matched = 0, len = strlen(word);
    char buf[1024];
    ssize_t n;

    *ret = 0;
    while (fd >= 0 && (n = TEMP_FAILURE_RETRY(read(fd, buf, sizeof(buf)))) > 0)
        for (ssize_t i = 0; i < n; i++) {
            if (is_found && buf[i] >= '0' && buf[i] <= '9') {
                *ret = *ret * 10 + (uint64_t)(buf[i] - '0');
                has_digits = true;
            } else if (is_found && (has_digits || (buf[i] != ' ' && buf[i] != '\t'))) {
                return has_digits;
            } else if (buf[i] == '\n') {
                is_begin = true;
                matched = 0;
            } else if (!is_found && is_begin) {
                is_begin = buf[i] == word[matched++];
                is_found = is_begin && matched == len;
            }
        }
    return false;
}

static bool is_received(int fd)
{
    for (unsigned i = 0; received.pid == getpid() && i < OWN_PROC_FILES; i++)
        if (received.fds[i] == fd)
            return true;
    return false;
}

/* The first descriptor from @from on that is open and not one of these files; -1: there is none. Without procfs: each
 * number is asked for. */
int hutch_own_proc_next_descriptor(int from)
{
    struct rlimit limit;
    int end = 1 << 20; /* fs.nr_open, as a rule */

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max < (rlim_t)end)
        end = (int)limit.rlim_max;
    for (int fd = from; fd < end; fd++)
        if (fcntl(fd, F_GETFD) >= 0 && !is_received(fd))
            return fd;
    return -1;
}
