#include "runtime/batch/files.h"

#include "sandbox/fd.h"
#include "sandbox/rmtree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bool is_file_name(const char *name)
{
    return *name && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static int refuse_name(struct hutch_err *err)
{
    return hutch_err_say(err, EINVAL, "the name of a file has an empty part, '.' or '..' in it");
}

/* Opens the directory of @path below @dirfd, makes what is missing, and returns the last component. */
static int open_parent(int dirfd, char *path, int *ret_fd, const char **ret_name, struct hutch_err *err)
{
    auto_fd fd = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
    char *slash;

    if (fd < 0)
        return hutch_err_set(err, errno, "make a file of a task");
    while ((slash = strchr(path, '/'))) {
        int next;

        *slash = '\0';
        if (!is_file_name(path))
            return refuse_name(err);
        if (mkdirat(fd, path, 0755) < 0 && errno != EEXIST)
            return hutch_err_set(err, errno, "make the directory '%s' of a task", path);
        next = openat(fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0)
            return hutch_err_set(err, errno, "make the directory '%s' of a task", path);
        close(hutch_fd_take(&fd));
        fd = next;
        path = slash + 1;
    }
    if (!is_file_name(path))
        return refuse_name(err);
    *ret_fd = hutch_fd_take(&fd);
    *ret_name = path;
    return 0;
}

static int write_file(int dirfd, struct json_view key, struct json_view value, struct hutch_err *err)
{
    auto_free char *path = NULL, *data = NULL;
    auto_fd parent = -1;
    auto_fd fd = -1;
    const char *name = NULL;
    size_t len, path_len;

    if (hutch_json_view_text(key, &path, &path_len, err) < 0 || hutch_json_view_text(value, &data, &len, err) < 0)
        return -1;
    if (strlen(path) != path_len)
        return hutch_err_say(err, EINVAL, "the name of a file has a NUL byte in it");
    if (open_parent(dirfd, path, &parent, &name, err) < 0)
        return -1;
    fd = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 || hutch_fd_write_all(fd, data, len) < 0)
        return hutch_err_set(err, errno, "write the file '%s' of a task", name);
    return 0;
}

int hutch_batch_files_make(int dirfd, const char *path, uint64_t number, struct json_view files,
                           struct batch_files *ret, struct hutch_err *err)
{
    struct json_walk walk = hutch_json_view_walk(files);
    struct json_view key, value;
    auto_fd own_dirfd = -1;

    snprintf(ret->name, sizeof(ret->name), "%" PRIu64, number);
    ret->dirfd = dirfd;
    if (asprintf(&ret->path, "%s/%s", path, ret->name) < 0) {
        ret->path = NULL;
        return hutch_err_set(err, ENOMEM, "put a run together");
    }
    if (mkdirat(dirfd, ret->name, 0755) < 0)
        return hutch_err_set(err, errno, "make the directory '%s'", ret->path);
    own_dirfd = openat(dirfd, ret->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (own_dirfd < 0)
        return hutch_err_set(err, errno, "open the directory '%s'", ret->path);
    while (hutch_json_view_next(&walk, &key, &value))
        if (write_file(own_dirfd, key, value, err) < 0)
            return -1;
    return 0;
}

void hutch_batch_files_remove(struct batch_files *files)
{
    struct hutch_err ignored;

    if (files->name[0]) /* the directory above goes at the end, and says what is in its way */
        hutch_rmtree(files->dirfd, files->name, &ignored);
    free(files->path);
    *files = (struct batch_files)BATCH_FILES_INIT;
}
