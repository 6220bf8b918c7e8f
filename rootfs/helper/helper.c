/* helper.c - the part of a zygote that Python cannot do: fork a process into a sandbox that was built elsewhere.
 *
 * Loaded by rootfs/python/zygote/main.py inside an image, with whatever libc that has: it needs no library, names no
 * version of any symbol, and uses nothing but POSIX and system calls. The confinement of a worker is sandbox/worker.c
 * itself, compiled in; so is what it stands on.
 *
 * How a worker comes about. All but the last share the zygote's memory, so only one copy of its page tables is made:
 *
 *   zygote   no capabilities; the same host user as the owner of the sandbox's user namespace, which may therefore join
 *            it
 *   joiner   CLONE_VM|CLONE_VFORK; setns(2) into the sandbox: a full set of capabilities there, and children in its pid
 *            namespace
 *   forker   likewise, cloned into the sandbox's cgroup; in the pid namespace, so that what it leaves behind is init's
 *   worker   fork(2), libc's own, so that libc and its fork handlers know of it. forker and joiner end; init is its
 *            parent. It becomes the sandbox's user, where that is not the zygote's
 *
 * The zygote is suspended until the joiner has ended. */
#include "rootfs/helper/own_proc.h"
#include "rootfs/helper/rseq.h"
#include "sandbox/fd.h"
#include "sandbox/fdpass.h"
#include "sandbox/zygote_wire.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int hutch_zygote_serve(char *text, size_t size);
EXPORT int hutch_zygote_ready(const char *missing);
void hutch_zygote_measure(bool is_more);
EXPORT void hutch_zygote_be_born(void);
EXPORT int hutch_worker_ready(void);

#define ORDER_FDS 7
#define HOLDER_TURNS 100000 /* checks of a process that has four system calls to make; most of them 0.1 ms apart */
#define ORDER_MAX (sizeof(struct zygote_request) + ZYGOTE_TEXT_MAX)

/* The interpreter's own hooks, there in every Python since 3.7; found by the dynamic linker, so there is nothing to
 * compile against. Weak: a process without Python can use this file too. */
extern void PyOS_BeforeFork(void) __attribute__((weak));
extern void PyOS_AfterFork_Parent(void) __attribute__((weak));
extern void PyOS_AfterFork_Child(void) __attribute__((weak));

struct fork_request {
    uint32_t namespaces; /* CLONE_NEW..., to join */
    int pidfd;           /* of the sandbox's init, which has them */
    int cgroup_fd;       /* -1 without */
    pid_t worker;        /* as the sandbox has it */
    struct hutch_err err;
    bool is_joined, is_forked;
};

/* clone3(2) with a shared stack, as vfork(2): no function may return between the two returns of the call, so it stands
 * inline in its caller. */
static inline __attribute__((always_inline)) long clone_here(struct clone_args *args)
{
    long ret;
#if defined(__x86_64__)
    __asm__ volatile("syscall" : "=a"(ret) : "a"(SYS_clone3), "D"(args), "S"(sizeof(*args)) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = SYS_clone3, x0 __asm__("x0") = (long)args, x1 __asm__("x1") = sizeof(*args);
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1) : "memory");
    ret = x0;
#else
#error "clone3 for this architecture"
#endif
    return ret;
}

/* Runs @body in a child that shares all memory with the caller, and waits for its end. In that child it does not
 * return; in a process that @body forks it does, with what @body returned: there the stack is a copy. The statement
 * after the call keeps the compiler from jumping there instead, over the frame that the suspended parent still
 * needs. */
static __attribute__((noinline)) long in_shared_child(struct clone_args *args, long (*body)(struct fork_request *),
                                                      struct fork_request *request)
{
    long pid = clone_here(args);

    if (pid == 0) {
        long ret = body(request);

        __asm__ volatile("" ::: "memory");
        return ret;
    }
    return pid;
}

