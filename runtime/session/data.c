#include "runtime/session/data.h"

#include "runtime/data/changes_wire.h"
#include "runtime/data/snapshot.h"
#include "runtime/engine/file_memory.h"
#include "sandbox/fd.h"
#include "sandbox/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int hutch_session_data_take(struct session_data *data, struct engine_run *run, void (*on_greedy)(void *owner),
                            void *owner, struct hutch_err *err)
{
    struct slot *slot = run->slot;
    struct stat st;

    if (data->dirfd >= 0)
        return 0;
    data->dirfd = fcntl(slot->data_dirfd, F_DUPFD_CLOEXEC, 3);
    if (data->dirfd < 0 || fstat(data->dirfd, &st) < 0)
        return hutch_err_set(err, errno, "hold the files of a session");
    run->data_dev = st.st_dev;
    run->data_ino = st.st_ino;
    run->keeps_list = true;
    if (run->data_dir) {
        data->seen = run->before;
        data->seen_fd = hutch_fd_take(&run->before_fd);
        run->before = (struct file_list)FILE_LIST_INIT;
        return 0;
    }
    if (asprintf(&run->data_dir, "%s/%s", run->runs->core->data_root, slot->data_name) < 0) {
        run->data_dir = NULL;
        run->keeps_list = false;
        hutch_fd_closep(&data->dirfd); /* the next sandbox's is taken, from the beginning */
        return hutch_err_set(err, ENOMEM, "hold the files of a session");
    }
    memcpy(data->name, slot->data_name, sizeof(data->name));
    slot->data_name[0] = '\0';
    if (slot->has_volume) {
        data->volume = (struct slot_volume){ .base_fd = hutch_fd_take(&slot->volume_fd), .dirfd = data->dirfd };
        run->volume = &data->volume;
        hutch_file_memory_hold(run->runs->slots, &data->volume, on_greedy, owner);
    }
    return 0;
}

bool hutch_session_data_is_lost(const struct session_data *data, struct core *core)
{
    return data->name[0] && data->dirfd >= 0 && hutch_core_is_removed(core, data->dirfd);
}

bool hutch_session_data_is_large(const struct session_data *data)
{
    return data->seen_fd >= 0 ||
           (!hutch_collect_stays_empty(data->dirfd, &data->seen) && hutch_look_is_needed(data->dirfd));
}

bool hutch_session_data_look(struct session_data *data, struct looks *looks, struct look *look, enum disk_order what,
                             const struct collect_bounds *bounds)
{
    struct hutch_err err;

    if (data->seen_fd < 0) {
        if (hutch_file_list_store(&data->seen, &data->seen_fd, &err) < 0)
            return false;
        hutch_file_list_done(&data->seen);
    }
    return hutch_look_begin(look, looks, what, bounds, data->dirfd, data->seen_fd);
}

/* What the disk worker had for itself is the session's again. */
static int load_seen(struct session_data *data, struct hutch_err *err)
{
    struct file_list seen;

    if (data->seen_fd < 0)
        return 0;
    if (hutch_file_list_load(data->seen_fd, &seen, err) < 0)
        return -1;
    hutch_file_list_done(&data->seen);
    data->seen = seen;
    hutch_fd_closep(&data->seen_fd);
    return 0;
}

void hutch_session_data_take_look(struct session_data *data, const struct disk_reply *reply, const int *fds,
                                  size_t n_fds)
{
    struct file_changes changes;
    auto_fd seen = n_fds == 2 ? fcntl(fds[1], F_DUPFD_CLOEXEC, 3) : -1;
    struct hutch_err err;

    if (seen < 0 || reply->has_failed || hutch_file_changes_load(fds[0], &changes, &err) < 0)
        return;
    hutch_file_changes_done(&data->looked);
    data->looked = changes;
    data->has_looked = true;
    hutch_fd_closep(&data->seen_fd);
    data->seen_fd = hutch_fd_take(&seen);
    data->seen.newest_ns = reply->newest_ns;
    /* Only then: the disk worker reads directories that are closed to the engine, which would take them for new. */
    if (reply->entries == 0 && load_seen(data, &err) < 0)
        hutch_log_debug("engine: %s", err.msg); /* the next one asks the disk worker once more */
}

void hutch_session_data_step(struct session_data *data, struct file_changes *ret)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    struct hutch_err err;

    *ret = data->looked;
    data->looked = (struct file_changes)FILE_CHANGES_INIT;
    if (data->has_looked) {
        data->has_looked = false;
        return;
    }
    if (load_seen(data, &err) == 0 && hutch_collect_step(data->dirfd, &data->seen, &bounds, ret, &err) == 0)
        return;
    hutch_log_debug("engine: %s", err.msg);
    ret->truncated = true;
}

