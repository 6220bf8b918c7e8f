#include "runtime/data/changes.h"

#include "sandbox/fd.h"
#include "runtime/data/mime.h"
#include "runtime/data/names.h"
#include "sandbox/opath.h"
#include "sandbox/walk.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define MAX_SNIFFS 10000 /* files opened for their first bytes; the others stay octet streams */

#define auto_walk __attribute__((cleanup(hutch_walk_done))) struct walk
#define auto_file_list __attribute__((cleanup(hutch_file_list_done))) struct file_list
#define auto_file_changes __attribute__((cleanup(hutch_file_changes_done))) struct file_changes

static const char *const type_names[FILE_TYPE_COUNT] = {
    [FILE_REGULAR] = "file",  [FILE_DIRECTORY] = "directory",        [FILE_SYMLINK] = "symlink",
    [FILE_FIFO] = "fifo",     [FILE_SOCKET] = "socket",              [FILE_CHAR_DEVICE] = "char_device",
    [FILE_BLOCK_DEVICE] = "block_device",
};

const char *hutch_file_type_name(enum file_type type)
{
    return (unsigned)type < FILE_TYPE_COUNT ? type_names[type] : "unknown";
}

static enum file_type type_of_mode(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:  return FILE_DIRECTORY;
    case S_IFLNK:  return FILE_SYMLINK;
    case S_IFIFO:  return FILE_FIFO;
    case S_IFSOCK: return FILE_SOCKET;
    case S_IFCHR:  return FILE_CHAR_DEVICE;
    case S_IFBLK:  return FILE_BLOCK_DEVICE;
    default:       return FILE_REGULAR;
    }
}

static int64_t to_ns(const struct timespec *ts)
{
    return (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec;
}

/* Errors of a walk that say something about us and not about the tree. */
static bool is_our_own_fault(int errnum)
{
    return errnum == ENOMEM || errnum == EMFILE || errnum == ENFILE;
}

/* ---- before ---- */

void hutch_file_list_done(struct file_list *list)
{
    struct file_list fresh = FILE_LIST_INIT;

    free(list->files);
    hutch_names_free(list->names);
    *list = fresh;
}

static int add_seen(struct file_list *list, size_t *cap, const struct walk *w, const struct stat *st)
{
    struct file_seen *file;

    if (list->n_files == *cap) {
        size_t bigger = *cap ? 2 * *cap : 64;
        struct file_seen *files = reallocarray(list->files, bigger, sizeof(*files));

        if (files == NULL)
            return -1;
        list->files = files;
        *cap = bigger;
    }
    file = &list->files[list->n_files];
    file->path = hutch_names_keep(&list->names, w->path, w->path_len);
    if (file->path == NULL)
        return -1;
    file->size = (uint64_t)st->st_size;
    file->ino = st->st_ino;
    file->mtime_ns = to_ns(&st->st_mtim);
    file->ctime_ns = to_ns(&st->st_ctim);
    file->mode = st->st_mode;
    list->n_files++;
    return 0;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct file_seen *)a)->path, ((const struct file_seen *)b)->path);
}

static int64_t now_of_inodes(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return to_ns(&now);
}

/* Time stamps of inodes move by the timer tick (4 ms at 250 Hz; finer from Linux 6.13). A file that was changed in
 * the tick that is still on, and is changed once more with the same size, would look the same: so see that tick out.
 * A stamp far ahead comes from another clock and waiting would not help. */
double hutch_collect_unsettled_ms(const struct file_list *seen)
{
    struct timespec tick, now;
    int64_t stamp_ns = now_of_inodes(), left_ns;

    clock_getres(CLOCK_REALTIME_COARSE, &tick);
    if (seen->newest_ns < stamp_ns || seen->newest_ns - to_ns(&tick) > stamp_ns)
        return 0;
    clock_gettime(CLOCK_REALTIME, &now);
    left_ns = stamp_ns + to_ns(&tick) - to_ns(&now);
    return left_ns > 100000 ? (double)left_ns / 1e6 : 0.1;
}

/* ---- after, or both at once ---- */

/* One walk: compares with a list, makes one, or both. */
struct scan {
    const struct file_list *before; /* NULL: nothing to compare with */
    struct file_list *after;        /* NULL: not wanted */
    size_t after_cap;
    const struct collect_bounds *bounds;
    bool strips_setid, is_listing; /* listing: what cannot be read is no news */
    struct file_changes changes;
    uint8_t *is_seen;   /* owned; one per file of before */
    uint64_t walked;
    unsigned n_sniffs;
    bool is_incomplete; /* something was not looked at: what was not seen may still be there */
    bool has_closed;    /* a directory cannot be read, and could not before */
};

