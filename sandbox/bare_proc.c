#include "sandbox/bare_proc.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_MAX_BYTES (512u << 10) /* /proc/cpuinfo has some 1,400 bytes for each processor */

static const char *const directories[] = { "sys", "sys/fs", "sys/kernel", "sys/net", "sys/net/core", "sys/vm" };

/* None of them tells of a process, a mount or a device. */
static const char *const files[] = {
    "cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version", "vmstat",
    "sys/fs/file-max", "sys/fs/pipe-max-size",
    "sys/kernel/cap_last_cap", "sys/kernel/ngroups_max", "sys/kernel/osrelease", "sys/kernel/ostype",
    "sys/kernel/pid_max", "sys/kernel/threads-max", "sys/kernel/version",
    "sys/net/core/somaxconn",
    "sys/vm/max_map_count", "sys/vm/overcommit_memory",
};

/* A file of which some is missing would tell a lie, so one that is too long is left out. */
static int copy_file(int from_dir, int to_dir, const char *path, struct hutch_err *err)
{
    auto_fd from = openat(from_dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    auto_fd to = -1;
    struct stat st;
    size_t total = 0;
    char buf[4096];
    ssize_t n;

    if (from < 0 || fstat(from, &st) < 0 || !S_ISREG(st.st_mode)) /* not there, or covered by a device or a directory */
        return 0;
    to = openat(to_dir, path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0444);
    if (to < 0)
        return hutch_err_set(err, errno, "make '/proc/%s'", path);
    while ((n = TEMP_FAILURE_RETRY(read(from, buf, sizeof(buf)))) > 0) {
        total += (size_t)n;
        if (total > FILE_MAX_BYTES)
            break;
        if (hutch_fd_write_all(to, buf, (size_t)n) < 0)
            return hutch_err_set(err, errno, "write '/proc/%s'", path);
    }
    if (n != 0 && unlinkat(to_dir, path, 0) < 0)
        return hutch_err_set(err, errno, "take away '/proc/%s'", path);
    return 0;
}

int hutch_bare_proc_fill(int fd, int proc_fd, struct hutch_err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
        if (mkdirat(fd, directories[i], 0555) < 0)
            return hutch_err_set(err, errno, "make '/proc/%s'", directories[i]);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        if (copy_file(proc_fd, fd, files[i], err) < 0)
            return -1;
    return 0;
}
