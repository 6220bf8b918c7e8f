/* failpoint.h - makes the nth allocation, or the nth call that wants a descriptor or a change of the disk, of this
 * program fail. It defines those functions of libc for the one program that includes it; nothing of the product knows
 * of it. Calls are counted while a failpoint is armed, in this process alone. */
#ifndef HUTCH_TEST_FAILPOINT_H
#define HUTCH_TEST_FAILPOINT_H

/* Included before all else: libc's checked versions of the calls would be other functions. */
#undef _FORTIFY_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* A sanitizer has an allocator of its own. */
#if defined(__SANITIZE_ADDRESS__)
#define FAILPOINT_HAS_MALLOC false
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FAILPOINT_HAS_MALLOC false
#else
#define FAILPOINT_HAS_MALLOC true
#endif
#else
#define FAILPOINT_HAS_MALLOC true
#endif

enum failpoint_kind {
    FAILPOINT_ALLOCATION,
    FAILPOINT_DESCRIPTOR, /* open, socketpair, pipe, a copy: EMFILE */
    FAILPOINT_DISK,       /* mkdir, rename, write: ENOSPC */
    FAILPOINT_FORK,       /* EAGAIN */
    FAILPOINT_COUNT
};
static const char *const failpoint_names[] = { "allocation", "descriptor", "disk", "fork" };

static struct {
    bool is_armed;
    enum failpoint_kind kind;
    unsigned first, n; /* the calls that fail: from this one on, from 1, so many */
    unsigned seen;     /* calls of the kind since it was armed */
    pid_t pid;
    long blocks;       /* of memory that were allocated and not freed, armed or not */
} failpoint;

static inline void failpoint_arm(enum failpoint_kind kind, unsigned first, unsigned n)
{
    failpoint.kind = kind;
    failpoint.first = first;
    failpoint.n = n;
    failpoint.seen = 0;
    failpoint.pid = getpid();
    failpoint.is_armed = true;
}

/* Whether one has failed; until then nothing more is to be tried. */
static inline bool failpoint_disarm(void)
{
    failpoint.is_armed = false;
    return failpoint.seen >= failpoint.first;
}

static bool failpoint_fails(enum failpoint_kind kind, int errnum)
{
    if (!failpoint.is_armed || failpoint.kind != kind || failpoint.pid != getpid())
        return false;
    failpoint.seen++;
    if (failpoint.seen < failpoint.first || failpoint.seen - failpoint.first >= failpoint.n)
        return false;
    errno = errnum;
    return true;
}

#if FAILPOINT_HAS_MALLOC
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);
void __libc_free(void *block);

/* Weak, so that a compiler assumes nothing of them. */
__attribute__((weak)) void *malloc(size_t size)
{
    void *block = failpoint_fails(FAILPOINT_ALLOCATION, ENOMEM) ? NULL : __libc_malloc(size);

    failpoint.blocks += block != NULL;
    return block;
}

__attribute__((weak)) void *calloc(size_t n, size_t size)
{
    void *block = failpoint_fails(FAILPOINT_ALLOCATION, ENOMEM) ? NULL : __libc_calloc(n, size);

    failpoint.blocks += block != NULL;
    return block;
}

__attribute__((weak)) void *realloc(void *old, size_t size)
{
    void *block = failpoint_fails(FAILPOINT_ALLOCATION, ENOMEM) ? NULL : __libc_realloc(old, size);

    failpoint.blocks += !old && block;
    return block;
}

void free(void *block)
{
    failpoint.blocks -= block != NULL;
    __libc_free(block);
}
#endif

static int failpoint_openat(int dirfd, const char *path, int flags, va_list args)
{
    mode_t mode = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t) : 0;

    if (failpoint_fails(FAILPOINT_DESCRIPTOR, EMFILE))
        return -1;
    return (int)syscall(SYS_openat, dirfd, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list args;
    int fd;

    va_start(args, flags);
    fd = failpoint_openat(AT_FDCWD, path, flags, args);
    va_end(args);
    return fd;
}

int openat(int dirfd, const char *path, int flags, ...)
{
    va_list args;
    int fd;

    va_start(args, flags);
    fd = failpoint_openat(dirfd, path, flags, args);
    va_end(args);
    return fd;
}

int socketpair(int domain, int type, int protocol, int ends[2])
{
    return failpoint_fails(FAILPOINT_DESCRIPTOR, EMFILE) ? -1
                                                         : (int)syscall(SYS_socketpair, domain, type, protocol, ends);
}

int pipe2(int ends[2], int flags)
{
    return failpoint_fails(FAILPOINT_DESCRIPTOR, EMFILE) ? -1 : (int)syscall(SYS_pipe2, ends, flags);
}

int epoll_create1(int flags)
{
    return failpoint_fails(FAILPOINT_DESCRIPTOR, EMFILE) ? -1 : (int)syscall(SYS_epoll_create1, flags);
}

int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
    if (op == EPOLL_CTL_ADD && failpoint_fails(FAILPOINT_DESCRIPTOR, ENOSPC))
        return -1;
    return (int)syscall(SYS_epoll_ctl, epfd, op, fd, event);
}

int timerfd_create(clockid_t clock, int flags)
{
    return failpoint_fails(FAILPOINT_DESCRIPTOR, EMFILE) ? -1 : (int)syscall(SYS_timerfd_create, clock, flags);
}

int memfd_create(const char *name, unsigned flags)
{
    return failpoint_fails(FAILPOINT_DESCRIPTOR, EMFILE) ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}

int dup(int fd)
{
    return failpoint_fails(FAILPOINT_DESCRIPTOR, EMFILE) ? -1 : (int)syscall(SYS_dup, fd);
}

int fcntl(int fd, int command, ...)
{
    va_list args;
    long argument;

    va_start(args, command);
    argument = va_arg(args, long);
    va_end(args);
    if ((command == F_DUPFD_CLOEXEC || command == F_DUPFD) && failpoint_fails(FAILPOINT_DESCRIPTOR, EMFILE))
        return -1;
    return (int)syscall(SYS_fcntl, fd, command, argument);
}

int mkdirat(int dirfd, const char *path, mode_t mode)
{
    return failpoint_fails(FAILPOINT_DISK, ENOSPC) ? -1 : (int)syscall(SYS_mkdirat, dirfd, path, mode);
}

int renameat(int from_dirfd, const char *from, int to_dirfd, const char *to)
{
    return failpoint_fails(FAILPOINT_DISK, ENOSPC) ? -1
                                                   : (int)syscall(SYS_renameat2, from_dirfd, from, to_dirfd, to, 0);
}

int renameat2(int from_dirfd, const char *from, int to_dirfd, const char *to, unsigned flags)
{
    return failpoint_fails(FAILPOINT_DISK, ENOSPC)
               ? -1
               : (int)syscall(SYS_renameat2, from_dirfd, from, to_dirfd, to, flags);
}

ssize_t write(int fd, const void *data, size_t len)
{
    return failpoint_fails(FAILPOINT_DISK, ENOSPC) ? -1 : syscall(SYS_write, fd, data, len);
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
                char *const argv[], char *const envp[])
{
    static int (*libc_spawn)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
                             char *const[], char *const[]);

    if (failpoint_fails(FAILPOINT_FORK, EAGAIN))
        return EAGAIN;
    if (!libc_spawn)
        *(void **)&libc_spawn = dlsym(RTLD_NEXT, "posix_spawn");
    return libc_spawn(pid, path, actions, attr, argv, envp);
}

#endif
