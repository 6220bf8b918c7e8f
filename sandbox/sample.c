#include "sample.h"

#include "fd.h"
#include "init.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

struct dirent64_raw { /* getdents64(2); opendir(3) would allocate */
    uint64_t d_ino;
    int64_t d_off;
    uint16_t d_reclen;
    uint8_t d_type;
    char d_name[];
};

static int read_text(int proc_fd, const char *pid, const char *file, char *buf, size_t size)
{
    char path[64];
    auto_fd fd = -1;
    ssize_t n;

    snprintf(path, sizeof(path), "%s/%s", pid, file);
    fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : hutch_fd_read_full(fd, buf, size - 1);
    if (n < 0)
        return -1;
    buf[n] = '\0';
    return 0;
}

/* Proportional set size, so that pages shared by forked processes count once; resident size where that is denied (a
 * process may make itself unreadable) - which counts more, not less. */
static uint64_t memory_of(int proc_fd, const char *pid)
{
    char buf[2048];
    const char *pss;
    uint64_t value;

    if (read_text(proc_fd, pid, "smaps_rollup", buf, sizeof(buf)) == 0 && (pss = strstr(buf, "\nPss:")) &&
        sscanf(pss + 5, "%" SCNu64, &value) == 1)
        return value * 1024;
    if (read_text(proc_fd, pid, "statm", buf, sizeof(buf)) == 0 && sscanf(buf, "%*u %" SCNu64, &value) == 1)
        return value * (uint64_t)getpagesize();
    return 0;
}

static void add_process(int proc_fd, const char *pid, struct init_sample *sum)
{
    uint64_t utime, stime, cutime, cstime, threads, hz = (uint64_t)sysconf(_SC_CLK_TCK);
    const char *rest;
    char buf[2048];

    if (read_text(proc_fd, pid, "stat", buf, sizeof(buf)) < 0)
        return;
    rest = strrchr(buf, ')'); /* the name before it can hold anything */
    /* fields 14 to 17 and 20 of proc(5), counted from field 3 */
    if (!rest || sscanf(rest + 1,
                        " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                        " %*d %*d %" SCNu64, &utime, &stime, &cutime, &cstime, &threads) != 5)
        return;
    sum->cpu_ms += (utime + stime + cutime + cstime) * 1000 / hz;
    sum->pids += threads;
    sum->memory_bytes += memory_of(proc_fd, pid);
}

void hutch_sample_take(struct init_sample *ret)
{
    struct init_sample sum = { 0 };
    auto_fd proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct rusage reaped;
    char buf[8192] __attribute__((aligned(8)));
    long n;

    while (proc_fd >= 0 && (n = syscall(SYS_getdents64, proc_fd, buf, sizeof(buf))) > 0)
        for (long at = 0; at < n;) {
            const struct dirent64_raw *entry = (const struct dirent64_raw *)(buf + at);

            at += entry->d_reclen;
            if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && strcmp(entry->d_name, "1") != 0)
                add_process(proc_fd, entry->d_name, &sum);
        }
    if (getrusage(RUSAGE_CHILDREN, &reaped) == 0)
        sum.cpu_ms += (uint64_t)(reaped.ru_utime.tv_sec + reaped.ru_stime.tv_sec) * 1000 +
                      (uint64_t)(reaped.ru_utime.tv_usec + reaped.ru_stime.tv_usec) / 1000;
    *ret = sum;
}
