/* floor.c - what the kernel alone costs: a yardstick that no code of hutch's is part of.
 *
 * What has to be done for a fresh sandbox around a warm process, whoever does it, and nothing else:
 *
 *   init      clone3(2) with user, mount, pid, net, ipc, uts and cgroup namespaces; id maps; a read-only root, proc and
 *             two tmpfs; pivot_root(2), and the host's tree detached
 *   worker    forked from a process that holds so much memory (the "holder"), into those namespaces, as a child of
 *             init; loads a seccomp filter and waits
 *   message   one to the worker and its answer: "echo". With the worker's end after that, seen by init's wait and told
 *             by it: "exit". The same where a second process shares the worker's memory, so that its end need not wait
 *             until the kernel has taken that apart: "pinned"
 *   teardown  init ends, everything in it dies, init is reaped
 *
 * Needs no privilege; called by root, it becomes nobody first. Prints one JSON object. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOBODY      65534
#define INSIDE_ID   1000
#define ANSWER      7 /* exit code of a worker that was told to end */
#define STACK_BYTES 65536
#define PAGE_BYTES  4096
#define MAX_LANES   64
#define MIN_INSNS   16

enum variant { ECHO, EXIT, PINNED, VARIANTS };
static const char *const variant_names[VARIANTS] = { "echo", "exit", "pinned" };

struct settings {
    unsigned memory_mb; /* of the holder, anonymous and touched */
    unsigned areas;     /* mappings that this lies in */
    unsigned n_insns;   /* of the seccomp filter */
    unsigned rounds;    /* of each variant */
    unsigned lanes;     /* 0: tries some */
    unsigned rest_us;   /* the machine's before each message */
    double seconds;     /* of measuring a rate */
};

static _Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static _Noreturn void die(const char *fmt, ...)
{
    int e = errno;
    va_list args;

    fprintf(stderr, "floor: ");
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fprintf(stderr, ": %s\n", strerror(e));
    exit(1);
}

static double now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static void write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        die("write '%s'", path);
    close(fd);
}

static void write_maps(unsigned inside, unsigned uid, unsigned gid)
{
    char text[32];

    write_text("/proc/self/setgroups", "deny"); /* before gid_map: user_namespaces(7) */
    snprintf(text, sizeof(text), "%u %u 1\n", inside, gid);
    write_text("/proc/self/gid_map", text);
    snprintf(text, sizeof(text), "%u %u 1\n", inside, uid);
    write_text("/proc/self/uid_map", text);
}

/* --- init --- */

static int new_fs(const char *type, unsigned attrs)
{
    int fs = fsopen(type, FSOPEN_CLOEXEC);
    int fd = fs < 0 || fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0 ? -1 : fsmount(fs, FSMOUNT_CLOEXEC, attrs);

    if (fd < 0)
        die("make a %s", type);
    close(fs);
    return fd;
}

