#include "runtime/cli/output_file.h"

#include "sandbox/fd.h"

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES 16 /* of names that are free */

static int fail(const char *path, int errnum, struct hutch_err *err)
{
    return hutch_err_set(err, errnum, "write the notebook to '%s'", path);
}

static mode_t usual_mode(void)
{
    mode_t mask = umask(0);

    umask(mask);
    return 0666 & ~mask;
}

static int open_place(const char *path, struct output_file *ret, struct hutch_err *err)
{
    auto_free char *real = realpath(path, NULL), *for_dir = strdup(real ? real : path),
                   *for_name = strdup(real ? real : path);

    if (!for_dir || !for_name)
        return fail(path, ENOMEM, err);
    ret->name = strdup(basename(for_name));
    ret->dirfd = open(dirname(for_dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!ret->name)
        return fail(path, ENOMEM, err);
    if (ret->dirfd < 0 || faccessat(ret->dirfd, ".", W_OK | X_OK, AT_EACCESS) < 0)
        return hutch_err_set(err, errno, "write the notebook to '%s' (-o chooses another place)", path);
    return 0;
}

int hutch_output_file_open(const char *path, struct output_file *ret, struct hutch_err *err)
{
    struct output_file file = { .path = path, .dirfd = -1, .fd = -1, .mode = usual_mode() };
    struct stat st;
    int rc = 0;

    if (strcmp(path, "-") == 0) {
        file.fd = STDOUT_FILENO;
    } else if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        rc = fail(path, EISDIR, err);
    } else if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        file.fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        if (file.fd < 0)
            rc = fail(path, errno, err);
    } else {
        if (stat(path, &st) == 0)
            file.mode = st.st_mode & 0777;
        rc = open_place(path, &file, err);
    }
    if (rc < 0)
        hutch_output_file_done(&file);
    else
        *ret = file;
    return rc;
}

/* A new file beside it. */
static int make_file(const struct output_file *file, char name[32])
{
    unsigned number;
    int fd = -1;

    for (int i = 0; i < TRIES && fd < 0; i++) {
        if (getrandom(&number, sizeof(number), 0) != sizeof(number))
            return -1;
        snprintf(name, 32, ".hutch-%08x", number);
        fd = openat(file->dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST)
            return -1;
    }
    return fd;
}

int hutch_output_file_write(const struct output_file *file, const char *text, size_t len, struct hutch_err *err)
{
    char name[32];

    if (file->fd >= 0)
        return hutch_fd_write_all(file->fd, text, len) < 0 ? fail(file->path, errno, err) : 0;

    auto_fd fd = make_file(file, name);

    if (fd < 0)
        return fail(file->path, errno, err);
    if (hutch_fd_write_all(fd, text, len) < 0 || fchmod(fd, file->mode) < 0 || fsync(fd) < 0) {
        fail(file->path, errno, err);
        unlinkat(file->dirfd, name, 0);
        return -1;
    }
    if (renameat(file->dirfd, name, file->dirfd, file->name) < 0) /* a directory is there by now */
        return hutch_err_set(err, errno, "write the notebook to '%s' (it is beside that, as '%s')", file->path, name);
    return 0;
}

void hutch_output_file_done(struct output_file *file)
{
    hutch_fd_closep(&file->dirfd);
    if (file->fd != STDOUT_FILENO)
        hutch_fd_closep(&file->fd);
    free(file->name);
    *file = (struct output_file)OUTPUT_FILE_INIT;
}