static long run_forker(struct fork_request *request)
{
    pid_t pid;

    /* Only now: seen from a namespace that begins at its group, the zygote's own group would not exist. */
    if ((request->namespaces & CLONE_NEWCGROUP) && setns(request->pidfd, CLONE_NEWCGROUP) < 0) {
        hutch_err_set(&request->err, errno, "join the sandbox's cgroup namespace");
        _exit(1);
    }
    pid = fork();
    if (pid == 0)
        return 0;
    if (pid < 0)
        hutch_err_set(&request->err, errno, "fork the worker");
    request->worker = pid;
    request->is_forked = pid > 0;
    _exit(pid < 0);
}

static long run_joiner(struct fork_request *request)
{
    struct clone_args args = { .flags = CLONE_VM | CLONE_VFORK, .exit_signal = SIGCHLD };
    long pid;
    int status;

    /* A zygote that hangs because this process does is killed, and this one with it. New capabilities take the wish
     * away: prctl(2). */
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (setns(request->pidfd, (int)(request->namespaces & ~(uint32_t)CLONE_NEWCGROUP)) < 0) {
        hutch_err_set(&request->err, errno, "join the sandbox's namespaces");
        _exit(1);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    request->is_joined = true;
    if (request->cgroup_fd >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (__u64)request->cgroup_fd;
    }
    pid = in_shared_child(&args, run_forker, request);
    if (pid == 0)
        return 0; /* the worker */
    if (pid < 0)
        hutch_err_set(&request->err, (int)-pid, "make a process in the sandbox's cgroup");
    else
        waitpid((pid_t)pid, &status, __WALL);
    _exit(0);
}

/* 0 in the worker; its pid in the zygote, or -1. */
static pid_t fork_into(struct fork_request *request)
{
    struct clone_args args = { .flags = CLONE_VM | CLONE_VFORK, .exit_signal = SIGCHLD };
    long pid = in_shared_child(&args, run_joiner, request);
    int status;

    if (pid == 0)
        return 0;
    if (pid < 0)
        return hutch_err_set(&request->err, (int)-pid, "make a process beside the zygote");
    waitpid((pid_t)pid, &status, __WALL);
    if (request->is_forked)
        return request->worker;
    if (!request->err.msg[0])
        hutch_err_set(&request->err, 0, "the process that %s ended with status %#x",
                      request->is_joined ? "forks a worker" : "joins the sandbox", (unsigned)status);
    return -1;
}

static int send_hello(enum worker_says what, int sock, pid_t holder, const struct hutch_err *err)
{
    struct worker_hello hello = { .what = what, .holder_pid = holder };

    if (err)
        hello.err = *err;
    return hutch_fdpass_send(sock, &hello, sizeof(hello), NULL, 0, 0) == sizeof(hello) ? 0 : -1;
}

static pid_t holder_pid;

#if defined(__x86_64__)
/* All that the memory holder may do. Its memory is the worker's, so the worker can make it run anything. */
static const struct sock_filter holder_filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 5),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pause, 2, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_restart_syscall, 1, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};
#endif

/* The memory holder: a process that has the worker's memory and sleeps. When the worker ends, the kernel can report its
 * end at once, and taking the memory down, which takes a millisecond and more, is left to the end of the sandbox. The
 * holder has given up what the worker has given up, has no descriptors, and can make no system call but pause(2). It
 * runs on the worker's stack without touching it: every signal is blocked, and its code uses registers only. A run
 * works without a holder, so only one that was started and is not locked is an error. */