static void attach(int fd, int dirfd, const char *path)
{
    if (move_mount(fd, "", dirfd, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        die("mount on '%s'", path);
    close(fd);
}

static void build_mounts(void)
{
    struct mount_attr read_only = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };
    const unsigned attrs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    int root = open_tree(AT_FDCWD, "/tmp", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    if (root < 0 || mount_setattr(root, "", AT_EMPTY_PATH, &read_only, sizeof(read_only)) < 0)
        die("open the root tree");
    if (move_mount(root, "", AT_FDCWD, "/tmp", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        die("attach the root tree");
    attach(new_fs("proc", attrs | MOUNT_ATTR_NOEXEC), root, "proc"); /* while the host's proc is in sight */
    attach(new_fs("tmpfs", attrs), root, "tmp");
    attach(new_fs("tmpfs", attrs), root, "run");
    if (fchdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        die("pivot to the new root");
    close(root);
}

static _Noreturn void init_main(int control)
{
    siginfo_t ended = { 0 };
    char byte = 'r';

    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        die("tie init to its parent");
    write_maps(INSIDE_ID, 0, 0);
    build_mounts();
    if (write(control, &byte, 1) != 1)
        _exit(1);
    if (read(control, &byte, 1) != 1) /* the worker is our child now, or the driver has gone */
        _exit(1);
    if (waitid(P_ALL, 0, &ended, WEXITED) == 0 && write(control, &ended.si_status, sizeof(ended.si_status)) < 0)
        _exit(1);
    if (read(control, &byte, 1) < 0)
        _exit(1);
    _exit(0);
}

/* --- holder and worker --- */

struct holder {
    struct sock_fprog filter;
    int orders;
};

struct join {
    const struct holder *holder;
    int pidfd, job;
    bool is_pinned;
};

static char outer_stack[STACK_BYTES] __attribute__((aligned(16)));
static char inner_stack[STACK_BYTES] __attribute__((aligned(16)));
static char pin_stack[STACK_BYTES] __attribute__((aligned(16)));

/* So many instructions for the kernel to check and translate, of which any call runs about as many as of a binary tree:
 * when a filter is loaded, the kernel walks it once for each system call there is. */
static void make_filter(unsigned n, struct sock_fprog *ret)
{
    struct sock_filter *insns = calloc(n, sizeof(*insns));
    unsigned i = 0, depth = 8;

    if (!insns)
        die("make a filter of %u instructions", n);
    insns[i++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    while (i < depth)
        insns[i++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 10000 + i, 0, 0);
    insns[i] = (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, n - 2 - i);
    while (++i < n - 1)
        insns[i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 10000 + i, 0, 0);
    insns[n - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    *ret = (struct sock_fprog){ .len = (unsigned short)n, .filter = insns };
}

static int sleep_for_ever(void *arg)
{
    (void)arg;
    for (;;)
        syscall(SYS_pause);
    return 0;
}

static _Noreturn void worker_main(const struct join *join)
{
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct none[2] = { 0 };
    uint64_t message = (uint64_t)syscall(SYS_getpid);

    if (join->is_pinned && clone(sleep_for_ever, pin_stack + STACK_BYTES, CLONE_VM, NULL) < 0)
        _exit(1);
    if (syscall(SYS_capset, &header, none) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &join->holder->filter) < 0)
        _exit(1);
    if (write(join->job, &message, sizeof(message)) != sizeof(message) ||
        read(join->job, &message, sizeof(message)) != sizeof(message))
        _exit(1);
    message++;
    if (write(join->job, &message, sizeof(message)) != sizeof(message))
        _exit(1);
    if (message & 1) /* an even number asked for an end */
        _exit(ANSWER);
    for (;;)
        syscall(SYS_pause);
}

/* Process in the new pid namespace whose end makes the worker a child of init. It borrows the holder's memory
 * (CLONE_VM), which is copied once only: for the worker. */
static int inner_main(void *arg)
{
    long pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);

    if (pid == 0)
        worker_main(arg);
    syscall(SYS_exit_group, pid < 0);
    return 1;
}

/* Changes namespaces in the holder's place, which would not get its own back. */
static int outer_main(void *arg)
{
    const struct join *join = arg;
    int status = 1;
    pid_t pid;

    if (setns(join->pidfd, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
                               CLONE_NEWCGROUP) < 0)
        syscall(SYS_exit_group, 2);
    pid = clone(inner_main, inner_stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | SIGCHLD, arg);
    if (pid > 0)
        waitpid(pid, &status, 0); /* a zombie would hold on to the namespace */
    syscall(SYS_exit_group, pid < 0 || status != 0);
    return 1;
}

static char *fill_memory(const struct settings *settings)
{
    size_t area = (size_t)settings->memory_mb * 1024 * 1024 / settings->areas / PAGE_BYTES * PAGE_BYTES;
    char *last = NULL;

    for (unsigned i = 0; i < settings->areas && area; i++) {
        /* Two different protections in turn: neighbours that are alike would become one mapping. */
        char *p = mmap(NULL, area, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (p == MAP_FAILED)
            die("hold %u MB", settings->memory_mb);
        madvise(p, area, MADV_NOHUGEPAGE); /* an interpreter's memory is small pieces */
        for (size_t at = 0; at < area; at += PAGE_BYTES)
            p[at] = (char)(i + 1);
        if (i % 2 && mprotect(p, area, PROT_READ) < 0)
            die("hold %u areas", settings->areas);
        last = p;
    }
    return last;
}

static _Noreturn void holder_main(const struct settings *settings, int orders)
{
    struct holder holder = { .orders = orders };
    char ready = 'r';

    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        die("tie the holder to its parent");
    make_filter(settings->n_insns, &holder.filter);
    fill_memory(settings);
    if (write(orders, &ready, 1) != 1)
        _exit(1);
    for (;;) {
        union { char buf[CMSG_SPACE(2 * sizeof(int))]; struct cmsghdr align; } control;
        struct join join = { .holder = &holder };
        char what, answer;
        struct iovec iov = { &what, 1 };
        struct msghdr msg = {
            .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control)
        };
        int fds[2], status = 1;
        pid_t pid;

        if (recvmsg(orders, &msg, MSG_CMSG_CLOEXEC) <= 0)
            _exit(0);
        memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fds));
        join.pidfd = fds[0];
        join.job = fds[1];
        join.is_pinned = what == PINNED;
        pid = clone(outer_main, outer_stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | SIGCHLD, &join);
        if (pid > 0)
            waitpid(pid, &status, 0);
        close(fds[0]);
        close(fds[1]);
        answer = pid > 0 && status == 0 ? 'f' : 'x';
        if (write(orders, &answer, 1) != 1)
            _exit(1);
    }
}

/* --- the driver --- */

struct lane {
    int orders; /* to the holder */
    pid_t holder;
};

struct timing {
    double init_us, join_us, echo_us, exit_us, teardown_us;
};

static void pair(int type, int ret[2])
{
    if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ret) < 0)
        die("make a pair of sockets");
}

/* A user namespace in which we may do all this, and a mount namespace with a tree of our own for /tmp. */
static void enter_outer(void)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();

    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
        die("make a user namespace");
    write_maps(0, uid, gid);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("floor", "/tmp", "tmpfs", 0, "mode=755") < 0)
        die("make a root tree");
    if (mkdir("/tmp/proc", 0755) < 0 || mkdir("/tmp/tmp", 0755) < 0 || mkdir("/tmp/run", 0755) < 0)
        die("fill the root tree");
}

