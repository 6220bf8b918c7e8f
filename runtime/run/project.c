#include "runtime/run/project.h"

#include "runtime/data/copier.h"
#include "runtime/run/data_place.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>

static uint64_t least(uint64_t bound, uint64_t limit)
{
    return limit && limit < bound ? limit : bound;
}

static bool is_left_out(const void *user, const char *path, bool is_dir)
{
    return hutch_ignore_has(user, path, is_dir);
}

/* By the signals that the run has blocked until it can heed them: a pattern may take long. */
static bool is_interrupted(void)
{
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
    sigset_t pending;

    if (sigpending(&pending) < 0)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        if (sigismember(&pending, signals[i]) == 1)
            return true;
    return false;
}

static int open_dir(const char *path, int *ret_fd, struct hutch_err *err)
{
    struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };

    *ret_fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
    return *ret_fd < 0 ? hutch_err_set(err, errno, "open the project '%s'", path) : 0;
}

static int copy(const struct project_copy *project, int from, int to, uint64_t bytes, uint64_t files,
                struct hutch_err *err)
{
    const struct snapshot_bounds bounds = { .max_bytes = bytes, .max_entries = files };
    struct copier c = COPIER_INIT;
    int rc = hutch_copier_init(&c, to, &bounds, err);

    if (rc == 0) {
        c.is_left_out = is_left_out;
        c.is_interrupted = is_interrupted;
        c.user = project->ignore;
        c.owns_all = true;
        rc = hutch_copier_copy_contents(&c, from, err);
    }
    hutch_copier_done(&c);
    if (rc == 0)
        return 0;
    if (err->errnum == E2BIG || err->errnum == ENOSPC)
        return hutch_err_say(err, E2BIG, "the project '%s' is too large to be copied, as --writable and a " IGNORE_FILE
                             " have it: at most %" PRIu64 " MiB, %" PRIu64 " files and directories, and %d levels of "
                             "them (a line in " IGNORE_FILE " holds back what is no code)", project->dir, bytes >> 20,
                             files, SNAPSHOT_MAX_DEPTH);
    return hutch_err_wrap(err, "copy the project '%s'", project->dir);
}

static int check_entry(const struct project_copy *project, int dirfd, struct hutch_err *err)
{
    struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
    auto_fd fd = project->entry ? (int)syscall(SYS_openat2, dirfd, project->entry, &how, sizeof(how)) : -1;

    if (project->entry && fd < 0)
        return hutch_err_set(err, 0, "the program '%s' is held back by " IGNORE_FILE " of the project '%s'",
                             project->entry, project->dir);
    return 0;
}

int hutch_project_copy(const struct project_copy *project, struct sandbox_spec *spec, struct cold_data *data,
                       int *ret_dirfd, struct hutch_err *err)
{
    uint64_t bytes = least(PROJECT_MAX_BYTES, hutch_data_memory()), files = PROJECT_MAX_FILES;
    auto_fd from = -1, to = -1, mount_fd = -1;
    struct sandbox_mount *mount;

    if (project->is_writable) {
        bytes = least(bytes, spec->limits[LIMIT_DATA_SIZE]);
        files = least(files, spec->limits[LIMIT_DATA_FILES]);
    }
    if (open_dir(project->dir, &from, err) < 0)
        return -1;
    if (hutch_cold_data_make_another(data, bytes, files, &to, &mount_fd, err) < 0)
        return hutch_err_wrap(err, "have a copy of the project '%s' in memory", project->dir);
    if (copy(project, from, to, bytes, files, err) < 0 || check_entry(project, to, err) < 0)
        return -1;
    mount = hutch_spec_add_mount(spec, MOUNT_BIND, "/", project->target, project->is_writable ? 0 : MOUNT_RDONLY, err);
    if (!mount)
        return -1;
    mount->tree_fd = hutch_fd_take(&mount_fd);
    *ret_dirfd = hutch_fd_take(&to);
    return 0;
}
