#include "sandbox/sample.h"

#include "sandbox/cpu_ledger.h"
#include "sandbox/dents.h"
#include "sandbox/fd.h"
#include "sandbox/init.h"
#include "sandbox/procs.h"
#include "sandbox/sockets.h"
#include "sandbox/sysv.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>

static int read_text(int proc_fd, const char *pid, const char *file, char *buf, size_t size)
{
    char path[96];
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

/* /proc/PID/status without its lines of groups, "Gid:" and "Groups:": an ordinary user's stay with the sandbox, and may
 * be so many that nothing else would fit. */
static int read_status(int proc_fd, const char *pid, char *buf, size_t size)
{
    char path[96], piece[1024], before = '\n';
    auto_fd fd = -1;
    size_t len = 0;
    bool is_left_out = false;
    ssize_t n;

    snprintf(path, sizeof(path), "%s/status", pid);
    fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    while ((n = TEMP_FAILURE_RETRY(read(fd, piece, sizeof(piece)))) > 0)
        for (ssize_t i = 0; i < n; before = piece[i++]) {
            if (before == '\n')
                is_left_out = piece[i] == 'G';
            if (!is_left_out && len < size - 1)
                buf[len++] = piece[i];
        }
    buf[len] = '\0';
    return n < 0 ? -1 : 0;
}

/* How much CPU time one sample may take: code inside can make counting as expensive as it likes. By then the sample is
 * cut short. CPU time and not the clock, which goes on while init waits for a busy host. */
#define SAMPLE_MAX_CPU_MS 250
#define ASKED_PER_LOOK    8

/* A file or memory object that several processes may hold counts once: a hash table of those seen in this sample. When
 * it is full the others count each time they are seen, which is too much rather than too little. */
#define SEEN_SLOTS 16384u /* a power of two */
static struct { uint64_t dev, ino; } seen[SEEN_SLOTS];
static size_t n_seen;

static bool can_remember(void)
{
    return n_seen < SEEN_SLOTS / 2;
}

static bool is_new_object(uint64_t dev, uint64_t ino)
{
    size_t slot = (ino * 0x9e3779b97f4a7c15u ^ dev) & (SEEN_SLOTS - 1);

    for (; seen[slot].ino; slot = (slot + 1) & (SEEN_SLOTS - 1))
        if (seen[slot].ino == ino && seen[slot].dev == dev)
            return false;
    if (can_remember()) {
        seen[slot].dev = dev;
        seen[slot].ino = ino;
        n_seen++;
    }
    return true;
}

static void forget_seen(void)
{
    if (n_seen)
        memset(seen, 0, sizeof(seen));
    n_seen = 0;
}

static int64_t cpu_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* The processes of the last sample and the nanoseconds that they had used; n 0: there were more. */
#define MAX_WATCHED 24
static struct {
    pid_t pids[MAX_WATCHED];
    size_t n;
    bool is_full;
    uint64_t used;
} watched;

static void watch_process(pid_t pid)
{
    if (watched.n < MAX_WATCHED && !watched.is_full)
        watched.pids[watched.n++] = pid;
    else
        watched.is_full = true;
    if (watched.is_full)
        watched.n = 0;
}

/* What the kernel holds beyond pages, where no controller counts it. Measured on Linux 6: 4.2 million mappings took
 * 1.2 GB, 5.5 million watches of epoll 1.3 to 1.9 GB. */
#define MAPPING_BYTES 288
#define WATCH_BYTES   320
#define LOCK_BYTES    192
/* A descriptor with its open file: 620 bytes for an eventfd, 750 for a file of an overlay, 960 for a timerfd, 1,230 for
 * a new file in memory. Where processes share one it counts for each, which is too much rather than too little. */
#define DESCRIPTOR_BYTES 1024
/* A pipe has 16 pages when it is made, and 2 when its user has PIPES_FULL of them: pipe(7), pipe-user-pages-soft. */
#define PIPE_BYTES       65536
#define SMALL_PIPE_BYTES 8192
#define PIPES_FULL       1024

static struct cpu_ledger ledger;
static int sockets_fd = -1;
static uint64_t few_sockets;
static bool has_ignored; /* a process of the last sample ignores SIGCHLD */
static uint64_t lost_before; /* of the ledger, when it was last asked for */

struct sampler {
    struct procs procs;
    dev_t data_dev;     /* 0: no data directory */
    pid_t holder;          /* its memory is not counted */
    bool counts_shared;
    bool is_exact;      /* ask for proportional shares */
    bool is_quick;      /* CPU time and resident memory alone */
    bool notes_cpu;     /* in the ledger, which gets each look once */
    bool wants_memory;  /* with is_quick: the latter, too */
    unsigned n_pipes;
    unsigned n_asked;
    int64_t deadline;
    struct init_sample *sum;
};

/* Asked before each descriptor and each part of a list: code inside can make one process take as long as many. The
 * clock takes a fourth of what a descriptor does, so it is read now and then. */
static bool is_out_of_time(struct sampler *s)
{
    if (++s->n_asked % ASKED_PER_LOOK == 0 && cpu_ms() >= s->deadline)
        s->sum->is_cut_short = true;
    return s->sum->is_cut_short;
}

/* A process that does not let init read its entries in /proc hides what it has. One that is ending does not: while its
 * memory is taken down, its files under /proc belong to root, and its status has no VmSize. */
static void note_denial(struct sampler *s, const char *pid)
{
    char buf[4096];

    if ((errno == EACCES || errno == EPERM) &&
        read_status(s->procs.fd, pid, buf, sizeof(buf)) == 0 && strstr(buf, "\nVmSize:"))
        s->sum->is_hidden = true;
}

static uint64_t field_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    uint64_t kib;

    return at && sscanf(at + strlen(name), "%" SCNu64, &kib) == 1 ? kib * 1024 : 0;
}