static void open_lane(const struct settings *settings, struct lane *ret)
{
    int orders[2];
    char ready;

    enter_outer();
    pair(SOCK_SEQPACKET, orders);
    ret->holder = fork();
    if (ret->holder < 0)
        die("fork");
    if (ret->holder == 0) {
        close(orders[0]);
        holder_main(settings, orders[1]);
    }
    close(orders[1]);
    ret->orders = orders[0];
    if (read(ret->orders, &ready, 1) != 1)
        die("the holder has not come up");
}

static void close_lane(struct lane *lane)
{
    close(lane->orders);
    waitpid(lane->holder, NULL, 0);
}

static pid_t clone_init(int *ret_pidfd)
{
    struct clone_args args = {
        .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
                 CLONE_NEWCGROUP | CLONE_PIDFD,
        .pidfd = (uintptr_t)ret_pidfd,
        .exit_signal = SIGCHLD,
    };

    return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

static void order_join(const struct lane *lane, enum variant variant, int pidfd, int job)
{
    union { char buf[CMSG_SPACE(2 * sizeof(int))]; struct cmsghdr align; } control = { 0 };
    char what = (char)variant;
    struct iovec iov = { &what, 1 };
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.buf, .msg_controllen = sizeof(control)
    };
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    int fds[2] = { pidfd, job };

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(c), fds, sizeof(fds));
    if (sendmsg(lane->orders, &msg, MSG_NOSIGNAL) != 1)
        die("order a worker");
}

static uint64_t take_message(int fd)
{
    uint64_t message;

    if (read(fd, &message, sizeof(message)) != sizeof(message))
        die("a worker has gone");
    return message;
}

/* One sandbox from beginning to end. */
static void live(const struct settings *settings, const struct lane *lane, enum variant variant, uint64_t number,
                 struct timing *ret)
{
    uint64_t message = number * 2 + (variant == ECHO ? 1 : 0); /* even asks for an end */
    int control[2], job[2], pidfd = -1, code;
    double start = now_us(), at;
    pid_t init;
    char byte;

    pair(SOCK_SEQPACKET, control);
    pair(SOCK_STREAM, job);
    init = clone_init(&pidfd);
    if (init < 0)
        die("make the namespaces");
    if (init == 0) {
        close(control[0]);
        init_main(control[1]);
    }
    close(control[1]);
    if (read(control[0], &byte, 1) != 1)
        die("init has failed");
    at = now_us();
    ret->init_us = at - start;

