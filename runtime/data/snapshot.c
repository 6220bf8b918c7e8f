#include "runtime/data/snapshot.h"

#include "runtime/data/changes.h"
#include "runtime/data/copier.h"
#include "sandbox/fd.h"
#include "sandbox/log.h"
#include "sandbox/opath.h"
#include "sandbox/rmtree.h"
#include "sandbox/walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define MAX_LOST 10 /* of failed orders about one name */
#define MOVING ".hutch-moving" /* a copy that is not complete, where a move has to copy */

#define auto_copier __attribute__((cleanup(hutch_copier_done))) struct copier

const char *hutch_snapshot_how(const struct snapshot_report *report)
{
    if (report->bytes_cloned && report->bytes_copied)
        return "both";
    return report->bytes_cloned ? "reflink" : report->bytes_copied ? "copied" : "nothing";
}

static bool is_there(int dirfd, const char *name)
{
    struct stat st;

    return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static int check_name(const char *name, struct hutch_err *err)
{
    size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");

    if (len == 0 || name[len] || len > SNAPSHOT_NAME_MAX)
        return hutch_err_say(err, EINVAL, "the name of a state is 1 to %d letters, digits, '-' and '_'",
                             SNAPSHOT_NAME_MAX);
    return 0;
}

/* ---- exchange ---- */

enum moved { MOVED = 'm', COPIED = 'c', WAS_THERE = 't' };

struct name_list {
    char *text; /* owned; each is an enum moved, then the name, then a NUL */
    size_t len, cap;
};

static void name_list_done(struct name_list *list)
{
    free(list->text);
}

/* What is in @dirfd now. */
static int read_names(int dirfd, struct name_list *ret, struct hutch_err *err)
{
    int fd = hutch_opath_open_dir(dirfd, ".", 0);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;

    if (!stream) {
        hutch_err_set(err, errno, "read a directory");
        hutch_fd_closep(&fd);
        return -1;
    }
    while (errno = 0, (entry = readdir(stream)) != NULL) {
        size_t len = strlen(entry->d_name) + 2;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (ret->cap - ret->len < len) {
            size_t cap = ret->cap ? 2 * ret->cap : 4096;
            char *text = realloc(ret->text, cap);

            if (!text) {
                errno = ENOMEM;
                break;
            }
            ret->text = text;
            ret->cap = cap;
        }
        ret->text[ret->len] = MOVED;
        memcpy(ret->text + ret->len + 1, entry->d_name, len - 1);
        ret->len += len;
    }
    if (errno)
        hutch_err_set(err, errno, "read a directory");
    fd = errno ? -1 : 0;
    closedir(stream);
    return fd;
}

/* What a move may copy: what lay there when it began, and room for a program that goes on writing; but not for ever. */
static int bound_move(struct copier *c, int from, struct hutch_err *err)
{
    const struct collect_bounds all = COLLECT_BOUNDS_DEFAULT;
    uint64_t bytes, entries;

    if (hutch_collect_usage(from, &all, &bytes, &entries, err) < 0)
        return -1;
    c->bounds.max_bytes = 2 * bytes + (64u << 20);
    c->bounds.max_entries = entries < all.max_walked ? 2 * entries + 1000 : all.max_walked;
    return 0;
}

/* Gives the complete copy its name. What a process inside has given that name meanwhile goes. */
static int name_copy(int to, const char *name, struct hutch_err *err)
{
    struct hutch_err why;
    int rc = renameat2(to, MOVING, to, name, RENAME_NOREPLACE);

    if (rc < 0 && errno == EEXIST) {
        rc = renameat2(to, MOVING, to, name, RENAME_EXCHANGE);
        if (rc == 0 && hutch_rmtree(to, MOVING, &why) < 0)
            return hutch_copier_fail(MOVING, why.errnum, "remove", err);
    }
    if (rc < 0 && errno == EINVAL) /* a file system that has no such flags */
        rc = renameat(to, MOVING, to, name);
    if (rc < 0 && errno != ENOENT)
        return hutch_copier_fail(name, errno, "copy", err);
    return 0;
}

/* To another file system; the original is removed later. The copy gets its name when it is complete; so where there is
 * one already, nothing has to be copied, unless the original @wins. */
static int move_by_copy(struct copier *c, int from, const char *name, int to, bool wins, char *ret_moved,
                        struct hutch_err *err)
{
    struct hutch_err why;

    if (wins && hutch_rmtree(to, name, &why) < 0)
        return hutch_copier_fail(name, why.errnum, "replace", err);
    *ret_moved = WAS_THERE;
    if (is_there(to, name))
        return 0;
    if (!wins && c->bounds.max_bytes == 0 && bound_move(c, from, err) < 0)
        return -1;
    if (hutch_rmtree(to, MOVING, &why) < 0)
        return hutch_copier_fail(MOVING, why.errnum, "remove", err);
    if (hutch_copier_copy_entry(c, from, name, to, MOVING, err) < 0) {
        hutch_rmtree(to, MOVING, &why);
        return -1;
    }
    if (name_copy(to, name, err) < 0)
        return -1;
    *ret_moved = COPIED;
    return 0;
}

static int move_one(struct copier *c, int from, const char *name, int to, bool wins, char *ret_moved,
                    struct hutch_err *err)
{
    int rc = renameat2(from, name, to, name, RENAME_NOREPLACE);

    /* Something has this name already: a process inside made it just now. It goes where ours was, and with that. */
    if (rc < 0 && errno == EEXIST)
        rc = renameat2(from, name, to, name, RENAME_EXCHANGE);
    if (rc < 0 && errno == EINVAL) /* a file system that has no such flags */
        rc = renameat(from, name, to, name);
    if (rc == 0 || errno == ENOENT)
        return 0;
    if (errno == EXDEV)
        return move_by_copy(c, from, name, to, wins, ret_moved, err);
    return hutch_copier_fail(name, errno, "move", err);
}

/* ---- files that are to free their memory ---- */

static void empty_file(int dirfd, const char *name, dev_t dev)
{
    auto_fd fd = openat(dirfd, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_dev == dev && ftruncate(fd, 0) < 0)
        hutch_log_debug("snapshot: empty '%s': %s", name, strerrordesc_np(errno));
}

static void empty_files(int from, const char *name)
{
    __attribute__((cleanup(hutch_walk_done))) struct walk w = WALK_INIT;
    enum walk_event event = WALK_ENTRY;
    struct hutch_err err;
    struct stat st;
    int skipped;

    if (fstat(from, &st) < 0)
        return;
    empty_file(from, name, st.st_dev);
    if (hutch_walk_open(&w, from, name, WALK_UNLOCK_READ, &err) < 0)
        return; /* no directory */
    while (hutch_walk_next(&w, &event, &err) == 0 && event != WALK_END)
        if (event == WALK_ENTRY && w.d_type != DT_DIR)
            empty_file(w.dirfd, w.name, st.st_dev);
        else if (event == WALK_ENTRY && hutch_walk_enter(&w, &skipped, &err) < 0)
            return;
}

/* Whether another state of the same size may not fit in beside what is there. */
static bool is_too_full_for_two(int data)
{
    struct statvfs st;

    return fstatvfs(data, &st) == 0 && st.f_bfree < st.f_blocks - st.f_bfree;
}

/* Nothing is removed before all is copied: files with several names among the entries stay one file, and what fails can
 * be undone. */
static int move_all(int from, int to, bool wins, bool empties, struct snapshot_report *report, struct hutch_err *err)
{
    __attribute__((cleanup(name_list_done))) struct name_list names = { .text = NULL };
    auto_copier c = COPIER_INIT;
    struct hutch_err why;
    int rc = 0;

    if (hutch_copier_init(&c, to, NULL, err) < 0 || read_names(from, &names, err) < 0)
        return -1;
    for (size_t i = 0; rc == 0 && i < names.len; i += strlen(names.text + i) + 1)
        rc = move_one(&c, from, names.text + i + 1, to, wins, &names.text[i], err);
    for (size_t i = 0; i < names.len; i += strlen(names.text + i) + 1) {
        const char *name = names.text + i + 1;

        if (rc < 0 && names.text[i] == COPIED && !wins)
            hutch_rmtree(to, name, &why);
        if (rc == 0 && names.text[i] != MOVED && empties)
            empty_files(from, name);
        if (rc == 0 && names.text[i] != MOVED && hutch_rmtree(from, name, &why) < 0)
            return hutch_copier_fail(name, why.errnum, "remove", err);
    }
    if (rc < 0)
        return -1;
    report->entries += c.report.entries;
    report->bytes_cloned += c.report.bytes_cloned;
    report->bytes_copied += c.report.bytes_copied;
    return 0;
}

/* Something went wrong, @err says what: everything goes back from @from, the directory @name of @store, to @to. */
static void move_back(int from, int to, int store, const char *name, struct hutch_err *err)
{
    struct snapshot_report report = { 0 };
    struct hutch_err first = *err, why;

    if (move_all(from, to, true, false, &report, &why) < 0)
        hutch_err_set(err, first.errnum, "%.200s; and then: %.150s; what is missing is in '%s' of the store", first.msg,
                      why.msg, name);
    else if (hutch_rmtree(store, name, &why) < 0) /* what a process made meanwhile may be in it */
        hutch_log_debug("snapshot: %s", why.msg);
}

/* What lay in a data directory, and an order that failed could not put back, is not for a later one to go on with. */
static int set_aside(int store, const char *name, struct hutch_err *err)
{
    char lost[80];

    if (!is_there(store, name))
        return 0;
    for (int i = 0; i < MAX_LOST; i++) {
        snprintf(lost, sizeof(lost), "%s.lost%d", name, i);
        if (renameat2(store, name, store, lost, RENAME_NOREPLACE) == 0)
            return 0;
        if (errno != EEXIST)
            break;
    }
    return hutch_err_set(err, errno, "set '%s' aside", name);
}

static void take_over_top(int from, const struct stat *st, int to)
{
    struct hutch_err ignored;
    auto_copier c = COPIER_INIT;

    if (hutch_copier_init(&c, to, NULL, &ignored) == 0)
        hutch_copier_copy_top(&c, from, st, to);
}

/* The contents of @data become the directory @out of @store, those of @in become the data's. While it is filled, @out
 * has another name: that tells how far an exchange came that was broken off. */
static int exchange(int data, int store, const char *in, const char *out, bool empties, struct snapshot_report *report,
                    struct hutch_err *err)
{
    auto_fd in_fd = hutch_opath_open_dir(store, in, 0), out_fd = -1;
    struct stat in_top, data_top; /* before the moving changes their times */
    struct hutch_err ignored;
    char part[64];

    snprintf(part, sizeof(part), "%s.part", out);
    if (is_there(store, out)) {
        if (in_fd < 0 && errno == ENOENT)
            return 0; /* it was all done */
        out_fd = hutch_opath_open_dir(store, out, 0);
        if (in_fd < 0 || fstat(in_fd, &in_top) < 0 || out_fd < 0 || fstat(out_fd, &data_top) < 0)
            return hutch_err_set(err, errno, "open the states '%s' and '%s'", in, out);
    } else {
        if (in_fd < 0 || fstat(in_fd, &in_top) < 0)
            return hutch_err_set(err, errno, "open the state '%s'", in);
        if (fstat(data, &data_top) < 0)
            return hutch_err_set(err, errno, "look at the data directory");
        if ((mkdirat(store, part, 0700) < 0 && errno != EEXIST) || (out_fd = hutch_opath_open_dir(store, part, 0)) < 0)
            return hutch_err_set(err, errno, "make the directory '%s'", part);
        if (move_all(data, out_fd, false, empties && is_too_full_for_two(data), report, err) < 0) {
            move_back(out_fd, data, store, part, err);
            return -1;
        }
        take_over_top(data, &data_top, out_fd);
        if (renameat(store, part, store, out) < 0) {
            hutch_err_set(err, errno, "rename '%s' to '%s'", part, out);
            move_back(out_fd, data, store, part, err);
            return -1;
        }
    }
    if (move_all(in_fd, data, false, false, report, err) < 0) {
        struct snapshot_report back = { 0 };
        struct hutch_err first = *err, why;

        if (move_all(data, in_fd, true, false, &back, &why) < 0)
            hutch_err_set(err, first.errnum, "%.200s; and then: %.150s; files of '%s' are left in the data directory",
                          first.msg, why.msg, in);
        take_over_top(out_fd, &data_top, data);
        move_back(out_fd, data, store, out, err);
        return -1;
    }
    take_over_top(in_fd, &in_top, data);
    if (hutch_rmtree(store, in, &ignored) < 0)
        hutch_log_debug("snapshot: %s", ignored.msg);
    return 0;
}

/* exchange(), which SIGTERM waits for: it takes the time of some renames, and a data directory that is the caller's own
 * should not be left between two states. */
static int exchange_undisturbed(int data_dirfd, int store, const char *in, const char *out, bool empties,
                                struct snapshot_report *report, struct hutch_err *err)
{
    auto_fd data = hutch_opath_open_dir(data_dirfd, ".", 0);
    sigset_t term, old;
    int rc;

    if (data < 0)
        return hutch_err_set(err, errno, "open the data directory");
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, &old);
    rc = exchange(data, store, in, out, empties, report, err);
    sigprocmask(SIG_SETMASK, &old, NULL);
    return rc;
}