static void scan_done(struct scan *scan)
{
    hutch_file_changes_done(&scan->changes);
    free(scan->is_seen);
}

void hutch_file_changes_done(struct file_changes *changes)
{
    struct file_changes fresh = FILE_CHANGES_INIT;

    free(changes->added.items);
    free(changes->modified.items);
    free(changes->deleted.items);
    hutch_names_free(changes->names);
    *changes = fresh;
}

static struct file_seen *find_before(const struct file_list *before, const char *path)
{
    struct file_seen key = { .path = path };

    if (before->n_files == 0)
        return NULL;
    return bsearch(&key, before->files, before->n_files, sizeof(key), by_path);
}

static bool is_same(const struct file_seen *file, const struct stat *st)
{
    return file->ino == st->st_ino && file->mode == st->st_mode && file->size == (uint64_t)st->st_size &&
           file->mtime_ns == to_ns(&st->st_mtim) && file->ctime_ns == to_ns(&st->st_ctim);
}

static int add_change(struct scan *scan, struct file_change_list *list, const char *path, size_t path_len,
                      const struct file_change *change)
{
    if (list->n == scan->bounds->max_listed || hutch_names_bytes(scan->changes.names) >= scan->bounds->max_text) {
        scan->changes.truncated = true;
        return 0;
    }
    if (list->n == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 16;
        struct file_change *items = reallocarray(list->items, cap, sizeof(*items));

        if (items == NULL)
            return -1;
        list->items = items;
        list->cap = cap;
    }
    list->items[list->n] = *change;
    list->items[list->n].path = hutch_names_keep(&scan->changes.names, path, path_len);
    if (list->items[list->n].path == NULL)
        return -1;
    list->n++;
    return 0;
}

/* The regular file @st found at the walk's place, as far as its name and first bytes tell. */
static const char *guess_mime(struct scan *scan, const struct walk *w, const struct stat *st)
{
    const char *mime = hutch_mime_by_name(w->name);
    char head[MIME_SNIFF_LEN];
    struct stat opened;
    ssize_t n;

    if (mime != NULL)
        return mime;
    if (st->st_size > 0 && scan->n_sniffs++ < MAX_SNIFFS) {
        auto_fd fd = openat(w->dirfd, w->name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);

        if (fd < 0 || fstat(fd, &opened) < 0 || !S_ISREG(opened.st_mode) || opened.st_ino != st->st_ino)
            return "application/octet-stream";
        n = pread(fd, head, sizeof(head), 0);
        if (n >= 0)
            return hutch_mime_by_content(head, (size_t)n, n == opened.st_size);
    }
    return st->st_size == 0 ? hutch_mime_by_content(head, 0, true) : "application/octet-stream";
}

/* A file with such a bit would run with the caller's identity for every other user of the host. */
static void strip_setid(struct scan *scan, const struct walk *w, const struct stat *st)
{
    auto_fd fd = -1;
    struct stat opened;

    if (!scan->strips_setid || !S_ISREG(st->st_mode) || !(st->st_mode & (S_ISUID | S_ISGID)))
        return;
    fd = openat(w->dirfd, w->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &opened) == 0 && S_ISREG(opened.st_mode) && opened.st_ino == st->st_ino &&
        hutch_opath_chmod(fd, opened.st_mode & 01777) == 0)
        scan->changes.stripped++;
    else
        scan->changes.strip_failed++;
}

/* Was it made since the snapshot, which has no room for it? */
static bool is_born_since(const struct scan *scan, const struct walk *w)
{
    struct statx stx;

    if (statx(w->dirfd, w->name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_BTIME, &stx) < 0 ||
        !(stx.stx_mask & STATX_BTIME))
        return true;
    return stx.stx_btime.tv_sec * 1000000000 + stx.stx_btime.tv_nsec >= scan->before->taken_ns;
}

