#include "runtime/engine/run_files.h"

#include "runtime/data/changes_wire.h"
#include "runtime/data/snapshot.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LANDING_MS 600000 /* for a copy of files in memory to the disk */

void hutch_run_files_init(struct engine_run *run)
{
    run->before = (struct file_list)FILE_LIST_INIT;
    run->before_fd = -1;
}

void hutch_run_files_done(struct engine_run *run)
{
    hutch_file_list_done(&run->before);
    hutch_fd_closep(&run->before_fd);
}

/* --- before its code ---------------------------------------------------------------------------------------------- */

int hutch_run_files_remember(struct engine_run *run, struct hutch_err *err)
{
    const struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;

    return hutch_collect_snapshot(run->slot->data_dirfd, &bounds, &run->before, err);
}

/* What the disk worker could not list is listed here, which says why. */
static void on_noted(void *owner, const struct disk_reply *reply, const int *fds, size_t n_fds)
{
    struct engine_run *run = owner;
    struct hutch_err err;

    if (n_fds == 1 && !reply->has_failed)
        run->before_fd = fcntl(fds[0], F_DUPFD_CLOEXEC, 3);
    if (run->before_fd < 0 && hutch_run_files_remember(run, &err) < 0)
        run->on_look(run, &err);
    else
        run->on_look(run, NULL);
}

/* Has the disk worker list what lies there, where that is much. */
static bool begin_note(struct engine_run *run)
{
    const struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    struct slot *slot = run->slot;

    run->look.on_done = on_noted;
    run->look.owner = run;
    if (!hutch_look_is_needed(slot->data_dirfd) ||
        !hutch_look_begin(&run->look, &run->runs->slots->looks, DISK_NOTE, &bounds, slot->data_dirfd, -1))
        return false;
    hutch_slot_set_state(slot, SLOT_PREPARED); /* as before it was taken: the run's own clock counts */
    return true;
}

void hutch_run_files_note(struct engine_run *run, void (*on_known)(struct engine_run *run, const struct hutch_err *why))
{
    struct hutch_err err;

    run->on_look = on_known;
    if (!begin_note(run))
        on_known(run, hutch_run_files_remember(run, &err) < 0 ? &err : NULL);
}

/* --- after it ----------------------------------------------------------------------------------------------------- */

bool hutch_run_files_are_none(const struct engine_run *run)
{
    char entries[1024] __attribute__((aligned(8)));

    return syscall(SYS_getdents64, run->slot->data_dirfd, entries, sizeof(entries)) == 48; /* "." and "..", 24 each */
}

/* What the disk worker has counted is taken; what it could not is counted here, which says why. */
void hutch_run_files_take_count(struct engine_run *run, const struct disk_reply *reply)
{
    struct supervisor *s = run->slot->supervisor;

    if (reply && !reply->has_failed)
        hutch_supervisor_take_last(s, reply->bytes, reply->entries);
    else
        hutch_supervisor_count_last(s, 0);
}

static void on_listed(void *owner, const struct disk_reply *reply, const int *fds, size_t n_fds)
{
    struct engine_run *run = owner;
    struct hutch_err err;

    run->has_looked =
        n_fds == 1 && !reply->has_failed && hutch_file_changes_load(fds[0], &run->result.files, &err) == 0;
    hutch_run_files_take_count(run, reply);
    run->on_look(run, NULL);
}

/* Has its files looked at by the disk worker. */
static bool begin_look(struct engine_run *run)
{
    const struct collect_bounds bounds = hutch_supervisor_last_bounds(run->slot->supervisor);
    auto_fd before = -1;
    struct hutch_err err;

    if (run->kind->look)
        return run->kind->look(run, &bounds);
    if (run->before_fd < 0 && run->before.taken_ns && hutch_file_list_store(&run->before, &before, &err) < 0)
        return false;
    run->look.on_done = on_listed;
    run->look.owner = run;
    return hutch_look_begin(&run->look, &run->runs->slots->looks, DISK_LIST, &bounds, run->slot->data_dirfd,
                           run->before_fd >= 0 ? run->before_fd : before);
}

bool hutch_run_files_look(struct engine_run *run,
                          void (*on_looked)(struct engine_run *run, const struct hutch_err *why))
{
    struct supervisor *s = run->slot->supervisor;
    bool is_told_again = run->look.id != 0; /* as its time is over: who was to look does not come to it */

    s->has_kept_data = run->data_dir || run->kind->look;
    hutch_look_cancel(&run->look);
    run->on_look = on_looked;
    if (!is_told_again) {
        if (hutch_supervisor_count_last(s, LOOK_MAX_ENTRIES))
            return true;
        if (begin_look(run))
            return false;
    }
    return hutch_supervisor_count_last(s, 0);
}

