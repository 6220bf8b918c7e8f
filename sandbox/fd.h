/* fd.h - who owns a descriptor or a heap block, visible where the variable is born; and the few loops
 * around read(2) and write(2) that every room needs. */
#ifndef HUTCH_FD_H
#define HUTCH_FD_H

#include "sandbox/err.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define auto_fd   __attribute__((cleanup(hutch_fd_closep))) int
#define auto_free __attribute__((cleanup(hutch_freep)))

/* An unset descriptor is -1, never 0. */
static inline void hutch_fd_closep(int *fd)
{
    int e = errno;

    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    errno = e;
}
static inline void hutch_freep(void *p)
{
    free(*(void **)p);
}
static inline int hutch_fd_take(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}

/* Whether both are the same file. False when that cannot be told. */
bool hutch_fd_is_same_file(int a, int b);

/* Writes all @len bytes, whatever write(2) takes at a time. -1 with errno set. */
int hutch_fd_write_all(int fd, const void *buf, size_t len);

/* Makes the file @name, which must not be there, with @text in it. */
int hutch_fd_write_new(int dirfd, const char *name, const char *text, mode_t mode, struct hutch_err *err);

/* Reads until end of file or @len bytes. The count, or -1 with errno set. */
ssize_t hutch_fd_read_full(int fd, void *buf, size_t len);

/* Reads the whole file behind @fd into a fresh NUL-terminated block that the caller frees.
 * Errors: EFBIG when there is more than @max bytes. @what names the file in messages. */
int hutch_fd_slurp(int fd, size_t max, const char *what, char **ret_data, size_t *ret_len, struct hutch_err *err);

/* The same for a path, which must name a regular file, FIFO, or character device (a FIFO may block). */
int hutch_fd_slurp_path(const char *path, size_t max, char **ret_data, size_t *ret_len, struct hutch_err *err);

/* Writes @text to the existing file @name below @dirfd in a single write(2), as /proc and cgroupfs ask for. */
int hutch_fd_write_file_at(int dirfd, const char *name, const char *text, struct hutch_err *err);

#endif
