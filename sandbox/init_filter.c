#include "sandbox/init_filter.h"

#include "sandbox/fd.h"
#include "sandbox/seccomp.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE AUDIT_ARCH_AARCH64
#else
#error "init's filter for this architecture"
#endif

#define LOAD(what)   BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, what))
#define ANSWER(what) BPF_STMT(BPF_RET | BPF_K, what)
#define ALLOW(call)  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), ANSWER(SECCOMP_RET_ALLOW)

/* Descriptors are opened for reading. The flags are in the lower half of the argument, which comes first on both
 * architectures. */
static struct sock_filter insns[] = {
    LOAD(arch),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE, 1, 0),
    ANSWER(SECCOMP_RET_KILL_PROCESS),
    LOAD(nr),
    /* the loop: what it waits for, and what it is told */
#ifdef SYS_poll
    ALLOW(poll),
#endif
    ALLOW(ppoll), ALLOW(read), ALLOW(write), ALLOW(recvfrom), ALLOW(sendto), ALLOW(sendmsg), ALLOW(restart_syscall),
    ALLOW(rt_sigreturn), ALLOW(clock_gettime), ALLOW(clock_nanosleep), ALLOW(nanosleep),
    /* the sandbox's processes */
    ALLOW(wait4), ALLOW(waitid), ALLOW(kill), ALLOW(getrusage), ALLOW(kcmp),
    ALLOW(pidfd_send_signal), /* with no signal: procs.h */
    /* what they use: /proc, and where the data directory is */
    ALLOW(close), ALLOW(fstat), ALLOW(newfstatat), ALLOW(statx), ALLOW(lseek), ALLOW(pread64), ALLOW(getdents64),
    ALLOW(readlinkat),
    /* what System V IPC holds, which takes no identifier: nothing else is asked by these, sysv.h */
    ALLOW(shmctl), ALLOW(msgctl), ALLOW(semctl),
    /* what they are told of it: /proc/meminfo */
    ALLOW(pwrite64),
    /* memory of libc */
    ALLOW(brk), ALLOW(mmap), ALLOW(munmap), ALLOW(mremap), ALLOW(madvise),
    ALLOW(exit_group),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
    LOAD(args[2]),
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, 1, 0),
    ANSWER(SECCOMP_RET_ALLOW),
    ANSWER(SECCOMP_RET_ERRNO | EPERM),
};

int hutch_init_filter_load(struct hutch_err *err)
{
    const struct seccomp_program program = { .insns = insns, .n_insns = ARRAY_SIZE(insns) };

    return hutch_seccomp_load(&program, err);
}
