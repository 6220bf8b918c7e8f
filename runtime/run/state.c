#include "runtime/run/state.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"
#include "rootfs/home.h"
#include "sandbox/log.h"
#include "sandbox/rmtree.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#define CGROUP_PREFIX "hutch-"
#define DATA_MODE 0755
#define CGROUP_TIMEOUT_MS 2000
#define MAX_RUNS 4096 /* live runs of one home */

static int open_dir_at(int dirfd, const char *name, int *ret_fd, struct hutch_err *err)
{
    auto_fd fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0 && errno == ENOENT) {
        if (mkdirat(dirfd, name, 0700) < 0 && errno != EEXIST)
            return hutch_err_set(err, errno, "make the directory '%s'", name);
        fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    }
    if (fd < 0)
        return hutch_err_set(err, errno, "open the directory '%s'", name);
    *ret_fd = hutch_fd_take(&fd);
    return 0;
}

static int make_id(char id[STATE_ID_LEN + 1], struct hutch_err *err)
{
    unsigned char raw[STATE_ID_LEN / 2];

    if (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
        return hutch_err_set(err, errno, "draw a run's name");
    for (size_t i = 0; i < sizeof(raw); i++)
        snprintf(id + 2 * i, 3, "%02x", raw[i]);
    return 0;
}

/* A name that a run gave its cgroup: nothing else below the noted directory is ours to remove. */
static bool is_cgroup_name(const char *name)
{
    if (strncmp(name, CGROUP_PREFIX, strlen(CGROUP_PREFIX)) != 0)
        return false;
    name += strlen(CGROUP_PREFIX);
    return strlen(name) == STATE_ID_LEN && strspn(name, "0123456789abcdef") == STATE_ID_LEN;
}

/* Removes the cgroup that a dead run noted in its lock file: "DIRECTORY\nNAME\n". */
static int remove_noted_cgroup(int lock_fd, double until, struct hutch_err *err)
{
    double left = until - hutch_clock_ms();
    double timeout = left < 0 ? 0 : left < CGROUP_TIMEOUT_MS ? left : CGROUP_TIMEOUT_MS;
    struct cgroup_base base = CGROUP_BASE_INIT;
    auto_free char *note = NULL;
    char *name, *end;
    size_t len;
    int rc;

    if (lseek(lock_fd, 0, SEEK_SET) < 0)
        return hutch_err_set(err, errno, "read the lock file of a run");
    if (hutch_fd_slurp(lock_fd, 2 * PATH_MAX, "lock file", &note, &len, err) < 0)
        return -1;
    name = strchr(note, '\n');
    end = name ? strchr(name + 1, '\n') : NULL;
    if (end) { /* a note that was cut short was written before any cgroup was made */
        *name++ = '\0';
        *end = '\0';
        base.dirfd = open(note, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        rc = is_cgroup_name(name) ? hutch_cgroup_destroy_named(&base, name, (unsigned)timeout, err) : 0;
        hutch_cgroup_base_done(&base);
        if (rc < 0)
            return -1;
    }
    if (ftruncate(lock_fd, 0) < 0)
        return hutch_err_set(err, errno, "empty the lock file of a run");
    return 0;
}

/* What getdents64(2) returns of an empty directory: 19 bytes and a name with its NUL, in units of 8, for "." and
 * "..". */
#define DOT_AND_DOT_DOT (24 + 24)

/* Whether nothing was ever done to a directory since it was made: only then may a later run have it. The times tell,
 * but only in ticks of the kernel's clock (as in any file system that does not tell the time of birth), so what they
 * would miss is checked too. */
static bool is_untouched(int runs_dirfd, const char *name)
{
    auto_fd fd = openat(runs_dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    char entries[1024] __attribute__((aligned(8)));
    struct statx st;
    long n;

    if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &st) < 0 ||
        !(st.stx_mask & STATX_BTIME) || st.stx_ctime.tv_sec != st.stx_btime.tv_sec ||
        st.stx_ctime.tv_nsec != st.stx_btime.tv_nsec)
        return false;
    if (st.stx_uid != geteuid() || (st.stx_mode & 07777) != DATA_MODE || flistxattr(fd, NULL, 0) > 0)
        return false;
    n = syscall(SYS_getdents64, fd, entries, sizeof(entries));
    return n == DOT_AND_DOT_DOT;
}

/* Undoes what the last run with this lock file left, which we have locked. */
static int clean_up(int runs_dirfd, int lock_fd, const char *data_name, double until, struct hutch_err *err)
{
    struct stat st;

    if (fstat(lock_fd, &st) < 0)
        return hutch_err_set(err, errno, "check the lock file of a run");
    if (st.st_size > 0 && remove_noted_cgroup(lock_fd, until, err) < 0)
        return -1;
    if (!is_untouched(runs_dirfd, data_name) && hutch_rmtree_until(runs_dirfd, data_name, until, err) < 0)
        return -1;
    return 0;
}

/* Lock file @number, locked, or -1 when another run holds it (or @flags lacks O_CREAT and it is not there). */
static int take_lock(int runs_dirfd, unsigned number, int flags)
{
    char name[16];
    auto_fd fd = -1;

    snprintf(name, sizeof(name), "%u", number);
    fd = openat(runs_dirfd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return -1;
    return hutch_fd_take(&fd);
}

static void sweep(int runs_dirfd)
{
    auto_fd fd = openat(runs_dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!dir)
        return;
    fd = -1; /* closedir(3) has it now */
    while ((entry = readdir(dir))) {
        char data_name[24], *end;
        unsigned long number = strtoul(entry->d_name, &end, 10);
        struct hutch_err err;
        auto_fd lock_fd = -1;

        if (*end || end == entry->d_name || number >= MAX_RUNS)
            continue;
        lock_fd = take_lock(runs_dirfd, (unsigned)number, 0);
        snprintf(data_name, sizeof(data_name), "%lu.data", number);
        /* What cannot be undone now is left for the next time: it keeps no new run from starting. */
        if (lock_fd >= 0 && clean_up(runs_dirfd, lock_fd, data_name, INFINITY, &err) < 0)
            hutch_log_debug("state: sweep run %lu: %s", number, err.msg);
    }
    closedir(dir);
}

int hutch_state_open(const char *home, struct run_state *ret, struct hutch_err *err)
{
    struct run_state state = RUN_STATE_INIT;

    if (make_id(state.id, err) < 0 || hutch_home_create(home, &state.home_dirfd, &state.home, err) < 0 ||
        open_dir_at(state.home_dirfd, "runs", &state.runs_dirfd, err) < 0)
        goto fail;
    snprintf(state.cgroup_name, sizeof(state.cgroup_name), CGROUP_PREFIX "%s", state.id);
    sweep(state.runs_dirfd);
    for (unsigned n = 0; n < MAX_RUNS && state.lock_fd < 0; n++) {
        state.lock_fd = take_lock(state.runs_dirfd, n, O_CREAT);
        snprintf(state.data_name, sizeof(state.data_name), "%u.data", n);
        if (state.lock_fd >= 0 && clean_up(state.runs_dirfd, state.lock_fd, state.data_name, INFINITY, err) < 0) {
            hutch_log_debug("state: run %u: %s", n, err->msg);
            hutch_fd_closep(&state.lock_fd);
        }
    }
    if (state.lock_fd < 0) {
        hutch_err_set(err, errno, "lock one of %d files in '%s/runs'", MAX_RUNS, state.home);
        goto fail;
    }
    *ret = state;
    return 0;
fail:
    hutch_err_wrap(err, "keep the state of a run");
    free(state.home);
    hutch_fd_closep(&state.home_dirfd);
    hutch_fd_closep(&state.runs_dirfd);
    return -1;
}

int hutch_state_note_cgroup(struct run_state *state, const struct cgroup_base *base, struct hutch_err *err)
{
    auto_free char *text = NULL;

    if (base->dirfd < 0)
        return 0;
    if (asprintf(&text, "%s%s\n%s\n", base->mount, base->path, state->cgroup_name) < 0)
        return hutch_err_set(err, ENOMEM, "note the cgroup");
    if (hutch_fd_write_all(state->lock_fd, text, strlen(text)) < 0)
        return hutch_err_set(err, errno, "write to a lock file in '%s/runs'", state->home);
    return 0;
}

int hutch_state_make_data(struct run_state *state, char **ret_path, struct hutch_err *err)
{
    if (mkdirat(state->runs_dirfd, state->data_name, DATA_MODE) < 0 && errno != EEXIST)
        return hutch_err_set(err, errno, "make the directory '%s/runs/%s'", state->home, state->data_name);
    if (asprintf(ret_path, "%s/runs/%s", state->home, state->data_name) < 0)
        return hutch_err_set(err, ENOMEM, "make the data directory");
    return 0;
}

/* Below the home, whose owner may have put something else in its place. */
static bool has_outputs(const struct run_state *state)
{
    struct stat st;

    return (mkdirat(state->home_dirfd, "outputs", 0700) == 0 || errno == EEXIST) &&
           fstatat(state->home_dirfd, "outputs", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* Opens nothing, and has the path before it moves anything: where there is no descriptor or no memory left, no file is
 * lost, and none lies where its owner does not learn of it. */
int hutch_state_keep_directory(struct run_state *state, int dirfd, const char *name, const char *id, char **ret_path,
                               struct hutch_err *err)
{
    const size_t size = strlen(state->home) + sizeof("/outputs/.kept") + strlen(id);
    auto_free char *path = malloc(size);
    const char *below; /* the same below the home */
    struct stat st;

    if (!path)
        return hutch_err_set(err, ENOMEM, "keep the files of a run");
    /* Moving a directory takes write permission on it, and the code inside may have taken that away. */
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || (!S_ISDIR(st.st_mode) && (errno = ENOTDIR)) ||
        fchmodat(dirfd, name, DATA_MODE, 0) < 0)
        return hutch_err_set(err, errno, "keep the files of a run");
    below = path + strlen(state->home) + 1;
    snprintf(path, size, "%s/outputs/%s", state->home, id);
    if (!has_outputs(state) || renameat(dirfd, name, state->home_dirfd, below) < 0) {
        /* No reason to lose them: beside the lock files they are safe from the next run. */
        snprintf(path, size, "%s/runs/%s.kept", state->home, id);
        if (renameat(dirfd, name, state->home_dirfd, below) < 0)
            return hutch_err_set(err, errno, "keep the files of a run in '%s'", path);
    }
    *ret_path = path;
    path = NULL;
    return 0;
}

int hutch_state_keep_data(struct run_state *state, char **ret_path, struct hutch_err *err)
{
    return hutch_state_keep_directory(state, state->runs_dirfd, state->data_name, state->id, ret_path, err);
}

int hutch_state_close_until(struct run_state *state, double until, struct hutch_err *err)
{
    int rc = 0;

    if (state->lock_fd >= 0)
        rc = clean_up(state->runs_dirfd, state->lock_fd, state->data_name, until, err);
    free(state->home);
    hutch_fd_closep(&state->lock_fd);
    hutch_fd_closep(&state->runs_dirfd);
    hutch_fd_closep(&state->home_dirfd);
    *state = (struct run_state)RUN_STATE_INIT;
    return rc;
}

int hutch_state_close(struct run_state *state, struct hutch_err *err)
{
    return hutch_state_close_until(state, INFINITY, err);
}