/* ---- the three verbs ---- */

int hutch_snapshot_take(int data_dirfd, int store_dirfd, const char *name, const struct snapshot_bounds *bounds,
                        struct snapshot_report *ret, struct hutch_err *err)
{
    char part[64];
    struct hutch_err why;

    if (check_name(name, err) < 0)
        return -1;
    if (is_there(store_dirfd, name))
        return hutch_err_say(err, EEXIST, "there is a state '%s' already", name);
    snprintf(part, sizeof(part), "%s.in", name);
    if (hutch_rmtree(store_dirfd, part, &why) < 0) { /* of an order that was broken off */
        *err = why;
        return -1;
    }
    if (hutch_copier_copy_tree(data_dirfd, store_dirfd, part, bounds, ret, err) < 0)
        return hutch_err_wrap(err, "keep the files");
    if (renameat(store_dirfd, part, store_dirfd, name) < 0) {
        hutch_err_set(err, errno, "rename '%s' to '%s'", part, name);
        hutch_rmtree(store_dirfd, part, &why);
        return -1;
    }
    return 0;
}

int hutch_snapshot_restore(int data_dirfd, int store_dirfd, const char *name, unsigned flags,
                           const struct snapshot_bounds *bounds, struct snapshot_report *ret, struct hutch_err *err)
{
    char in[64], out[64], half[64], gone[64];
    struct snapshot_report report = { 0 };
    auto_fd state = -1;
    struct hutch_err why;

    if (check_name(name, err) < 0)
        return -1;
    snprintf(in, sizeof(in), "%s.in", name);
    snprintf(out, sizeof(out), "%s.out", name);
    snprintf(half, sizeof(half), "%s.out.part", name);
    snprintf(gone, sizeof(gone), "%s.gone", name);
    if (hutch_rmtree(store_dirfd, gone, &why) < 0)
        hutch_log_debug("snapshot: %s", why.msg);
    if (!(flags & SNAPSHOT_RESUMES) && (set_aside(store_dirfd, out, err) < 0 || set_aside(store_dirfd, half, err) < 0))
        return -1;
    /* else: it was copied, and broken off after that */
    if (!is_there(store_dirfd, out) && !is_there(store_dirfd, half)) {
        state = hutch_opath_open_dir(store_dirfd, name, 0);
        if (state < 0)
            return hutch_err_set(err, errno, "open the state '%s'", name);
        if (hutch_rmtree(store_dirfd, in, &why) < 0) {
            *err = why;
            return -1;
        }
        if (hutch_copier_copy_tree(state, store_dirfd, in, bounds, &report, err) < 0)
            return hutch_err_wrap(err, "bring the files back");
    }
    if (exchange_undisturbed(data_dirfd, store_dirfd, in, out, flags & SNAPSHOT_EMPTIES, &report, err) < 0) {
        hutch_rmtree(store_dirfd, in, &why);
        return hutch_err_wrap(err, "bring the files back");
    }
    /* The name tells an order that is broken off now that all is done. */
    if (hutch_rmtree(store_dirfd, renameat(store_dirfd, out, store_dirfd, gone) < 0 ? out : gone, &why) < 0)
        hutch_log_debug("snapshot: %s", why.msg); /* the end of the engine takes it away */
    *ret = report;
    return 0;
}