static int make_holder(struct hutch_err *err)
{
#if defined(__x86_64__)
    static const struct sock_fprog filter = { ARRAY_SIZE(holder_filter), (struct sock_filter *)holder_filter };
    unsigned long all = ~0ul, old;
    register const struct sock_fprog *r12 __asm__("r12") = &filter;
    static volatile int is_locked;
    register volatile int *r13 __asm__("r13") = &is_locked;
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    long pid;

    /* The holder has to be a child of init, as the worker is once the forker has ended. */
    for (int i = 0; i < 10000 && getppid() != 1; i++)
        sched_yield();
    if (getppid() != 1)
        return 0;
    if (syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &old, sizeof(all)) < 0)
        return hutch_err_set(err, errno, "block signals");
    __asm__ volatile("syscall\n"
                     "test %%rax, %%rax\n"
                     "jnz 3f\n"
                     "mov %[close_range], %%eax\n"
                     "xor %%edi, %%edi\n"
                     "mov $-1, %%esi\n"
                     "xor %%edx, %%edx\n"
                     "syscall\n"
                     "test %%rax, %%rax\n"
                     "jnz 2f\n"
                     "mov %[seccomp], %%eax\n"
                     "mov %[set_filter], %%edi\n"
                     "xor %%esi, %%esi\n"
                     "mov %%r12, %%rdx\n"
                     "syscall\n"
                     "test %%rax, %%rax\n"
                     "jnz 2f\n"
                     "movl $1, (%%r13)\n"
                     "1: mov %[pause], %%eax\n"
                     "syscall\n"
                     "cmp $-4, %%rax\n" /* EINTR; anything else would come at once again */
                     "je 1b\n"
                     "2: mov %[exit], %%eax\n"
                     "xor %%edi, %%edi\n"
                     "syscall\n"
                     "hlt\n"
                     "3:\n"
                     : "=a"(pid)
                     : "a"(SYS_clone), "D"(CLONE_VM | CLONE_PARENT), "S"(0), "d"(0), "r"(r10), "r"(r8), "r"(r12),
                       "r"(r13), [close_range] "i"(SYS_close_range), [seccomp] "i"(SYS_seccomp),
                       [set_filter] "i"(SECCOMP_SET_MODE_FILTER), [pause] "i"(SYS_pause), [exit] "i"(SYS_exit_group)
                     : "rcx", "r11", "memory", "cc");
    if (syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, sizeof(old)) < 0)
        return hutch_err_set(err, errno, "unblock signals");
    if (pid <= 0)
        return 0;
    for (unsigned long turns = 0; !is_locked; turns++) { /* before that, no foreign code may have this memory */
        struct timespec pause = { .tv_nsec = 100000 };

        if (turns < 1000)
            sched_yield();
        else
            nanosleep(&pause, NULL);
        if (turns == HOLDER_TURNS || kill((pid_t)pid, 0) < 0)
            return hutch_err_set(err, ETIMEDOUT, "wait for the process that holds the memory");
    }
    holder_pid = (pid_t)pid;
#endif
    (void)err;
    return 0;
}

/* By the system calls: libc's functions tell other threads, and there are none. */
static int become_user(const struct worker_plan *plan, struct hutch_err *err)
{
    if (plan->uid == 0)
        return 0;
    if (syscall(SYS_setresgid, plan->gid, plan->gid, plan->gid) < 0)
        return hutch_err_set(err, errno, "become gid %u", plan->gid);
    if (syscall(SYS_setresuid, plan->uid, plan->uid, plan->uid) < 0)
        return hutch_err_set(err, errno, "become uid %u", plan->uid);
    return 0;
}

/* The memory that zygote and joiner share became undumpable when the joiner joined, and a change of user makes it so,
 * too: prctl(2). Only init and what the worker makes itself can reach it. */
static int make_dumpable(struct hutch_err *err)
{
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        return hutch_err_set(err, errno, "make the worker's own /proc entries its own");
    return 0;
}

/* In the fresh worker: confined, or dead. */
static void confine(const struct zygote_request *request, const int *fds, const struct sock_filter *program)
{
    struct seccomp_program seccomp = { (struct sock_filter *)program, request->text_len / sizeof(*program) };
    struct worker_gear gear = { .plan = request->plan,
                                .stdio = { fds[2], fds[3], fds[4] },
                                .report_fd = fds[1],
                                .landlock_fd = request->plan.has_landlock ? fds[5] : -1,
                                .cwd = "/",
                                .seccomp = &seccomp,
                                .before_filter = make_holder };
    struct hutch_err err = { 0 };

    if (become_user(&request->plan, &err) == 0 && make_dumpable(&err) == 0 && hutch_worker_confine(&gear, &err) == 0)
        return;
    if (send_hello(WORKER_FAILED, fds[1], 0, &err) < 0) /* closed by a late step: then it is in its place */
        send_hello(WORKER_FAILED, ZYGOTE_SOCKET_FD, 0, &err);
    _exit(1);
}

