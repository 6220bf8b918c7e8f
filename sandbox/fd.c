#include "sandbox/fd.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

bool hutch_fd_is_same_file(int a, int b)
{
    struct stat x, y;

    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int hutch_fd_write_new(int dirfd, const char *name, const char *text, mode_t mode, struct hutch_err *err)
{
    auto_fd fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);

    if (fd < 0 || hutch_fd_write_all(fd, text, strlen(text)) < 0)
        return hutch_err_set(err, errno, "write '%s'", name);
    return 0;
}

int hutch_fd_write_all(int fd, const void *buf, size_t len)
{
    const char *p = buf;

    while (len > 0) {
        ssize_t n = TEMP_FAILURE_RETRY(write(fd, p, len));

        if (n < 0)
            return -1;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

ssize_t hutch_fd_read_full(int fd, void *buf, size_t len)
{
    size_t got = 0;

    while (got < len) {
        ssize_t n = TEMP_FAILURE_RETRY(read(fd, (char *)buf + got, len - got));

        if (n < 0)
            return -1;
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

int hutch_fd_slurp(int fd, size_t max, const char *what, char **ret_data, size_t *ret_len, struct hutch_err *err)
{
    size_t cap = 0, len = 0;
    auto_free char *data = NULL;

    for (;;) {
        ssize_t n;

        if (len + 1 >= cap) {
            char *bigger;

            cap = cap ? cap * 2 : 16384;
            bigger = realloc(data, cap);
            if (!bigger)
                return hutch_err_set(err, ENOMEM, "read '%s'", what);
            data = bigger;
        }
        n = TEMP_FAILURE_RETRY(read(fd, data + len, cap - len - 1));
        if (n < 0)
            return hutch_err_set(err, errno, "read '%s'", what);
        if (n == 0)
            break;
        len += (size_t)n;
        if (len > max)
            return hutch_err_set(err, EFBIG, "read '%s' (the limit is %zu bytes)", what, max);
    }
    data[len] = '\0';
    *ret_data = data;
    data = NULL;
    *ret_len = len;
    return 0;
}

int hutch_fd_slurp_path(const char *path, size_t max, char **ret_data, size_t *ret_len, struct hutch_err *err)
{
    auto_fd fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

    if (fd < 0)
        return hutch_err_set(err, errno, "open '%s'", path);
    return hutch_fd_slurp(fd, max, path, ret_data, ret_len, err);
}

int hutch_fd_write_file_at(int dirfd, const char *name, const char *text, struct hutch_err *err)
{
    size_t len = strlen(text);
    auto_fd fd = openat(dirfd, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0)
        return hutch_err_set(err, errno, "open '%s'", name);
    if (TEMP_FAILURE_RETRY(write(fd, text, len)) != (ssize_t)len)
        return hutch_err_set(err, errno, "write '%s' to '%s'", text, name);
    return 0;
}