void hutch_session_data_forget_changes(struct session_data *data)
{
    struct file_changes changes;

    hutch_session_data_step(data, &changes);
    hutch_file_changes_done(&changes);
}

bool hutch_session_data_outlives(const struct session_data *data, struct core *core, bool keeps)
{
    return data->dirfd >= 0 && (!data->name[0] || keeps) && !hutch_session_data_is_lost(data, core);
}

void hutch_session_data_open_up(struct session_data *data)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    struct file_changes changes = FILE_CHANGES_INIT;
    struct hutch_err err;

    if (load_seen(data, &err) < 0 || hutch_collect_changes(data->dirfd, &data->seen, &bounds, &changes, &err) < 0)
        hutch_log_debug("engine: %s", err.msg);
    hutch_file_changes_done(&changes);
}

bool hutch_session_data_is_empty(const struct session_data *data)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    uint64_t bytes, entries = 1;
    struct hutch_err err;

    bounds.usage_entries = 1;
    return hutch_collect_usage(data->dirfd, &bounds, &bytes, &entries, &err) == 0 && entries == 0;
}

char *hutch_session_data_end(struct session_data *data, struct core *core, bool keeps, char *ret_why, size_t size)
{
    char id[STATE_ID_LEN + sizeof(data->name)], *directory = NULL;
    struct hutch_err err;

    if (data->dirfd < 0 || (data->name[0] && !keeps))
        return NULL;
    if (hutch_session_data_is_lost(data, core)) {
        snprintf(ret_why, size, "; its files are lost");
        return NULL;
    }
    if (!data->name[0] || hutch_session_data_is_empty(data))
        return NULL;
    snprintf(id, sizeof(id), "%.8s%s", core->state.id, data->name);
    if (hutch_state_keep_directory(&core->state, core->data_root_fd, data->name, id, &directory, &err) < 0)
        snprintf(ret_why, size, "; its files are lost: %s", err.msg);
    return directory;
}

/* --- from memory to the disk -------------------------------------------------------------------------------------- */

bool hutch_session_data_is_in_memory(const struct session_data *data)
{
    return data->volume.base_fd >= 0;
}

bool hutch_session_data_begin_landing(struct session_data *data, struct looks *looks, struct look *look)
{
    return hutch_look_begin_copy(look, looks, data->name, data->dirfd);
}

int hutch_session_data_take_landed(struct session_data *data, struct engine_run *run, struct hutch_err *err)
{
    auto_fd fd = openat(run->runs->core->data_root_fd, data->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return hutch_err_set(err, errno, "open the files of a session");
    run->volume = NULL;
    hutch_file_memory_let_go(&data->volume);
    data->volume.is_lost = false;
    run->data_dev = st.st_dev;
    run->data_ino = st.st_ino;
    hutch_helper_drop_volume(run->runs->slots->helper, data->volume.base_fd);
    hutch_fd_closep(&data->volume.base_fd);
    hutch_fd_closep(&data->dirfd);
    data->dirfd = hutch_fd_take(&fd);
    data->has_foreign = true; /* other inodes */
    return 0;
}

int hutch_session_data_land(struct session_data *data, struct engine_run *run, struct hutch_err *err)
{
    const struct snapshot_bounds all = { 0 };
    struct snapshot_report report;

    if (hutch_snapshot_take(data->dirfd, run->runs->core->data_root_fd, data->name, &all, &report, err) < 0 &&
        err->errnum != EEXIST) /* a process that was killed had completed the copy, as it gets its name last */
        return -1;
    return hutch_session_data_take_landed(data, run, err);
}

void hutch_session_data_drop(struct session_data *data, struct helper *helper)
{
    bool is_in_memory = hutch_session_data_is_in_memory(data);

    hutch_file_memory_let_go(&data->volume);
    hutch_fd_closep(&data->dirfd);
    if (is_in_memory)
        hutch_helper_drop_volume(helper, data->volume.base_fd);
    else if (data->name[0])
        hutch_helper_remove_directory(helper, data->name);
    hutch_fd_closep(&data->volume.base_fd);
}

void hutch_session_data_done(struct session_data *data)
{
    hutch_file_list_done(&data->seen);
    hutch_file_changes_done(&data->looked);
    hutch_file_memory_let_go(&data->volume);
    hutch_fd_closep(&data->seen_fd);
    hutch_fd_closep(&data->dirfd);
    hutch_fd_closep(&data->volume.base_fd);
}