static void send_reply(uint32_t what, uint32_t id, pid_t pid, const struct hutch_err *err)
{
    struct zygote_reply reply = { .what = what, .id = id, .pid = pid };

    if (err)
        reply.err = *err;
    hutch_fdpass_send(ZYGOTE_SOCKET_FD, &reply, sizeof(reply), NULL, 0, 0); /* so fails the next receive */
}

static void close_all(int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hutch_fd_closep(&fds[i]);
}

/* True in the new worker. */
static bool make_worker(const struct zygote_request *request, const void *text, int *fds, size_t n_fds)
{
    struct fork_request fork_request = { .namespaces = request->plan.namespaces, .cgroup_fd = -1 };
    size_t want = 5 + (request->plan.has_landlock != 0) + (request->plan.has_cgroup != 0);
    pid_t pid;

    if (n_fds != want || request->text_len % sizeof(struct sock_filter) ||
        !request->plan.has_seccomp != !request->text_len) {
        hutch_err_set(&fork_request.err, EPROTO, "an order with %zu descriptors, %zu are wanted", n_fds, want);
        send_reply(ZYGOTE_FAILED, request->id, 0, &fork_request.err);
        return false;
    }
    fork_request.pidfd = fds[0];
    if (request->plan.has_cgroup)
        fork_request.cgroup_fd = fds[n_fds - 1];
    if (PyOS_BeforeFork)
        PyOS_BeforeFork();
    pid = fork_into(&fork_request);
    if (pid == 0) {
        hutch_rseq_renew();
        confine(request, fds, text);
        if (PyOS_AfterFork_Child)
            PyOS_AfterFork_Child();
        return true;
    }
    if (PyOS_AfterFork_Parent)
        PyOS_AfterFork_Parent();
    send_reply(pid < 0 ? ZYGOTE_FAILED : ZYGOTE_FORKED, request->id, pid, pid < 0 ? &fork_request.err : NULL);
    return false;
}

/* True in the new zygote. */
static bool make_zygote(const struct zygote_request *request, int *fds, size_t n_fds)
{
    struct hutch_err err = { 0 };
    pid_t pid;

    if (n_fds != 1) {
        hutch_err_set(&err, EPROTO, "an order with %zu descriptors, 1 is wanted", n_fds);
        send_reply(ZYGOTE_FAILED, request->id, 0, &err);
        return false;
    }
    if (PyOS_BeforeFork)
        PyOS_BeforeFork();
    pid = fork();
    if (pid == 0) {
        if (dup3(fds[0], ZYGOTE_SOCKET_FD, O_CLOEXEC) < 0 || syscall(SYS_close_range, ZYGOTE_SOCKET_FD + 1, ~0u, 0) < 0)
            _exit(1);
        hutch_zygote_be_born();
        if (PyOS_AfterFork_Child)
            PyOS_AfterFork_Child();
        return true;
    }
    if (pid < 0)
        hutch_err_set(&err, errno, "fork a zygote");
    if (PyOS_AfterFork_Parent)
        PyOS_AfterFork_Parent();
    send_reply(pid < 0 ? ZYGOTE_FAILED : ZYGOTE_FORKED, request->id, pid, pid < 0 ? &err : NULL);
    return false;
}

/* Serves the engine, for as long as it lives. 0: it is gone. 1: this is a worker now, confined, and waits for
 * hutch_worker_ready(). 2: this is a further zygote; @text (of @size bytes, NUL-terminated) says what it is to
 * import. */
