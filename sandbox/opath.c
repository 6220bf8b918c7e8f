#include "sandbox/opath.h"

#include "sandbox/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452 /* the same number on every architecture, Linux 6.6 */
#endif

#define OPEN_DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)

int hutch_opath_chmod(int fd, mode_t mode)
{
    char path[sizeof("/proc/self/fd/") + 3 * sizeof(int)];

    if (syscall(SYS_fchmodat2, fd, "", (unsigned)mode, AT_EMPTY_PATH) == 0)
        return 0;
    /* EPERM is what some container runtimes' filters say to a call they do not know. */
    if (errno != ENOSYS && errno != EPERM)
        return -1;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (chmod(path, mode) == 0)
        return 0;
    if (errno == ENOENT)
        errno = ENOSYS;
    return -1;
}

/* Adds @bits to the mode of the caller's own directory behind @fd. 0 also when there was nothing to do. */
static int unlock(int fd, mode_t bits)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -1;
    if (!S_ISDIR(st.st_mode)) {
        errno = ENOTDIR;
        return -1;
    }
    if ((st.st_mode & bits) == bits || st.st_uid != geteuid())
        return 0;
    return hutch_opath_chmod(fd, (st.st_mode & 07777) | bits);
}

/* Leaves no time of access behind where that is allowed, to owners: it would show code inside how far a walk has
 * come. */
static int open_dir(int dirfd, const char *name)
{
    int fd = openat(dirfd, name, OPEN_DIR_FLAGS | O_NOATIME);

    return fd >= 0 || errno != EPERM ? fd : openat(dirfd, name, OPEN_DIR_FLAGS);
}

int hutch_opath_open_dir(int dirfd, const char *name, mode_t unlock_bits)
{
    auto_fd path_fd = -1;
    auto_fd fd = open_dir(dirfd, name);
    int target = dirfd;

    if (fd >= 0) {
        /* Readable is not all: without search permission every look-up inside would fail. A refusal
         * here is not an error yet, the caller meets it at the first entry. */
        if (unlock_bits != 0)
            (void)unlock(fd, unlock_bits);
        return hutch_fd_take(&fd);
    }
    if (errno == ELOOP)
        errno = ENOTDIR;
    if (errno != EACCES || unlock_bits == 0)
        return -1;

    if (strcmp(name, ".") != 0) {
        path_fd = openat(dirfd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (path_fd < 0)
            return -1;
        target = path_fd;
    }
    if (unlock(target, unlock_bits) < 0)
        return -1;
    return open_dir(target, ".");
}