int hutch_snapshot_switch(int data_dirfd, int store_dirfd, const char *name, const char *keep, unsigned flags,
                          struct snapshot_report *ret, struct hutch_err *err)
{
    struct collect_bounds bounds = COLLECT_BOUNDS_DEFAULT;
    struct snapshot_report report = { 0 };
    auto_fd kept = -1;
    uint64_t entries;
    struct hutch_err why;
    char out[64], half[64];

    if (check_name(name, err) < 0 || check_name(keep, err) < 0)
        return -1;
    snprintf(out, sizeof(out), "%s.out", keep); /* no state before it is complete, so that nobody removes it */
    snprintf(half, sizeof(half), "%s.out.part", keep);
    if (!(flags & SNAPSHOT_RESUMES) && is_there(store_dirfd, keep))
        return hutch_err_say(err, EEXIST, "there is a state '%s' already", keep);
    if (!(flags & SNAPSHOT_RESUMES) && (set_aside(store_dirfd, out, err) < 0 || set_aside(store_dirfd, half, err) < 0))
        return -1;
    if (!is_there(store_dirfd, keep)) { /* else: it was all done */
        if (exchange_undisturbed(data_dirfd, store_dirfd, name, out, flags & SNAPSHOT_EMPTIES, &report, err) < 0)
            return hutch_err_wrap(err, "change the files over");
        if (renameat(store_dirfd, out, store_dirfd, keep) < 0) {
            const int e = errno;

            why.msg[0] = '\0';
            exchange_undisturbed(data_dirfd, store_dirfd, out, name, false, &report, &why);
            return hutch_err_set(err, e, "change the files over: rename '%s' to '%s'%s%.200s", out, keep,
                                 why.msg[0] ? ", and back: " : "", why.msg);
        }
    }
    bounds.is_at_rest = true;
    kept = hutch_opath_open_dir(store_dirfd, keep, 0);
    if (kept < 0 || hutch_collect_usage(kept, &bounds, &report.bytes_kept, &entries, &why) < 0)
        report.bytes_kept = UINT64_MAX;
    *ret = report;
    return 0;
}