/* Compares one thing that is not a directory, or one that cannot be read. */
static int look_at(struct scan *scan, const struct walk *w, const struct stat *st)
{
    const struct file_list *before = scan->before;
    const struct file_seen *old = find_before(before, w->path);
    struct file_change change = { .size = (uint64_t)st->st_size,
                                  .mtime_ns = to_ns(&st->st_mtim),
                                  .type = type_of_mode(st->st_mode) };
    bool is_changed = to_ns(&st->st_ctim) >= before->taken_ns;

    if (old != NULL) {
        scan->is_seen[old - before->files] = 1;
        if (is_same(old, st))
            return 0;
    } else if (before->truncated && !is_changed) {
        return 0;
    }
    strip_setid(scan, w, st);
    if (w->path_len > COLLECT_MAX_PATH) {
        scan->changes.truncated = true;
        return 0;
    }
    if (S_ISDIR(st->st_mode))
        change.size = 0;
    if (S_ISREG(st->st_mode))
        change.mime = guess_mime(scan, w, st);
    if (old != NULL || (before->truncated && !is_born_since(scan, w)))
        return add_change(scan, &scan->changes.modified, w->path, w->path_len, &change);
    return add_change(scan, &scan->changes.added, w->path, w->path_len, &change);
}

/* The same thing for the new list. */
static int remember(struct scan *scan, const struct walk *w, struct stat *st)
{
    struct file_list *after = scan->after;

    if (scan->strips_setid && S_ISREG(st->st_mode) && (st->st_mode & (S_ISUID | S_ISGID)) &&
        fstatat(w->dirfd, w->name, st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
        return 0;
    if (after->n_files == scan->bounds->max_listed || w->path_len > COLLECT_MAX_PATH ||
        hutch_names_bytes(after->names) >= scan->bounds->max_text) {
        after->truncated = true;
        return 0;
    }
    return add_seen(after, &scan->after_cap, w, st);
}

static void miss(struct scan *scan)
{
    scan->is_incomplete = scan->changes.truncated = true;
}

static int visit(struct scan *scan, struct walk *w, struct hutch_err *err)
{
    const struct file_seen *old;
    bool is_same_closed = false;
    struct stat st;
    int skipped;

    if (fstatat(w->dirfd, w->name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0) {
        if (errno != ENOENT)
            miss(scan);
        return 0;
    }
    if (S_ISDIR(st.st_mode)) {
        if (hutch_walk_enter(w, &skipped, err) < 0)
            return -1;
        if (skipped == 0 || skipped == ENOENT || skipped == EXDEV)
            return 0;
        old = scan->before ? find_before(scan->before, w->path) : NULL;
        if (scan->before && !scan->is_listing && (old == NULL || old->mode != st.st_mode || old->ino != st.st_ino)) {
            miss(scan);
        } else if (skipped == EACCES) {
            scan->has_closed = true;
            is_same_closed = old != NULL;
        }
    }
    if ((scan->before && !is_same_closed && look_at(scan, w, &st) < 0) || (scan->after && remember(scan, w, &st) < 0))
        return hutch_err_set(err, ENOMEM, "remember %" PRIu64 " files", scan->walked);
    return 0;
}

static int add_deleted(struct scan *scan)
{
    const struct file_list *before = scan->before;

    for (size_t i = 0; i < before->n_files; i++) {
        const struct file_seen *old = &before->files[i];
        struct file_change change = { .size = old->size, .mtime_ns = old->mtime_ns, .type = type_of_mode(old->mode) };

        if (scan->is_seen[i] || change.type == FILE_DIRECTORY)
            continue;
        if (add_change(scan, &scan->changes.deleted, old->path, strlen(old->path), &change) < 0)
            return -1;
    }
    return 0;
}

static int change_by_path(const void *a, const void *b)
{
    return strcmp(((const struct file_change *)a)->path, ((const struct file_change *)b)->path);
}

static void sort_changes(struct file_change_list *list)
{
    if (list->n > 0)
        qsort(list->items, list->n, sizeof(*list->items), change_by_path);
}

/* Fills scan->changes and *scan->after. */
static int scan_tree(struct scan *scan, int dirfd, unsigned flags, struct hutch_err *err)
{
    auto_walk w = WALK_INIT;
    struct stat top;

    if (scan->before) {
        scan->changes.truncated = scan->before->truncated;
        scan->is_seen = calloc(scan->before->n_files + 1, 1);
        if (scan->is_seen == NULL)
            return hutch_err_set(err, ENOMEM, "compare %zu files", scan->before->n_files);
    }
    if (scan->after)
        scan->after->taken_ns = now_of_inodes();
    if (fstat(dirfd, &top) < 0)
        return hutch_err_set(err, errno, "look at it");
    if (hutch_walk_open(&w, dirfd, ".", flags, err) < 0)
        return -1;
    for (;;) {
        struct hutch_err walk_err = { 0 };
        enum walk_event event;
        int rc = hutch_walk_next(&w, &event, &walk_err);

        if (rc == 0 && event == WALK_END)
            break;
        if (rc == 0 && event == WALK_ENTRY && scan->walked++ < scan->bounds->max_walked)
            rc = visit(scan, &w, &walk_err);
        else if (rc == 0 && event == WALK_ENTRY)
            rc = -1; /* enough */
        if (rc == 0)
            continue;
        if (is_our_own_fault(walk_err.errnum)) {
            *err = walk_err;
            return -1;
        }
        miss(scan);
        break;
    }
    if (scan->before && !scan->is_incomplete && add_deleted(scan) < 0)
        return hutch_err_set(err, ENOMEM, "list the deleted files");
    sort_changes(&scan->changes.added);
    sort_changes(&scan->changes.modified);
    if (scan->after) {
        struct file_list *after = scan->after;

        /* what a closed directory holds is remembered from nowhere */
        if (scan->is_incomplete || (scan->has_closed && scan->before && scan->before->truncated))
            after->truncated = true;
        for (size_t i = 0; i < after->n_files; i++)
            if (after->files[i].ctime_ns > after->newest_ns)
                after->newest_ns = after->files[i].ctime_ns;
        if (after->n_files > 0)
            qsort(after->files, after->n_files, sizeof(*after->files), by_path);
        /* a stamp of this very tick would not tell of a change later in it */
        if (scan->walked == 0 && !after->truncated && to_ns(&top.st_ctim) < after->taken_ns) {
            after->top.ino = top.st_ino;
            after->top.ctime_ns = to_ns(&top.st_ctim);
        }
    }
    return 0;
}

int hutch_collect_snapshot(int dirfd, const struct collect_bounds *bounds, struct file_list *ret, struct hutch_err *err)
{
    auto_file_list list = FILE_LIST_INIT;
    __attribute__((cleanup(scan_done))) struct scan scan = { .after = &list, .bounds = bounds };
    struct file_list none = FILE_LIST_INIT;
    double left_ms;

    if (scan_tree(&scan, dirfd, 0, err) < 0)
        return hutch_err_wrap(err, "list the data directory");
    while ((left_ms = hutch_collect_unsettled_ms(&list)) > 0)
        nanosleep(&(struct timespec){ .tv_nsec = (long)(left_ms * 1e6) }, NULL);
    *ret = list;
    list = none;
    return 0;
}

int hutch_collect_changes(int dirfd, const struct file_list *before, const struct collect_bounds *bounds,
                          struct file_changes *ret, struct hutch_err *err)
{
    __attribute__((cleanup(scan_done))) struct scan scan = { .before = before, .bounds = bounds, .strips_setid = true };
    struct file_changes none = FILE_CHANGES_INIT;

    if (scan_tree(&scan, dirfd, WALK_UNLOCK_READ, err) < 0)
        return hutch_err_wrap(err, "list the data directory after the run");
    *ret = scan.changes;
    scan.changes = none;
    return 0;
}

bool hutch_collect_stays_empty(int dirfd, const struct file_list *seen)
{
    struct stat top;

    return seen->top.ino != 0 && fstat(dirfd, &top) == 0 && top.st_ino == seen->top.ino &&
           to_ns(&top.st_ctim) == seen->top.ctime_ns;
}

int hutch_collect_step(int dirfd, struct file_list *seen, const struct collect_bounds *bounds, struct file_changes *ret,
                       struct hutch_err *err)
{
    auto_file_list list = FILE_LIST_INIT;
    __attribute__((cleanup(
        scan_done))) struct scan scan = { .before = seen, .after = &list, .bounds = bounds, .strips_setid = true };
    struct file_list none = FILE_LIST_INIT;
    struct file_changes no_changes = FILE_CHANGES_INIT;

    if (hutch_collect_stays_empty(dirfd, seen)) {
        *ret = no_changes;
        return 0;
    }
    if (scan_tree(&scan, dirfd, 0, err) < 0)
        return hutch_err_wrap(err, "list the data directory after a cell");
    *ret = scan.changes;
    scan.changes = no_changes;
    hutch_file_list_done(seen);
    *seen = list;
    list = none;
    return 0;
}

int hutch_collect_list(int dirfd, const struct collect_bounds *bounds, struct file_changes *ret, struct hutch_err *err)
{
    const struct file_list nothing = FILE_LIST_INIT;
    __attribute__((cleanup(scan_done))) struct scan scan = { .before = &nothing, .bounds = bounds, .is_listing = true };
    struct file_changes none = FILE_CHANGES_INIT;

    if (scan_tree(&scan, dirfd, 0, err) < 0)
        return hutch_err_wrap(err, "list the data directory");
    *ret = scan.changes;
    scan.changes = none;
    return 0;
}
