#include "soak.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEATH_S 60 /* not a measure: for a machine that is busy with other things */

const char *const proc_names[PROC_KINDS] = { "opener", "disk", "anchor", "launcher", "zygote", "init", "worker" };

/* Everyone may read /proc/PID/status, of other users' processes too. False when it is gone. */
static bool read_proc(pid_t pid, struct proc *ret)
{
    char path[40], text[4096];
    const char *line;
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    *ret = (struct proc){ .pid = pid, .is_disk_worker = strncmp(text, "Name:\thutch-disk\n", 17) == 0 };
    line = strstr(text, "\nState:\t");
    ret->is_zombie = line && (line[8] == 'Z' || line[8] == 'X');
    ret->is_holder = strstr(text, "\nSigBlk:\tfffffffffffbfeff\n") != NULL; /* all but SIGKILL and SIGSTOP */
    line = strstr(text, "\nPPid:\t");
    ret->ppid = line ? atoi(line + 7) : 0;
    line = strstr(text, "\nNSpid:");
    if (line) {
        char *end = (char *)line + 7;

        for (ret->depth = 0; *end == '\t'; ret->depth++)
            ret->inner = (pid_t)strtol(end + 1, &end, 10);
    }
    return true;
}

static struct proc *find(struct procs *procs, pid_t pid)
{
    for (size_t i = 0; i < procs->n; i++)
        if (procs->all[i].pid == pid)
            return &procs->all[i];
    return NULL;
}

/* By the chain of parents; the table may be older than some of its rows. */
static bool is_below_us(struct procs *procs, const struct proc *p)
{
    for (int depth = 0; p && depth < 64; depth++) {
        if (p->ppid == getpid())
            return true;
        p = p->ppid > 1 ? find(procs, p->ppid) : NULL;
    }
    return false;
}

static enum proc_kind kind_of(const struct proc *p, unsigned our_depth, pid_t launcher)
{
    if (p->is_disk_worker) /* in a pid namespace of its own, with a process for each order */
        return PROC_DISK_WORKER;
    if (p->depth <= our_depth)
        return PROC_OPENER;
    if (p->depth == our_depth + 1)
        return p->inner == 1 ? PROC_ANCHOR : p->pid == launcher ? PROC_LAUNCHER : PROC_ZYGOTE;
    return p->inner == 1 ? PROC_INIT : PROC_WORKER;
}

void procs_scan(struct procs *procs, pid_t launcher)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    struct proc self;

    if (!dir || !read_proc(getpid(), &self))
        die("/proc cannot be read");
    procs->n = 0;
    while ((entry = readdir(dir)) && procs->n < sizeof(procs->all) / sizeof(*procs->all))
        if (isdigit((unsigned char)entry->d_name[0]) && read_proc(atoi(entry->d_name), &procs->all[procs->n]))
            procs->n++;
    closedir(dir);
    for (size_t i = 0; i < procs->n; i++) {
        struct proc *p = &procs->all[i];

        p->is_ours = is_below_us(procs, p);
        p->kind = kind_of(p, self.depth, launcher);
    }
}

/* 0 when there is none. */
static pid_t pick(const struct procs *procs, enum proc_kind kind)
{
    uint32_t n = 0, chosen;

    for (size_t i = 0; i < procs->n; i++)
        n += procs->all[i].is_ours && !procs->all[i].is_zombie && procs->all[i].kind == kind;
    if (n == 0)
        return 0;
    chosen = random_below(n);
    for (size_t i = 0;; i++)
        if (procs->all[i].is_ours && !procs->all[i].is_zombie && procs->all[i].kind == kind && chosen-- == 0)
            return procs->all[i].pid;
}

bool procs_kill(struct procs *procs, pid_t launcher, enum proc_kind kind)
{
    struct pollfd pfd = { .events = POLLIN };
    pid_t pid;

    procs_scan(procs, launcher);
    pid = pick(procs, kind);
    pfd.fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    if (pfd.fd < 0)
        return false;
    if (syscall(SYS_pidfd_send_signal, pfd.fd, SIGKILL, NULL, 0) < 0 && errno != ESRCH)
        die("kill %s %d: %s", proc_names[kind], pid, strerror(errno));
    if (poll(&pfd, 1, DEATH_S * 1000) != 1)
        complain("%s %d does not die of SIGKILL", proc_names[kind], pid);
    close(pfd.fd);
    return true;
}

void procs_reap(void)
{
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

unsigned procs_count(const struct procs *procs)
{
    unsigned n = 0;

    for (size_t i = 0; i < procs->n; i++)
        n += procs->all[i].is_ours && !procs->all[i].is_zombie;
    return n;
}

void procs_check_gone(struct procs *procs)
{
    for (int i = 0; i < 1500; i++) {
        procs_reap();
        procs_scan(procs, 0);
        if (procs_count(procs) == 0)
            return;
        usleep(20000);
    }
    complain("%u processes are left after the engine's end", procs_count(procs));
}