/* Its children are reaped by the kernel, and their CPU time is added to no process. */
static bool ignores_children(const char *status)
{
    const char *at = strstr(status, "\nSigIgn:");
    uint64_t set;

    return at && sscanf(at + sizeof("\nSigIgn:") - 1, "%" SCNx64, &set) == 1 && set >> (SIGCHLD - 1) & 1;
}

/* What a process has of its own, as the kernel counts it anyway: anonymous pages in memory and swapped out, shared
 * pages, and the page tables, which can be larger than what they map. Pages shared by forked processes count for
 * each. */
static uint64_t resident_of(int proc_fd, const char *pid, bool leave_out_shmem)
{
    char buf[4096];

    if (read_status(proc_fd, pid, buf, sizeof(buf)) < 0)
        return 0;
    has_ignored |= ignores_children(buf);
    return field_of(buf, "\nRssAnon:") + field_of(buf, "\nVmSwap:") + field_of(buf, "\nVmPTE:") +
           (leave_out_shmem ? 0 : field_of(buf, "\nRssShmem:"));
}

/* The same with shared pages divided by their users: exact, and slow for a process of many mappings. */
static uint64_t share_of(int proc_fd, const char *pid, bool leave_out_shmem)
{
    char buf[4096];
    uint64_t tables;

    if (read_status(proc_fd, pid, buf, sizeof(buf)) < 0)
        return 0;
    tables = field_of(buf, "\nVmPTE:");
    if (read_text(proc_fd, pid, "smaps_rollup", buf, sizeof(buf)) < 0 || !strstr(buf, "\nPss_Anon:"))
        return resident_of(proc_fd, pid, leave_out_shmem);
    return field_of(buf, "\nPss_Anon:") + field_of(buf, "\nSwapPss:") + tables +
           (leave_out_shmem ? 0 : field_of(buf, "\nPss_Shmem:"));
}

/* Those whose memory this exact count has. More than these are compared with none. */
#define MAX_COUNTED 64
static pid_t counted[MAX_COUNTED];
static size_t n_counted;

static bool has_memory(int proc_fd, const char *pid)
{
    char buf[4096];

    return read_status(proc_fd, pid, buf, sizeof(buf)) == 0 && strstr(buf, "\nVmSize:");
}