static void list_changes(struct engine_run *run)
{
    struct slot *slot = run->slot;
    struct hutch_err why;

    if (!run->has_looked && run->before_fd >= 0 && hutch_file_list_load(run->before_fd, &run->before, &why) < 0)
        hutch_supervisor_admit_loss(slot->supervisor, &why);
    else if (!run->has_looked)
        hutch_supervisor_collect(slot->supervisor, slot->data_dirfd, &run->before);
    run->has_looked = true;
}

/* --- what is kept ------------------------------------------------------------------------------------------------- */

/* EEXIST: a process that was killed had completed the copy, as it gets its name last. */
static void note_copy(struct engine_run *run, bool has_failed, const struct hutch_err *why)
{
    if (has_failed && why->errnum != EEXIST)
        run->copy_err = *why;
    else
        run->slot->has_volume = false; /* from here on it is the copy, which lies where those on disk do */
}

static void copy_here(struct engine_run *run)
{
    const struct snapshot_bounds all = { 0 };
    struct slot *slot = run->slot;
    struct snapshot_report report;
    struct hutch_err err;

    note_copy(run, hutch_snapshot_take(slot->data_dirfd, run->runs->core->data_root_fd, slot->data_name, &all, &report,
                                       &err) < 0, &err);
}

static void on_copied(void *owner, const struct disk_reply *reply, const int *fds, size_t n_fds)
{
    struct engine_run *run = owner;

    (void)fds;
    (void)n_fds;
    if (reply)
        note_copy(run, reply->has_failed, &reply->err);
    else
        copy_here(run); /* the disk worker is gone */
    run->on_look(run, NULL);
}

bool hutch_run_files_land(struct engine_run *run,
                          void (*on_done)(struct engine_run *run, const struct hutch_err *why))
{
    struct slot *slot = run->slot;

    if (run->look.id != 0 && hutch_clock_ms() < run->t_landing + LANDING_MS) {
        hutch_slot_set_state(slot, SLOT_DYING); /* its time begins anew */
        return false;
    }
    if (run->look.id != 0) {
        hutch_look_cancel(&run->look);
        hutch_err_set(&run->copy_err, ETIMEDOUT, "copy them to the disk");
        return true;
    }
    if (!run->keep_data || !slot->has_volume || run->data_dir || slot->supervisor->is_data_over)
        return true;
    list_changes(run); /* which opens up what the program has closed, also for the copy */
    if (run->result.files.added.n == 0 && !run->result.files.truncated)
        return true;
    run->t_landing = hutch_clock_ms();
    run->look.on_done = on_copied;
    run->look.owner = run;
    run->on_look = on_done;
    if (hutch_look_begin_copy(&run->look, &run->runs->slots->looks, slot->data_name, slot->data_dirfd))
        return false;
    copy_here(run);
    return true;
}

void hutch_run_files_collect(struct engine_run *run)
{
    struct slot *slot = run->slot;
    struct core *core = run->runs->core;
    struct run_result *r = &run->result;
    char id[STATE_ID_LEN + 1];
    struct hutch_err why;

    list_changes(run);
    if (run->data_dir) {
        if (hutch_spec_set_string(&r->directory, run->data_dir, &why) < 0)
            hutch_supervisor_admit_loss(slot->supervisor, &why);
        return;
    }
    if (hutch_core_is_removed(core, slot->data_dirfd)) {
        hutch_err_set(&why, 0, "another program has removed '%s/%s'", core->data_root, slot->data_name);
        hutch_supervisor_admit_lost_files(slot->supervisor, &why);
        return;
    }
    if (!run->keep_data || slot->supervisor->is_data_over || (r->files.added.n == 0 && !r->files.truncated))
        return;
    if (slot->has_volume) {
        hutch_supervisor_admit_lost_files(slot->supervisor, &run->copy_err);
        return;
    }
    snprintf(id, sizeof(id), "%.8s%08x", core->state.id, slot->id);
    if (hutch_state_keep_directory(&core->state, core->data_root_fd, slot->data_name, id, &r->directory, &why) < 0)
        hutch_supervisor_admit_lost_files(slot->supervisor, &why);
}
