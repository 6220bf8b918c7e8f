#include "runtime/engine/slot_data.h"

#include "runtime/engine/file_memory.h"
#include "runtime/engine/slot_ids.h"
#include "runtime/run/data_place.h"
#include "sandbox/fd.h"
#include "sandbox/log.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define FREED_AT_ONCE (4u << 20) /* bytes that are freed within a fraction of a millisecond */

/* --- where it is -------------------------------------------------------------------------------------------------- */

static bool belongs_in_memory(const struct slot *slot)
{
    const struct slots *slots = slot->slots;
    const struct sandbox_spec *spec = &slot->template->spec;

    return (!slots->has_no_volumes || spec->data_place == DATA_MEMORY) &&
           hutch_data_belongs_in_memory(spec, slots->helper->controllers,
                                        spec->layers[LAYER_OWN_UID] == NEED_REQUIRE &&
                                            hutch_slots_map_in_memory(slots, slot->template));
}

static int make_on_disk(struct slot *slot, struct hutch_err *err)
{
    struct core *core = slot->slots->core;

    /* Whatever the caller's umask is. */
    if (mkdirat(core->data_root_fd, slot->data_name, 0755) < 0 ||
        fchmodat(core->data_root_fd, slot->data_name, 0755, 0) < 0) {
        hutch_err_set(err, errno, "make the directory '%s/%s'", core->data_root, slot->data_name);
        if (hutch_core_is_removed(core, core->data_root_fd))
            *err = core->why;
        return -1;
    }
    slot->data_dirfd = openat(core->data_root_fd, slot->data_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (slot->data_dirfd < 0)
        return hutch_err_set(err, errno, "open the directory '%s/%s'", core->data_root, slot->data_name);
    return 0;
}

int hutch_slot_make_data(struct slot *slot, struct hutch_err *err)
{
    if (slot->data_path)
        return hutch_slot_open_data(slot, err);
    snprintf(slot->data_name, sizeof(slot->data_name), "%08x", slot->id);
    slot->has_volume = !slot->shares_ids && belongs_in_memory(slot);
    return slot->has_volume ? 0 : make_on_disk(slot, err);
}

int hutch_slot_open_data(struct slot *slot, struct hutch_err *err)
{
    struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS };

    hutch_fd_closep(&slot->data_dirfd);
    slot->data_dirfd = (int)syscall(SYS_openat2, AT_FDCWD, slot->data_path, &how, sizeof(how));
    if (slot->data_dirfd < 0)
        return hutch_err_set(err, errno, "open the data directory '%s'", slot->data_path);
    return 0;
}

/* --- its mount ---------------------------------------------------------------------------------------------------- */

bool hutch_slot_data_is_mounted_first(const struct slot *slot)
{
    return slot->has_volume || slot->uid;
}

int hutch_slot_order_data(struct slot *slot, struct hutch_err *err)
{
    const uint64_t *limits = slot->template->spec.limits;
    struct helper *h = slot->slots->helper;
    auto_free char *path = NULL;

    if (slot->has_volume)
        return hutch_helper_open_volume(h, slot->id, -1, limits[LIMIT_DATA_SIZE], limits[LIMIT_DATA_FILES], slot->uid,
                                        slot->gid, err);
    if (!slot->data_path && asprintf(&path, "%s/%s", slot->slots->core->data_root, slot->data_name) < 0) {
        path = NULL;
        return hutch_err_set(err, ENOMEM, "name a data directory");
    }
    return hutch_helper_open(h, slot->id, path ? path : slot->data_path, MOUNT_IDMAP, slot->uid, slot->gid, err);
}

/* What another order would not mend. */
static bool is_lasting(int errnum)
{
    return errnum == EOPNOTSUPP || errnum == ENOSYS || errnum == ENODEV || errnum == EPERM || errnum == EINVAL;
}

/* Where volumes cannot be had at all, those after it do without, too. */
static int do_without_volume(struct slot *slot, const struct hutch_err *why, struct hutch_err *err)
{
    if (slot->template->spec.data_place == DATA_MEMORY) {
        *err = *why;
        return hutch_err_wrap(err, "have a data directory in memory, as the policy says");
    }
    hutch_log_debug("engine: data directories are on disk: %s", why->msg);
    slot->slots->has_no_volumes |= is_lasting(why->errnum);
    slot->has_volume = false;
    if (slot->uid && !slot->slots->helper->is_mapped_away)
        hutch_slot_share_ids(slot, IDS_ON_DISK);
    if (make_on_disk(slot, err) < 0)
        return -1;
    if (!hutch_slot_data_is_mounted_first(slot))
        return 1;
    return hutch_slot_order_data(slot, err);
}

int hutch_slot_take_data(struct slot *slot, int fd, int *base_fd, const struct hutch_err *why, struct hutch_err *err)
{
    if (fd >= 0 && slot->has_volume) {
        slot->volume_fd = hutch_fd_take(base_fd);
        slot->data_dirfd = openat(slot->volume_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return slot->data_dirfd < 0 ? hutch_err_set(err, errno, "open a data directory in memory") : 1;
    }
    if (fd >= 0)
        return 1;
    /* Root has the disk, where owners can be mapped more often than in memory. */
    if (why->errnum == EOPNOTSUPP && slot->uid && !(slot->has_volume && slot->slots->helper->is_mapped_away)) {
        hutch_slot_share_ids(slot, IDS_UNMAPPED);
        return slot->has_volume ? hutch_slot_order_data(slot, err) : 1;
    }
    if (slot->has_volume)
        return do_without_volume(slot, why, err);
    *err = *why;
    return -1;
}

/* --- its bounds --------------------------------------------------------------------------------------------------- */

static bool is_in_memory(const struct slot *slot)
{
    return slot->given || (slot->has_volume && !slot->data_path);
}

bool hutch_slot_is_bounded_by(const struct slot *slot, const uint64_t limits[LIMIT_COUNT])
{
    const uint64_t *own = slot->template->spec.limits;

    return is_in_memory(slot) && own[LIMIT_DATA_SIZE] == limits[LIMIT_DATA_SIZE] &&
           own[LIMIT_DATA_FILES] == limits[LIMIT_DATA_FILES];
}

/* --- its end ------------------------------------------------------------------------------------------------------ */

void hutch_slot_remove_data(struct slot *slot)
{
    /* Its pages are freed by the last who has it open, and a millisecond frees a few megabytes. */
    if (slot->volume_fd >= 0 && hutch_file_memory_of(slot->volume_fd) > FREED_AT_ONCE)
        hutch_helper_drop_volume(slot->slots->helper, slot->volume_fd);
    hutch_fd_closep(&slot->volume_fd);
    hutch_fd_closep(&slot->data_dirfd);
    if (slot->has_volume || !slot->data_name[0] ||
        unlinkat(slot->slots->core->data_root_fd, slot->data_name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return;
    /* hostile code may have left any number of files */
    hutch_helper_remove_directory(slot->slots->helper, slot->data_name);
}