    order_join(lane, variant, pidfd, job[1]);
    close(job[1]);
    close(pidfd);
    if (take_message(job[0]) < 2)
        die("the worker is not in a pid namespace of its own");
    if (read(lane->orders, &byte, 1) != 1 || byte != 'f')
        die("the holder could not make a worker");
    ret->join_us = now_us() - at;
    if (write(control[0], &byte, 1) != 1)
        die("tell init");

    if (settings->rest_us)
        usleep(settings->rest_us);
    at = now_us();
    if (write(job[0], &message, sizeof(message)) != sizeof(message))
        die("send a message");
    if (take_message(job[0]) != message + 1)
        die("a wrong answer");
    ret->echo_us = now_us() - at;
    if (variant != ECHO) {
        if (read(control[0], &code, sizeof(code)) != sizeof(code) || code != ANSWER)
            die("the worker has not ended as it should");
        ret->exit_us = now_us() - at;
    }

    at = now_us();
    close(control[0]); /* init sees it; for a worker that still runs, or a memory holder, that is the end too */
    if (variant == ECHO)
        kill(init, SIGKILL); /* it waits for a worker that does not end */
    close(job[0]);
    if (waitpid(init, NULL, 0) != init)
        die("reap init");
    ret->teardown_us = now_us() - at;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void print_times(const char *name, double *us, unsigned n, const char *end)
{
    qsort(us, n, sizeof(*us), compare);
#define AT(share) us[(unsigned)((double)(n - 1) * (share) + 0.5)] / 1e3
    printf("    \"%s\": {\"n\": %u, \"p50\": %.4f, \"p90\": %.4f, \"p99\": %.4f, \"max\": %.4f}%s\n", name, n, AT(0.5),
           AT(0.9), AT(0.99), AT(1.0), end);
#undef AT
}

/* In a process of its own, which goes into namespaces. Times in milliseconds. */
static void measure_latency(const struct settings *settings)
{
    unsigned n = settings->rounds;
    double *times[VARIANTS], *init = calloc(n, sizeof(double)), *join = calloc(n, sizeof(double)),
                             *teardown = calloc(n, sizeof(double));
    struct timing timing = { 0 };
    struct lane lane;

    for (int v = 0; v < VARIANTS; v++)
        times[v] = calloc(n, sizeof(double));
    if (!init || !join || !teardown || !times[ECHO] || !times[EXIT] || !times[PINNED])
        die("keep %u times", n);
    open_lane(settings, &lane);
    for (unsigned i = 0; i < 20; i++)
        live(settings, &lane, PINNED, i, &timing);
    for (unsigned i = 0; i < n; i++)
        for (int v = 0; v < VARIANTS; v++) { /* in turn: what else the machine does hits all alike */
            live(settings, &lane, (enum variant)v, i, &timing);
            times[v][i] = v == ECHO ? timing.echo_us : timing.exit_us;
            if (v == EXIT) {
                init[i] = timing.init_us;
                join[i] = timing.join_us;
                teardown[i] = timing.teardown_us;
            }
        }
    close_lane(&lane);
    printf("  \"latency_ms\": {\n");
    for (int v = 0; v < VARIANTS; v++)
        print_times(variant_names[v], times[v], n, v + 1 < VARIANTS ? "," : "");
    printf("  },\n  \"building_ms\": {\n");
    print_times("init", init, n, ",");
    print_times("join", join, n, ",");
    print_times("teardown", teardown, n, "");
    printf("  },\n");
}

/* Sandboxes per second of so many lanes, each with a holder of its own and one sandbox at a time. */
static double measure_rate(const struct settings *settings, unsigned lanes)
{
    int go[2], counts[2];
    pid_t pids[MAX_LANES];
    double total = 0;
    char byte = 0;

    pair(SOCK_SEQPACKET, counts); /* a message each, and all lanes hold one end */
    pair(SOCK_SEQPACKET, go);
    fflush(stdout);
    for (unsigned i = 0; i < lanes; i++) {
        pids[i] = fork();
        if (pids[i] < 0)
            die("fork");
        if (pids[i] == 0) {
            struct timing timing;
            struct lane lane;
            uint64_t n = 0;
            double rate, start;

            open_lane(settings, &lane);
            live(settings, &lane, EXIT, 0, &timing);
            if (write(counts[1], &byte, 1) != 1 || read(go[1], &byte, 1) != 1)
                exit(1);
            for (start = now_us(); now_us() - start < settings->seconds * 1e6; n++)
                live(settings, &lane, EXIT, n, &timing);
            rate = (double)n / ((now_us() - start) / 1e6);
            if (write(counts[1], &rate, sizeof(rate)) != sizeof(rate))
                exit(1);
            close_lane(&lane);
            exit(0);
        }
    }
    close(counts[1]);
    for (unsigned i = 0; i < lanes; i++)
        if (read(counts[0], &byte, 1) != 1)
            die("a lane has not come up");
    for (unsigned i = 0; i < lanes; i++)
        if (write(go[0], &byte, 1) != 1)
            die("start a lane");
    for (unsigned i = 0; i < lanes; i++) {
        double rate;

        if (read(counts[0], &rate, sizeof(rate)) != sizeof(rate))
            die("a lane has failed");
        total += rate;
    }
    for (unsigned i = 0; i < lanes; i++)
        waitpid(pids[i], NULL, 0);
    close(counts[0]);
    close(go[0]);
    close(go[1]);
    return total;
}

/* Runs @measure in a child, which can go into namespaces without taking us along. */
static void apart(void (*measure)(const struct settings *settings), const struct settings *settings)
{
    int status;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0) {
        measure(settings);
        exit(0);
    }
    if (waitpid(pid, &status, 0) != pid || status != 0)
        exit(1);
}

