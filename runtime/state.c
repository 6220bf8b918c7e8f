#include "state.h"

#include "fd.h"
#include "home.h"
#include "log.h"
#include "rmtree.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#define ID_LEN 16
#define SWEEP_MAX 1000 /* runs looked at in one sweep */

void hutch_state_cgroup_name(const char *id, char ret[32])
{
    snprintf(ret, 32, "hutch-%s", id);
}

static int open_dir_at(int dirfd, const char *name, int *ret_fd, struct hutch_err *err)
{
    auto_fd fd = -1;

    if (mkdirat(dirfd, name, 0700) < 0 && errno != EEXIST)
        return hutch_err_set(err, errno, "make the directory '%s'", name);
    fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return hutch_err_set(err, errno, "open the directory '%s'", name);
    *ret_fd = hutch_fd_take(&fd);
    return 0;
}

/* Between mkdir and flock a sweeper may take the directory for a dead run's and remove it: then it has no links. */
static bool still_exists(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_nlink > 0;
}

static int make_id(char id[ID_LEN + 1], struct hutch_err *err)
{
    unsigned char raw[ID_LEN / 2];

    if (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
        return hutch_err_set(err, errno, "draw a run's name");
    for (size_t i = 0; i < sizeof(raw); i++)
        snprintf(id + 2 * i, 3, "%02x", raw[i]);
    return 0;
}

int hutch_state_create(const char *home, struct run_state *ret, struct hutch_err *err)
{
    struct run_state state = RUN_STATE_INIT;
    auto_fd home_fd = -1;

    if (hutch_home_create(home, &home_fd, &state.home, err) < 0 || open_dir_at(home_fd, "runs", &state.runs_dirfd, err) < 0)
        goto fail;
    for (int tries = 0; tries < 100; tries++) {
        if (make_id(state.id, err) < 0)
            goto fail;
        if (mkdirat(state.runs_dirfd, state.id, 0700) < 0) {
            if (errno == EEXIST)
                continue;
            hutch_err_set(err, errno, "make the directory '%s/runs/%s'", home, state.id);
            goto fail;
        }
        state.dirfd = openat(state.runs_dirfd, state.id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (state.dirfd >= 0 && flock(state.dirfd, LOCK_EX | LOCK_NB) == 0 && still_exists(state.dirfd))
            break;
        hutch_fd_closep(&state.dirfd);
    }
    if (state.dirfd < 0) {
        hutch_err_set(err, errno, "lock a directory below '%s/runs'", home);
        goto fail;
    }
    if (asprintf(&state.path, "%s/runs/%s", state.home, state.id) < 0) {
        hutch_err_set(err, ENOMEM, "keep the state of a run");
        goto fail;
    }
    *ret = state;
    return 0;
fail:
    hutch_err_wrap(err, "keep the state of a run");
    free(state.home);
    hutch_fd_closep(&state.dirfd);
    hutch_fd_closep(&state.runs_dirfd);
    return -1;
}

int hutch_state_note_cgroup(struct run_state *state, const struct cgroup_base *base, struct hutch_err *err)
{
    auto_free char *text = NULL;
    auto_fd fd = -1;

    if (base->dirfd < 0)
        return 0;
    if (asprintf(&text, "%s%s", base->mount, base->path) < 0)
        return hutch_err_set(err, ENOMEM, "note the cgroup");
    fd = openat(state->dirfd, "cgroup", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 || hutch_fd_write_all(fd, text, strlen(text)) < 0)
        return hutch_err_set(err, errno, "write '%s/cgroup'", state->path);
    return 0;
}

int hutch_state_make_data(struct run_state *state, char **ret_path, struct hutch_err *err)
{
    if (mkdirat(state->dirfd, "data", 0755) < 0)
        return hutch_err_set(err, errno, "make the directory '%s/data'", state->path);
    if (asprintf(ret_path, "%s/data", state->path) < 0)
        return hutch_err_set(err, ENOMEM, "make the data directory");
    return 0;
}

int hutch_state_keep_data(struct run_state *state, char **ret_path, struct hutch_err *err)
{
    auto_fd home_fd = -1, outputs = -1;
    auto_free char *real = NULL;

    if (hutch_home_create(state->home, &home_fd, &real, err) < 0 || open_dir_at(home_fd, "outputs", &outputs, err) < 0)
        return hutch_err_wrap(err, "keep the files of a run");
    if (renameat(state->dirfd, "data", outputs, state->id) < 0)
        return hutch_err_set(err, errno, "move '%s/data' to '%s/outputs/%s'", state->path, state->home, state->id);
    if (asprintf(ret_path, "%s/outputs/%s", state->home, state->id) < 0)
        return hutch_err_set(err, ENOMEM, "keep the files of a run");
    return 0;
}

int hutch_state_remove(struct run_state *state, struct hutch_err *err)
{
    int rc = 0;

    if (state->dirfd >= 0)
        rc = hutch_rmtree(state->runs_dirfd, state->id, err);
    free(state->home);
    free(state->path);
    hutch_fd_closep(&state->dirfd);
    hutch_fd_closep(&state->runs_dirfd);
    *state = (struct run_state)RUN_STATE_INIT;
    return rc;
}

static int remove_cgroup(int dirfd, const char *id, struct hutch_err *err)
{
    struct cgroup_base base = CGROUP_BASE_INIT;
    auto_fd fd = openat(dirfd, "cgroup", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    auto_free char *path = NULL;
    char name[32];
    size_t len;
    int rc;

    if (fd < 0)
        return errno == ENOENT ? 0 : hutch_err_set(err, errno, "open the note of the cgroup");
    if (hutch_fd_slurp(fd, PATH_MAX, "cgroup", &path, &len, err) < 0)
        return -1;
    base.dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    hutch_state_cgroup_name(id, name);
    rc = hutch_cgroup_destroy_named(&base, name, err); /* a base that is gone took its groups along */
    hutch_cgroup_base_done(&base);
    return rc;
}

int hutch_state_sweep(const char *home)
{
    auto_free char *runs = NULL;
    struct dirent *entry;
    int swept = 0, looked = 0;
    DIR *dir;

    if (asprintf(&runs, "%s/runs", home) < 0)
        return 0;
    dir = opendir(runs);
    while (dir && looked++ < SWEEP_MAX && (entry = readdir(dir))) {
        struct hutch_err err;
        auto_fd fd = -1;

        if (strlen(entry->d_name) != ID_LEN || strspn(entry->d_name, "0123456789abcdef") != ID_LEN)
            continue;
        fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
            continue; /* alive */
        if (remove_cgroup(fd, entry->d_name, &err) < 0 || hutch_rmtree(dirfd(dir), entry->d_name, &err) < 0) {
            hutch_log_debug("state: sweep '%s/%s': %s", runs, entry->d_name, err.msg);
            continue;
        }
        hutch_log_debug("state: swept the dead run '%s'", entry->d_name);
        swept++;
    }
    if (dir)
        closedir(dir);
    return swept;
}
