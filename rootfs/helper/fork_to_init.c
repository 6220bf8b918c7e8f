/* fork_to_init.c - a copy of this process that is a child of process 1: a program that waits for its children does not
 * see it.
 *
 * The usual way, two forks in a row, copies the page tables twice. Here the process in between shares all memory
 * with its parent, as after vfork(2); libc's own fork(2), which libc and its fork handlers know of, is called there
 * (see rootfs/helper/helper.c, which makes workers like this). */
#include "rootfs/helper/rseq.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int hutch_fork_to_init(void);

extern void PyOS_BeforeFork(void) __attribute__((weak));
extern void PyOS_AfterFork_Parent(void) __attribute__((weak));
extern void PyOS_AfterFork_Child(void) __attribute__((weak));

/* clone(2), as a worker's filter forbids clone3(2). No function may return between the call's two returns. */
static inline __attribute__((always_inline)) long clone_here(void)
{
    long ret;
#if defined(__x86_64__)
    register long r10 __asm__("r10") = 0, r8 __asm__("r8") = 0;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(SYS_clone), "D"(CLONE_VM | CLONE_VFORK), "S"(0), "d"(0), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = SYS_clone, x0 __asm__("x0") = CLONE_VM | CLONE_VFORK, x1 __asm__("x1") = 0;
    register long x2 __asm__("x2") = 0, x3 __asm__("x3") = 0, x4 __asm__("x4") = 0;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    ret = x0;
#else
#error "clone for this architecture"
#endif
    return ret;
}

/* The process between this one and the copy. */
struct between {
    volatile pid_t pid;
    volatile int errnum; /* of its fork(2); 0 when that went well */
};

/* 0 in the copy, whose stack is a copy, too. */
static __attribute__((noinline)) long fork_in_between(struct between *between)
{
    long pid = clone_here();

    if (pid == 0) {
        pid_t copy;

        between->pid = getpid();
        copy = fork();
        if (copy == 0)
            return 0;
        between->errnum = copy < 0 ? errno : 0;
        _exit(0);
    }
    return pid;
}

/* Until the copy is a child of process 1: init takes no other process for a worker (sandbox/init.c). */
static void wait_for_process_1(pid_t between)
{
    struct timespec pause = { .tv_nsec = 100000 };

    for (unsigned long turns = 0; getppid() == between; turns++)
        if (turns < 100)
            sched_yield();
        else
            nanosleep(&pause, NULL);
}

/* 1 in the copy, 0 in the caller; or -errno. Of the threads the copy has the calling one. */
int hutch_fork_to_init(void)
{
    struct between between = { .errnum = EAGAIN };
    long pid;

    if (PyOS_BeforeFork)
        PyOS_BeforeFork();
    pid = fork_in_between(&between);
    if (pid == 0) {
        hutch_rseq_renew();
        wait_for_process_1(between.pid);
        if (PyOS_AfterFork_Child)
            PyOS_AfterFork_Child();
        return 1;
    }
    if (pid > 0)
        TEMP_FAILURE_RETRY(waitpid((pid_t)pid, NULL, __WALL));
    if (PyOS_AfterFork_Parent)
        PyOS_AfterFork_Parent();
    return pid < 0 ? (int)pid : -between.errnum;
}