static unsigned number(const char *text, unsigned min, unsigned max)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);

    if (!*text || *end || n < min || n > max) {
        fprintf(stderr, "floor: '%s' is not a number from %u to %u\n", text, min, max);
        exit(2);
    }
    return (unsigned)n;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        { "memory", required_argument, NULL, 'm' },  { "areas", required_argument, NULL, 'a' },
        { "insns", required_argument, NULL, 'i' },   { "rounds", required_argument, NULL, 'r' },
        { "seconds", required_argument, NULL, 's' }, { "lanes", required_argument, NULL, 'l' },
        { "rest", required_argument, NULL, 'w' },    { NULL, 0, NULL, 0 },
    };
    struct settings settings = { .memory_mb = 10, .areas = 1, .n_insns = 1000, .rounds = 2000, .seconds = 3 };
    unsigned cpus = (unsigned)sysconf(_SC_NPROCESSORS_ONLN), best = 0;
    double best_rate = 0;
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (c) {
        case 'm': settings.memory_mb = number(optarg, 1, 100000); break;
        case 'a': settings.areas = number(optarg, 1, 10000); break;
        case 'i': settings.n_insns = number(optarg, MIN_INSNS, BPF_MAXINSNS); break;
        case 'r': settings.rounds = number(optarg, 0, 1000000); break;
        case 's': settings.seconds = number(optarg, 0, 3600); break;
        case 'l': settings.lanes = number(optarg, 1, MAX_LANES); break;
        case 'w': settings.rest_us = number(optarg, 0, 1000000); break;
        default:
            fprintf(stderr, "usage: floor [--memory MB] [--areas N] [--insns N] [--rounds N] [--seconds S] [--lanes N] "
                            "[--rest US]\n");
            return 2;
        }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    if (geteuid() == 0) {
        if (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0)
            die("become nobody");
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); /* or /proc/self would be root's */
    }
    printf("{\n  \"memory_mb\": %u, \"areas\": %u, \"insns\": %u, \"rest_us\": %u, \"cpus\": %u,\n", settings.memory_mb,
           settings.areas, settings.n_insns, settings.rest_us, cpus);
    if (settings.rounds)
        apart(measure_latency, &settings);
    printf("  \"rates\": {");
    for (unsigned lanes = settings.lanes ? settings.lanes : cpus; settings.seconds > 0 && lanes <= MAX_LANES;
         lanes *= 2) {
        double rate = measure_rate(&settings, lanes);

        printf("%s\"%u\": %.1f", best ? ", " : "", lanes, rate);
        if (rate > best_rate) {
            best_rate = rate;
            best = lanes;
        }
        if (settings.lanes || lanes >= 4 * cpus)
            break;
    }
    printf("},\n  \"rate_per_s\": %.1f, \"lanes\": %u\n}\n", best_rate, best);
    return 0;
}
