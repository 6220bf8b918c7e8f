#include "runtime/batch/scratch.h"

#include "sandbox/fd.h"
#include "sandbox/log.h"
#include "sandbox/rmtree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "hutch-batch."
#define LETTERS "XXXXXX" /* mkdtemp(3) replaces them */
#define MAX_TRIES 16

static const char *temporary_dir(void)
{
    const char *dir = getenv("TMPDIR");

    return dir && dir[0] == '/' ? dir : "/tmp";
}

/* -1: it is not ours, or a batch that lives has it. */
static int open_locked(int parent_fd, const char *name)
{
    auto_fd fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return -1;
    return hutch_fd_take(&fd);
}

static void sweep(const char *parent)
{
    DIR *dir = opendir(parent);
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        auto_fd fd = -1;
        struct hutch_err err;

        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0 || strlen(entry->d_name) != strlen(PREFIX LETTERS))
            continue;
        fd = open_locked(dirfd(dir), entry->d_name);
        if (fd >= 0 && hutch_rmtree(dirfd(dir), entry->d_name, &err) < 0)
            hutch_log_debug("batch: sweep '%s/%s': %s", parent, entry->d_name, err.msg);
    }
    if (dir)
        closedir(dir);
}

/* Another batch may take it for a leftover before it is locked. */
static bool is_still_there(const struct batch_scratch *s)
{
    struct stat own, named;

    return fstat(s->dirfd, &own) == 0 && lstat(s->path, &named) == 0 && own.st_dev == named.st_dev &&
           own.st_ino == named.st_ino;
}

int hutch_batch_scratch_make(struct batch_scratch *ret, struct hutch_err *err)
{
    const char *parent = temporary_dir();
    struct batch_scratch s = BATCH_SCRATCH_INIT;

    sweep(parent);
    for (int i = 0; i < MAX_TRIES; i++) {
        if ((size_t)snprintf(s.path, sizeof(s.path), "%s/" PREFIX LETTERS, parent) >= sizeof(s.path))
            return hutch_err_set(err, ENAMETOOLONG, "make a directory in '%s' for the files of tasks", parent);
        if (!mkdtemp(s.path))
            return hutch_err_set(err, errno, "make a directory in '%s' for the files of tasks", parent);
        s.dirfd = open_locked(AT_FDCWD, s.path);
        if (s.dirfd >= 0 && is_still_there(&s)) {
            *ret = s;
            return 0;
        }
        hutch_fd_closep(&s.dirfd);
        rmdir(s.path);
    }
    return hutch_err_set(err, 0, "lock a directory in '%s' for the files of tasks", parent);
}

int hutch_batch_scratch_remove(struct batch_scratch *s, struct hutch_err *err)
{
    int rc = 0;

    if (s->path[0] && rmdir(s->path) < 0)
        rc = hutch_err_set(err, errno, "remove '%s'", s->path);
    hutch_fd_closep(&s->dirfd);
    *s = (struct batch_scratch)BATCH_SCRATCH_INIT;
    return rc;
}
