/* away.c - a copy of this process that is not its child: process 1 has it, and a program that waits for its children does not see it.
 *
 * The usual way, two forks in a row, copies the page tables twice. Here what is in between shares all memory with us, as after
 * vfork(2); libc's own fork(2), which libc and its fork handlers know of, is called there (see helper.c, which makes workers
 * like this). */
#include "sandbox/fd.h"

#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int hutch_fork_away(void);

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

struct away {
    volatile pid_t between;
    volatile int errnum;
};

/* 0 in the copy, where the stack is one, too. */
static __attribute__((noinline)) long fork_beside(struct away *away)
{
    long pid = clone_here();

    if (pid == 0) {
        pid_t copy;

        away->between = getpid();
        copy = fork();
        if (copy == 0)
            return 0;
        away->errnum = copy < 0 ? errno : 0;
        _exit(0);
    }
    return pid;
}

/* Who is told of a copy looks whose child it is. */
static void wait_for_process_1(pid_t between)
{
    struct timespec pause = { .tv_nsec = 100000 };

    for (unsigned long turns = 0; getppid() == between; turns++)
        if (turns < 100)
            sched_yield();
        else
            nanosleep(&pause, NULL);
}

/* 1 in the copy, 0 here; or -errno. Of its threads a copy has the calling one. */
int hutch_fork_away(void)
{
    struct away away = { .errnum = EAGAIN };
    long pid;

    if (PyOS_BeforeFork)
        PyOS_BeforeFork();
    pid = fork_beside(&away);
    if (pid == 0) {
        wait_for_process_1(away.between);
        if (PyOS_AfterFork_Child)
            PyOS_AfterFork_Child();
        return 1;
    }
    if (pid > 0)
        TEMP_FAILURE_RETRY(waitpid((pid_t)pid, NULL, __WALL));
    if (PyOS_AfterFork_Parent)
        PyOS_AfterFork_Parent();
    return pid < 0 ? (int)pid : -away.errnum;
}
