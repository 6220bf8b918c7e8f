/* directory.c - hutch.h's functions for a directory of the caller's: what a session's files have, without a session. */
#include "runtime/lib/engine_priv.h"

#include "runtime/data/changes.h"
#include "runtime/data/files.h"

#include <errno.h>
#include <sys/stat.h>

/* AT_FDCWD is none, either: hostile code wrote into a directory that the caller means, not into wherever it stands. */
static int check_directory(int dirfd, struct hutch_err *err)
{
    struct stat st;

    if (fstat(dirfd, &st) < 0)
        return hutch_err_set(err, errno, "the descriptor %d is not of an open directory", dirfd);
    if (!S_ISDIR(st.st_mode))
        return hutch_err_set(err, ENOTDIR, "the descriptor %d is not of a directory", dirfd);
    return 0;
}

char *hutch_dir_list(int dirfd, struct hutch_error *error)
{
    const struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    struct hutch_err err;
    char *json;

    if (check_directory(dirfd, &err) < 0 || hutch_files_list(dirfd, &bounds, &json, &err) < 0) {
        hutch_engine_tell(error, &err, 0);
        return NULL;
    }
    return json;
}

int hutch_dir_open_file(int dirfd, const char *name, int flags, struct hutch_error *error)
{
    struct hutch_err err;
    int fd;

    if (check_directory(dirfd, &err) < 0 || hutch_files_open(dirfd, name, flags, &fd, &err) < 0)
        return hutch_engine_tell(error, &err, 0);
    return fd;
}

int hutch_dir_delete(int dirfd, const char *name, struct hutch_error *error)
{
    struct hutch_err err;

    if (check_directory(dirfd, &err) < 0 || hutch_files_delete(dirfd, name, &err) < 0)
        return hutch_engine_tell(error, &err, 0);
    return 0;
}