EXPORT int hutch_zygote_serve(char *text, size_t size)
{
    static char order[ORDER_MAX] __attribute__((aligned(16)));
    const struct zygote_request *request = (const struct zygote_request *)order;

    for (;;) {
        int fds[ORDER_FDS];
        size_t n_fds;
        ssize_t n = hutch_fdpass_receive(ZYGOTE_SOCKET_FD, order, sizeof(order), fds, ORDER_FDS, &n_fds, 0);
        const char *tail = order + sizeof(*request);

        if (n <= 0)
            return 0;
        while (waitpid(-1, NULL, WNOHANG) > 0) /* zygotes that were forked from this one and are over */
            ;
        if ((size_t)n < sizeof(*request) || (size_t)n - sizeof(*request) != request->text_len) {
            close_all(fds, n_fds);
            continue;
        }
        if (request->what == ZYGOTE_PING)
            send_reply(ZYGOTE_PONG, 0, 0, NULL);
        if (request->what == ZYGOTE_WORKER && make_worker(request, tail, fds, n_fds))
            return 1;
        if (request->what == ZYGOTE_ZYGOTE && request->text_len < size && make_zygote(request, fds, n_fds)) {
            memcpy(text, tail, request->text_len);
            text[request->text_len] = '\0';
            return 2;
        }
        close_all(fds, n_fds);
    }
}

/* What is not answered: the engine may want a sign of life before it has answered itself. */
static void await_own_proc(void)
{
    struct zygote_request request;

    for (;;) {
        int fds[OWN_PROC_FILES];
        size_t n_fds;

        if (hutch_fdpass_receive(ZYGOTE_SOCKET_FD, &request, sizeof(request), fds, OWN_PROC_FILES, &n_fds, 0) !=
            (ssize_t)sizeof(request))
            _exit(1); /* the engine is gone, or has given this one up */
        if (request.what == ZYGOTE_PROC) {
            hutch_own_proc_take(fds, (unsigned)n_fds);
            return;
        }
        if (request.what == ZYGOTE_PING)
            send_reply(ZYGOTE_PONG, 0, 0, NULL);
        close_all(fds, n_fds);
    }
}

/* The engine learns which process it is that may import for minutes, or hang. */
EXPORT void hutch_zygote_be_born(void)
{
    struct zygote_reply reply = { .what = ZYGOTE_BORN, .wants_proc = hutch_own_proc_is_missing() };
    int dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);

    /* The files are the engine's to open as long as the process is dumpable. A zygote that was forked from one that has
     * made workers is not. */
    if (reply.wants_proc && dumpable == 0)
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    hutch_fdpass_send(ZYGOTE_SOCKET_FD, &reply, sizeof(reply), NULL, 0, 0); /* so fails the next receive */
    if (!reply.wants_proc)
        return;
    await_own_proc();
    if (dumpable == 0)
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

static uint64_t memory;

/* Before memory is moved into a file, which is the memory of no process (freeze.c). @is_more: some was moved before,
 * and counts besides. */
void hutch_zygote_measure(bool is_more)
{
    uint64_t kib;

    hutch_own_proc_status("RssAnon:", &kib);
    memory = (is_more ? memory : 0) + (kib << 10);
}

/* Tells the engine that this zygote has imported what it was to, but for @missing, one name a line. */
EXPORT int hutch_zygote_ready(const char *missing)
{
    static struct zygote_reply reply;

    memset(&reply, 0, sizeof(reply));
    reply.what = ZYGOTE_READY;
    reply.memory = memory;
    strncpy(reply.modules, missing ? missing : "", sizeof(reply.modules) - 1);
    return hutch_fdpass_send(ZYGOTE_SOCKET_FD, &reply, sizeof(reply), NULL, 0, 0) == sizeof(reply) ? 0 : -1;
}

/* Tells the engine that this worker can be given its code. */
EXPORT int hutch_worker_ready(void)
{
    return send_hello(WORKER_READY, ZYGOTE_SOCKET_FD, holder_pid, NULL);
}
