#include "runtime/run/cold_data.h"

#include "runtime/data/snapshot.h"
#include "runtime/run/data_place.h"
#include "sandbox/fd.h"
#include "sandbox/ids.h"
#include "sandbox/log.h"
#include "sandbox/mounts.h"
#include "sandbox/rmtree.h"
#include "sandbox/userns.h"
#include "sandbox/volume.h"

#include <fcntl.h>
#include <stdio.h>

static int open_volume(uint64_t bytes, uint64_t files, const struct id_plan *plan, int *ret_dirfd, int *ret_mount_fd,
                       struct hutch_err *err)
{
    struct volume_mounts mounts = VOLUME_MOUNTS_INIT;

    if (hutch_volume_make(bytes, files, plan, &mounts, err) < 0)
        return -1;
    *ret_mount_fd = hutch_fd_take(&mounts.sandbox_fd);
    *ret_dirfd = openat(mounts.base_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    hutch_fd_closep(&mounts.base_fd);
    return *ret_dirfd < 0 ? hutch_err_set(err, errno, "open a data directory in memory") : 0;
}

static int make_volume(const struct sandbox_spec *spec, const struct id_plan *plan, struct cold_data *ret,
                       struct hutch_err *err)
{
    ret->ids = *plan;
    return open_volume(spec->limits[LIMIT_DATA_SIZE], spec->limits[LIMIT_DATA_FILES], plan, &ret->dirfd,
                       &ret->mount_fd, err);
}

int hutch_cold_data_make(const struct sandbox_spec *spec, unsigned controllers, struct cold_data *ret,
                         struct hutch_err *err)
{
    const enum sandbox_need need = spec->layers[LAYER_OWN_UID];
    struct hutch_err why = { 0 };
    struct id_plan plan, shared;
    bool may_own = need != NEED_OFF;

    if (hutch_userns_plan(&plan, err) < 0)
        return -1;
    if (!plan.is_mapped_away && may_own && hutch_spec_binds(spec, 0)) {
        hutch_err_set(&why, 0, "a path of the host is mounted, where only root can map owners");
        may_own = false;
    }
    if (!plan.is_mapped_away && may_own && !hutch_ids_may_enter(spec)) {
        hutch_err_set(&why, 0, IDS_NO_ENTRY);
        may_own = false;
    }
    if (!plan.is_mapped_away && may_own)
        may_own = hutch_userns_find_range(&plan.range, &why);
    snprintf(ret->why_shared, sizeof(ret->why_shared), "%.90s", plan.is_mapped_away || need == NEED_OFF ? "" : why.msg);
    if (!hutch_data_belongs_in_memory(spec, controllers, may_own && need == NEED_REQUIRE)) {
        if (!plan.is_mapped_away && may_own)
            snprintf(ret->why_shared, sizeof(ret->why_shared), IDS_ON_DISK);
        return 0;
    }
    shared = plan;
    if (hutch_mounts_enter_namespaces(&plan, &why, err) < 0)
        goto on_disk;
    ret->is_apart = true;
    if (may_own && plan.range.count > 1 && hutch_ids_borrow(&plan, &ret->id_fd, &why) == 0) {
        if (make_volume(spec, &plan, ret, err) == 0) {
            ret->uid = plan.host_uid;
            ret->gid = plan.host_gid;
            return 1;
        }
        hutch_fd_closep(&ret->id_fd);
        if (err->errnum != EOPNOTSUPP || plan.is_mapped_away)
            goto on_disk; /* where root can map owners more often than in memory */
        hutch_err_set(&why, 0, IDS_UNMAPPED);
    }
    snprintf(ret->why_shared, sizeof(ret->why_shared), "%.90s", need == NEED_OFF ? "" : why.msg);
    if (make_volume(spec, &shared, ret, err) == 0)
        return 1;
on_disk:
    ret->ids = shared;
    if (!plan.is_mapped_away && may_own)
        snprintf(ret->why_shared, sizeof(ret->why_shared), IDS_ON_DISK);
    hutch_cold_data_done(ret);
    if (spec->data_place == DATA_MEMORY)
        return hutch_err_wrap(err, "have a data directory in memory, as the policy says");
    hutch_log_debug("run: the data directory is on disk: %s", err->msg);
    return 0;
}

int hutch_cold_data_make_another(struct cold_data *data, uint64_t bytes, uint64_t files, int *ret_dirfd,
                                 int *ret_mount_fd, struct hutch_err *err)
{
    struct hutch_err ignored;

    if (!data->is_apart) {
        struct id_plan plan;

        if (hutch_userns_plan(&plan, err) < 0)
            return -1;
        data->ids = plan;
        if (hutch_mounts_enter_namespaces(&plan, &ignored, err) < 0)
            return -1;
        data->is_apart = true;
    }
    return open_volume(bytes, files, &data->ids, ret_dirfd, ret_mount_fd, err);
}

int hutch_cold_data_keep(const struct cold_data *data, struct run_state *state, char **ret_path, struct hutch_err *err)
{
    const struct snapshot_bounds all = { 0 };
    struct snapshot_report report;
    struct hutch_err ignored;

    if (hutch_snapshot_take(data->dirfd, state->runs_dirfd, state->id, &all, &report, err) < 0)
        return -1;
    if (hutch_state_keep_directory(state, state->runs_dirfd, state->id, state->id, ret_path, err) == 0)
        return 0;
    hutch_rmtree(state->runs_dirfd, state->id, &ignored);
    return -1;
}

void hutch_cold_data_done(struct cold_data *data)
{
    hutch_fd_closep(&data->dirfd);
    hutch_fd_closep(&data->mount_fd);
    hutch_fd_closep(&data->id_fd);
}