/* Whether its memory is that of a process which was counted. @path: its directory, or that of a thread that lives, as
 * one that has ended has no memory, and nothing is the same as nothing. A child of vfork(2) has its parent's memory
 * until it executes a program, and the shares of both show all of it: half of the limit would be too much for a program
 * that starts others, and for a checkpoint. kcmp(2) compares the objects, so that equal numbers deceive nobody. */
static bool is_counted(const struct procs *procs, const char *path)
{
    pid_t tid = hutch_procs_number(procs, path);

    for (size_t i = 0; i < n_counted; i++)
        if (syscall(SYS_kcmp, tid, counted[i], KCMP_VM, 0, 0) == 0)
            return has_memory(procs->fd, path);
    if (n_counted < MAX_COUNTED)
        counted[n_counted++] = tid;
    return false;
}

/* One line of /proc/PID/maps. Shared anonymous memory is an object of its own, which keeps its pages when no process
 * has them mapped in, so its size counts. A file of the data directory may live on as a mapping. */
static void add_mapping(struct sampler *s, const char *line)
{
    static const char zero[] = "/dev/zero (deleted)", gone[] = " (deleted)";
    unsigned long start, end, ino;
    unsigned major, minor;
    char perms[8];
    int path_at = 0;
    size_t len;

    if (sscanf(line, "%lx-%lx %7s %*x %x:%x %lu %n", &start, &end, perms, &major, &minor, &ino, &path_at) < 6 ||
        !path_at || perms[3] != 's')
        return;
    len = strlen(line + path_at);
    if (s->counts_shared && strcmp(line + path_at, zero) == 0) {
        if (is_new_object(makedev(major, minor), ino))
            s->sum->memory_bytes += end - start;
    } else if (s->data_dev && makedev(major, minor) == s->data_dev && len >= sizeof(gone) &&
               strcmp(line + path_at + len - (sizeof(gone) - 1), gone) == 0) {
        if (is_new_object(s->data_dev, ino))
            s->sum->unlinked_bytes += end - start;
    }
}

#define KEPT_END 64 /* bytes of a line that is too long: more than any end that is looked for */

/* Hands each whole line of @fd to @take, without its newline. False: the CPU time @deadline came before the end. Of a
 * line that the buffer does not hold the middle is left out: a program can make a path as long as it likes, and the end
 * of one is not to look like a line of its own. */
static bool each_line(int fd, int64_t deadline, void (*take)(const char *line, void *context), void *context)
{
    char buf[8192];
    size_t have = 0;
    ssize_t n;

    while ((n = read(fd, buf + have, sizeof(buf) - 1 - have)) > 0) {
        char *line = buf, *newline;

        have += (size_t)n;
        buf[have] = '\0';
        for (; (newline = strchr(line, '\n')); line = newline + 1) {
            *newline = '\0';
            take(line, context);
        }
        have -= (size_t)(line - buf);
        memmove(buf, line, have);
        if (have == sizeof(buf) - 1) {
            memmove(buf + sizeof(buf) / 2, buf + have - KEPT_END, KEPT_END);
            have = sizeof(buf) / 2 + KEPT_END;
        }
        if (cpu_ms() >= deadline)
            return false;
    }
    return true;
}

static void take_mapping(const char *line, void *context)
{
    struct sampler *s = context;

    add_mapping(s, line);
    if (s->counts_shared)
        s->sum->memory_bytes += MAPPING_BYTES;
}

static void add_mappings(struct sampler *s, const char *pid)
{
    char path[96];
    auto_fd fd = -1;

    snprintf(path, sizeof(path), "%s/maps", pid);
    fd = openat(s->procs.fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        note_denial(s, pid);
    else if (!s->sum->is_cut_short && !each_line(fd, s->deadline, take_mapping, s))
        s->sum->is_cut_short = true;
}

/* What a descriptor holds in the kernel: @bytes for each line of its fdinfo that begins as @word says after a newline,
 * in which the first character is the only newline. */
static void add_lines(struct sampler *s, const char *pid, const char *number, const char *word, uint64_t bytes)
{
    char path[96], buf[8192];
    size_t matched = 0, len = strlen(word);
    auto_fd fd = -1;
    ssize_t n;

    snprintf(path, sizeof(path), "%s/fdinfo/%.16s", pid, number);
    fd = openat(s->procs.fd, path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && !is_out_of_time(s) && (n = read(fd, buf, sizeof(buf))) > 0)
        for (ssize_t i = 0; i < n; i++) {
            matched = buf[i] == word[matched] ? matched + 1 : buf[i] == word[0];
            if (matched == len) {
                s->sum->memory_bytes += bytes;
                matched = 0;
            }
        }
}

static bool is_epoll(int dirfd, const char *number)
{
    char target[32];
    ssize_t n = readlinkat(dirfd, number, target, sizeof(target));

    return n == sizeof("anon_inode:[eventpoll]") - 1 && memcmp(target, "anon_inode:[eventpoll]", (size_t)n) == 0;
}

/* What the kernel holds behind one descriptor: the open file, watches of epoll, locks, what a pipe can be full of. */
static void add_kernel_memory(struct sampler *s, const char *pid, int dirfd, const char *number, const struct stat *st)
{
    s->sum->memory_bytes += DESCRIPTOR_BYTES;
    if ((st->st_mode & S_IFMT) == 0 && is_epoll(dirfd, number))
        add_lines(s, pid, number, "\ntfd:", WATCH_BYTES);
    else if (S_ISREG(st->st_mode))
        add_lines(s, pid, number, "\nlock:", LOCK_BYTES);
    else if (S_ISFIFO(st->st_mode) && is_new_object(st->st_dev, st->st_ino))
        s->sum->memory_bytes += s->n_pipes++ < PIPES_FULL ? PIPE_BYTES : SMALL_PIPE_BYTES;
}

/* Descriptors that wait in a unix socket, as unix(7) shows them in its fdinfo since Linux 5.6. */
static void add_in_flight(struct sampler *s, const char *pid, const char *number, const struct stat *st)
{
    static const char word[] = "\nscm_fds:";
    char file[32], buf[512];
    const char *at;
    uint64_t n;

    snprintf(file, sizeof(file), "fdinfo/%.16s", number);
    if (read_text(s->procs.fd, pid, file, buf, sizeof(buf)) < 0)
        return;
    at = strstr(buf, word);
    /* Too few rather than too many: this count ends runs. */
    if (at && sscanf(at + sizeof(word) - 1, "%" SCNu64, &n) == 1 && n > 0 && can_remember() &&
        is_new_object(st->st_dev, st->st_ino))
        s->sum->in_flight += n;
}

/* Files of the data directory that are open and have no name any more: no walk over the directory finds them. And what
 * the kernel holds for descriptors. */
static void add_open_files(struct sampler *s, const char *pid)
{
    struct dents dents;
    auto_fd fd = -1;
    char path[96];

    snprintf(path, sizeof(path), "%s/fd", pid);
    fd = openat(s->procs.fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        note_denial(s, pid);
    hutch_dents_begin(&dents, fd);
    for (const char *number; !is_out_of_time(s) && (number = hutch_dents_next(&dents));) {
        struct stat st;

        if (fstatat(fd, number, &st, 0) < 0)
            continue;
        if (S_ISSOCK(st.st_mode))
            add_in_flight(s, pid, number, &st);
        if (s->counts_shared)
            add_kernel_memory(s, pid, fd, number, &st);
        if (s->data_dev && S_ISREG(st.st_mode) && st.st_nlink == 0 && st.st_dev == s->data_dev &&
            is_new_object(st.st_dev, st.st_ino))
            s->sum->unlinked_bytes += (uint64_t)st.st_blocks * 512;
    }
}

/* A process whose first thread has ended shows nothing of what the others hold; they show it themselves. Names one of
 * them in @path: all threads share memory and, as the filter sees to it, descriptors. */
static bool find_living_thread(int proc_fd, const char *pid, char *path, size_t size)
{
    struct dents dents;
    char stat_text[512], state;
    auto_fd fd = -1;

    snprintf(path, size, "%s/task", pid);
    fd = openat(proc_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    hutch_dents_begin(&dents, fd);
    for (const char *thread; (thread = hutch_dents_next(&dents));) {
        const char *rest;

        if (read_text(fd, thread, "stat", stat_text, sizeof(stat_text)) < 0)
            continue;
        rest = strrchr(stat_text, ')');
        if (!rest || sscanf(rest + 1, " %c", &state) != 1 || state == 'Z' || state == 'X')
            continue;
        snprintf(path, size, "%s/task/%.16s", pid, thread);
        return true;
    }
    return false;
}

/* Fields 3, 4, 16, 17, 20 and 22 of proc(5). */
struct process_stat {
    char state;
    int parent;
    uint64_t cutime, cstime, threads, started;
};

static bool read_stat(int proc_fd, const char *pid, struct process_stat *ret)
{
    char buf[2048];
    const char *rest;

    if (read_text(proc_fd, pid, "stat", buf, sizeof(buf)) < 0)
        return false;
    rest = strrchr(buf, ')'); /* the name before it can hold anything */
    return rest && sscanf(rest + 1,
                          " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64
                          " %*d %*d %" SCNu64 " %*d %" SCNu64,
                          &ret->state, &ret->parent, &ret->cutime, &ret->cstime, &ret->threads, &ret->started) == 6;
}

/* In nanoseconds: proc(5) has ticks, and a process may live for less than one. The clock's number is made as
 * clock_getcpuclockid(3) makes it, which asks the kernel first whether there is one: init's filter has no such call. */
static bool read_clock(pid_t pid, uint64_t *ret_ns)
{
    clockid_t clock = (clockid_t)(~(unsigned)pid << 3 | 2);
    struct timespec ts;

    if (clock_gettime(clock, &ts) < 0)
        return false;
    *ret_ns = (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
    return true;
}

/* @name: of its directory. The ledger compares numbers of processes and of parents as proc(5) has them. */
static void note_cpu(const char *name, pid_t pid, const struct process_stat *p)
{
    struct cpu_seen cpu = { .pid = atoi(name), .parent = p->parent, .started = p->started };

    cpu.reaped_ns = (p->cutime + p->cstime) * (1000000000 / (uint64_t)sysconf(_SC_CLK_TCK));
    if (read_clock(pid, &cpu.own_ns))
        hutch_cpu_ledger_see(&ledger, &cpu);
}

/* @name: of its directory, @pid: its number inside. */
static void add_process(struct sampler *s, const char *name, pid_t pid)
{
    char thread[64];
    bool is_holder = s->holder > 0 && pid == s->holder;
    struct process_stat p;

    if (!read_stat(s->procs.fd, name, &p))
        return;
    if (s->notes_cpu)
        note_cpu(name, pid, &p);
    if (s->is_quick && !s->wants_memory)
        return;
    s->sum->pids += p.threads - (is_holder && p.threads > 0);
    if (p.state == 'Z' || p.state == 'X') {
        if (p.threads < 2 || !find_living_thread(s->procs.fd, name, thread, sizeof(thread)))
            return; /* holds nothing any more */
        name = thread;
    }
    if (s->is_quick) {
        if (!is_holder)
            s->sum->memory_bytes += resident_of(s->procs.fd, name, false);
        return;
    }
    if (!is_holder && s->is_exact)
        s->sum->memory_bytes += is_counted(&s->procs, name) ? 0 : share_of(s->procs.fd, name, s->counts_shared);
    else if (!is_holder)
        s->sum->memory_bytes += resident_of(s->procs.fd, name, s->counts_shared);
    if (s->data_dev || (s->counts_shared && !is_holder))
        add_open_files(s, name);
    if (!is_holder && (s->data_dev || s->counts_shared))
        add_mappings(s, name);
}

static void count_all(struct sampler *s)
{
    pid_t pid;

    *s->sum = (struct init_sample){ 0 };
    if (!s->is_quick) {
        watched.n = 0;
        watched.is_full = false;
    }
    if (s->notes_cpu && !s->is_quick)
        has_ignored = false;
    s->n_pipes = 0;
    n_counted = 0;
    forget_seen();
    hutch_procs_open(&s->procs);
    for (const char *name; (name = hutch_procs_next(&s->procs, &pid));) {
        if (!s->is_quick)
            watch_process(pid);
        if (is_out_of_time(s)) {
            watched.is_full = true;
            watched.n = 0;
            break;
        }
        add_process(s, name, pid);
    }
    hutch_procs_close(&s->procs);
}

bool hutch_sample_is_idle(void)
{
    uint64_t before = watched.used;

    watched.used = 0;
    for (size_t i = 0; i < watched.n; i++) {
        uint64_t used;

        if (!read_clock(watched.pids[i], &used))
            return false;
        watched.used += used;
    }
    return watched.n > 0 && watched.used == before;
}

/* Fields 26 and 28 of proc(5), where code and stack start: execve(2) draws them anew, in tens of bits. */
static bool read_layout(struct procs *procs, pid_t pid, uint64_t *ret_code, uint64_t *ret_stack)
{
    char name[PROCS_NAME], buf[2048];
    const char *rest;

    if (!hutch_procs_find(procs, pid, name) || read_text(procs->fd, name, "stat", buf, sizeof(buf)) < 0)
        return false;
    rest = strrchr(buf, ')');
    return rest && sscanf(rest + 1,
                          " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %*u %*u %*d %*u"
                          " %" SCNu64 " %*u %" SCNu64, ret_code, ret_stack) == 2 && *ret_stack != 0;
}

bool hutch_sample_share_memory(pid_t a, pid_t b)
{
    uint64_t code[2], stack[2];
    struct procs procs;
    bool is_same;

    hutch_procs_open(&procs);
    is_same = read_layout(&procs, a, &code[0], &stack[0]) && read_layout(&procs, b, &code[1], &stack[1]) &&
              code[0] == code[1] && stack[0] == stack[1];
    hutch_procs_close(&procs);
    return is_same;
}

/* One look at all processes, whose CPU time goes to the ledger. */
static void look(struct sampler *s)
{
    struct rusage reaped = { 0 };

    hutch_cpu_ledger_begin(&ledger);
    s->notes_cpu = true;
    count_all(s);
    s->notes_cpu = false;
    if (s->sum->is_cut_short) {
        hutch_cpu_ledger_drop(&ledger);
    } else {
        getrusage(RUSAGE_CHILDREN, &reaped); /* after the look: what was reaped meanwhile is not missed */
        hutch_cpu_ledger_end(&ledger, (uint64_t)(reaped.ru_utime.tv_sec + reaped.ru_stime.tv_sec) * 1000000000 +
                                          (uint64_t)(reaped.ru_utime.tv_usec + reaped.ru_stime.tv_usec) * 1000);
    }
    s->sum->cpu_ms = ledger.total_ns / 1000000;
    s->sum->is_cpu_lower_bound = ledger.is_lower_bound || has_ignored;
}

void hutch_sample_count_sockets(int fd, uint64_t few)
{
    sockets_fd = fd;
    few_sockets = few;
}

/* What waits in netlink sockets, in flight or not: an answer that echoes a bad request stays until it is read. A line
 * has the bytes to be read in column 5 and those to be sent in column 6. */
static void take_netlink(const char *line, void *context)
{
    uint64_t received, sent, *bytes = context;

    if (sscanf(line, "%*s %*s %*s %*s %" SCNu64 " %" SCNu64, &received, &sent) == 2)
        *bytes += received + sent;
}

/* Memory of sockets, which belong to no process. False: there are more netlink sockets than can be looked at, and
 * @ret_bytes is what was counted until then. */
static bool sockets_memory(uint64_t *ret_bytes)
{
    bool is_whole = true;
    struct procs procs;
    char buf[512];
    uint64_t n_used;

    *ret_bytes = 0;
    if (sockets_fd < 0)
        return true;
    hutch_procs_open(&procs);
    if (procs.fd >= 0 && read_text(procs.fd, "net", "sockstat", buf, sizeof(buf)) == 0 &&
        sscanf(buf, "sockets: used %" SCNu64, &n_used) == 1) {
        auto_fd netlink = n_used >= few_sockets ? openat(procs.fd, "net/netlink", O_RDONLY | O_CLOEXEC) : -1;

        *ret_bytes = hutch_sockets_memory(sockets_fd, n_used, few_sockets);
        is_whole = netlink < 0 || each_line(netlink, cpu_ms() + SAMPLE_MAX_CPU_MS, take_netlink, ret_bytes);
    }
    hutch_procs_close(&procs);
    return is_whole;
}

static void take_once(dev_t data_dev, bool counts_shared, uint64_t memory_limit, pid_t holder, struct init_sample *sum)
{
    uint64_t more = 0; /* what belongs to no process */
    bool is_whole = !counts_shared || sockets_memory(&more);
    struct init_sample other;
    struct sampler s = { .data_dev = data_dev, .counts_shared = counts_shared, .deadline = cpu_ms() + SAMPLE_MAX_CPU_MS,
                         .holder = holder, .sum = sum };

    look(&s);
    sum->is_cut_short |= !is_whole;
    if (sum->is_cut_short && memory_limit) { /* some processes make counting long: the others are not to hide behind */
        struct sampler quick = { .is_quick = true, .wants_memory = true, .holder = holder,
                                 .deadline = cpu_ms() + SAMPLE_MAX_CPU_MS, .sum = &other };

        count_all(&quick);
        if (other.memory_bytes > sum->memory_bytes)
            sum->memory_bytes = other.memory_bytes;
    }
    more += counts_shared ? hutch_sysv_memory(sum->pids) : 0;
    sum->memory_bytes += more;
    sum->is_memory_upper_bound = true;
    if (memory_limit && sum->memory_bytes > memory_limit && !sum->is_cut_short) {
        s.is_exact = true;
        s.sum = &other;
        count_all(&s);
        if (!other.is_cut_short) { /* else the upper bound stands */
            other.memory_bytes += more;
            other.cpu_ms = sum->cpu_ms;
            other.is_cpu_lower_bound = sum->is_cpu_lower_bound;
            *sum = other;
        }
    }
}

/* An upper bound is not to end a run for what the host did: where a virtual machine stood still in the middle of a
 * sample, its kernel has counted that as CPU time of init. One more sample tells that from a sandbox that is too much
 * to look at. */
void hutch_sample_take(dev_t data_dev, bool counts_shared, uint64_t memory_limit, pid_t holder, struct init_sample *ret)
{
    take_once(data_dev, counts_shared, memory_limit, holder, ret);
    if (memory_limit && ret->memory_bytes > memory_limit && ret->is_memory_upper_bound)
        take_once(data_dev, counts_shared, memory_limit, holder, ret);
}

void hutch_sample_look(bool wants_memory, pid_t holder, struct init_sample *ret)
{
    struct sampler s = { .is_quick = true, .wants_memory = wants_memory, .holder = holder,
                         .deadline = cpu_ms() + SAMPLE_MAX_CPU_MS, .sum = ret };

    look(&s);
    if (wants_memory)
        ret->memory_bytes += hutch_sysv_memory(ret->pids);
}

bool hutch_sample_loses_cpu(void)
{
    bool has_lost = ledger.lost_ns > lost_before;

    lost_before = ledger.lost_ns;
    return has_lost || has_ignored;
}

/* The kernel's answer is about the reader's pid namespace, whatever procfs it reads. */
pid_t hutch_sample_last_born(void)
{
    struct procs procs;
    char buf[128];
    const char *number = NULL;

    hutch_procs_open(&procs);
    if (procs.fd >= 0 && read_text(procs.fd, ".", "loadavg", buf, sizeof(buf)) == 0)
        number = strrchr(buf, ' ');
    hutch_procs_close(&procs);
    return number ? atoi(number + 1) : 0;
}
