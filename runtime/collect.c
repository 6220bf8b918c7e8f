#include "collect.h"

#include "fd.h"
#include "mime.h"
#include "opath.h"
#include "walk.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define MAX_SNIFFS 10000      /* files opened for their first bytes; the others stay octet streams */
#define MAX_LINKS (1u << 20)  /* files with several names that a usage scan remembers */
#define USAGE_TRIES 3

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

/* ---- text of paths, in blocks that never move ---- */

struct collect_names {
    struct collect_names *next;
    size_t used;
    size_t before; /* bytes in the blocks after this one in the chain, which were filled earlier */
    char text[(64 << 10) - 3 * sizeof(void *)];
};
_Static_assert(COLLECT_MAX_PATH < sizeof(((struct collect_names *)0)->text), "any path fits one block");

static size_t kept_bytes(const struct collect_names *names)
{
    return names ? names->before + names->used : 0;
}

static const char *keep_name(struct collect_names **names, const char *path, size_t len)
{
    struct collect_names *block = *names;
    char *kept;

    if (block == NULL || sizeof(block->text) - block->used < len + 1) {
        block = malloc(sizeof(*block));
        if (block == NULL)
            return NULL;
        block->next = *names;
        block->used = 0;
        block->before = kept_bytes(*names);
        *names = block;
    }
    kept = block->text + block->used;
    memcpy(kept, path, len + 1);
    block->used += len + 1;
    return kept;
}

static void free_names(struct collect_names *names)
{
    while (names != NULL) {
        struct collect_names *next = names->next;

        free(names);
        names = next;
    }
}

/* ---- before ---- */

void hutch_file_list_done(struct file_list *list)
{
    struct file_list fresh = FILE_LIST_INIT;

    free(list->files);
    free_names(list->names);
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
    file->path = keep_name(&list->names, w->path, w->path_len);
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
static void wait_for_tick_after(int64_t newest_ns)
{
    struct timespec tick, pause = { .tv_nsec = 500000 };

    clock_getres(CLOCK_REALTIME_COARSE, &tick);
    for (int64_t end_ns = newest_ns - to_ns(&tick); now_of_inodes() <= newest_ns && now_of_inodes() >= end_ns;)
        nanosleep(&pause, NULL);
}

/* Remembers what the walk found, or goes into it. */
static int remember(struct file_list *list, size_t *cap, const struct collect_bounds *bounds, struct walk *w,
                    struct hutch_err *err)
{
    struct stat st;
    int skipped;

    if (fstatat(w->dirfd, w->name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
        return 0;
    if (S_ISDIR(st.st_mode)) {
        if (hutch_walk_enter(w, &skipped, err) < 0)
            return -1;
        if (skipped != EACCES)
            return 0;
    }
    if (list->n_files == bounds->max_listed || w->path_len > COLLECT_MAX_PATH ||
        kept_bytes(list->names) >= bounds->max_text) {
        list->truncated = true;
        return 0;
    }
    if (add_seen(list, cap, w, &st) < 0)
        return hutch_err_set(err, ENOMEM, "remember %zu files", list->n_files + 1);
    return 0;
}

int hutch_collect_snapshot(int dirfd, const struct collect_bounds *bounds, struct file_list *ret, struct hutch_err *err)
{
    auto_file_list list = FILE_LIST_INIT;
    auto_walk w = WALK_INIT;
    struct file_list none = FILE_LIST_INIT;
    int64_t newest_ns = INT64_MIN;
    uint64_t walked = 0;
    size_t cap = 0;

    list.taken_ns = now_of_inodes();
    if (hutch_walk_open(&w, dirfd, ".", 0, err) < 0)
        return hutch_err_wrap(err, "list the data directory");
    for (;;) {
        struct hutch_err walk_err = { 0 };
        enum walk_event event;
        int rc = hutch_walk_next(&w, &event, &walk_err);

        if (rc == 0 && event == WALK_END)
            break;
        if (rc == 0 && event == WALK_ENTRY && walked++ < bounds->max_walked)
            rc = remember(&list, &cap, bounds, &w, &walk_err);
        else if (rc == 0 && event == WALK_ENTRY)
            rc = -1; /* enough */
        if (rc == 0)
            continue;
        if (is_our_own_fault(walk_err.errnum)) {
            *err = walk_err;
            return hutch_err_wrap(err, "list the data directory");
        }
        list.truncated = true;
        break;
    }
    for (size_t i = 0; i < list.n_files; i++)
        if (list.files[i].ctime_ns > newest_ns)
            newest_ns = list.files[i].ctime_ns;
    if (list.n_files > 0) {
        qsort(list.files, list.n_files, sizeof(*list.files), by_path);
        wait_for_tick_after(newest_ns);
    }
    *ret = list;
    list = none;
    return 0;
}

/* ---- after ---- */

struct scan {
    const struct file_list *before;
    const struct collect_bounds *bounds;
    struct file_changes changes;
    uint8_t *is_seen;   /* owned; one per file of before */
    unsigned n_sniffs;
    bool is_incomplete; /* something was not looked at: what was not seen may still be there */
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
    free_names(changes->names);
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
    if (list->n == scan->bounds->max_listed || kept_bytes(scan->changes.names) >= scan->bounds->max_text) {
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
    list->items[list->n].path = keep_name(&scan->changes.names, path, path_len);
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

    if (!S_ISREG(st->st_mode) || !(st->st_mode & (S_ISUID | S_ISGID)))
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
    struct file_change change = { .size = (uint64_t)st->st_size, .type = type_of_mode(st->st_mode) };
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

static int visit(struct scan *scan, struct walk *w, struct hutch_err *err)
{
    const struct file_seen *old;
    struct stat st;
    int skipped;

    if (fstatat(w->dirfd, w->name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0) {
        if (errno != ENOENT)
            scan->changes.truncated = scan->is_incomplete = true;
        return 0;
    }
    if (S_ISDIR(st.st_mode)) {
        if (hutch_walk_enter(w, &skipped, err) < 0)
            return -1;
        if (skipped == 0 || skipped == ENOENT || skipped == EXDEV)
            return 0;
        old = find_before(scan->before, w->path);
        if (old == NULL || old->mode != st.st_mode || old->ino != st.st_ino)
            scan->changes.truncated = scan->is_incomplete = true;
        else if (skipped == EACCES)
            return 0; /* closed to us before and after */
    }
    if (look_at(scan, w, &st) < 0)
        return hutch_err_set(err, ENOMEM, "remember what changed");
    return 0;
}

static int add_deleted(struct scan *scan)
{
    const struct file_list *before = scan->before;

    for (size_t i = 0; i < before->n_files; i++) {
        const struct file_seen *old = &before->files[i];
        struct file_change change = { .size = old->size, .type = type_of_mode(old->mode) };

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

int hutch_collect_changes(int dirfd, const struct file_list *before, const struct collect_bounds *bounds,
                          struct file_changes *ret, struct hutch_err *err)
{
    __attribute__((cleanup(scan_done))) struct scan scan = { .before = before, .bounds = bounds };
    struct file_changes none = FILE_CHANGES_INIT;
    auto_walk w = WALK_INIT;
    uint64_t walked = 0;

    scan.changes.truncated = before->truncated;
    scan.is_seen = calloc(before->n_files + 1, 1);
    if (scan.is_seen == NULL)
        return hutch_err_set(err, ENOMEM, "compare %zu files of the data directory", before->n_files);
    if (hutch_walk_open(&w, dirfd, ".", WALK_UNLOCK_READ, err) < 0)
        return hutch_err_wrap(err, "list the data directory after the run");
    for (;;) {
        struct hutch_err walk_err = { 0 };
        enum walk_event event;
        int rc = hutch_walk_next(&w, &event, &walk_err);

        if (rc == 0 && event == WALK_END)
            break;
        if (rc == 0 && event == WALK_ENTRY && walked++ < bounds->max_walked)
            rc = visit(&scan, &w, &walk_err);
        else if (rc == 0 && event == WALK_ENTRY)
            rc = -1; /* enough */
        if (rc == 0)
            continue;
        if (is_our_own_fault(walk_err.errnum)) {
            *err = walk_err;
            return hutch_err_wrap(err, "list the data directory after the run");
        }
        scan.changes.truncated = scan.is_incomplete = true;
        break;
    }
    if (!scan.is_incomplete && add_deleted(&scan) < 0)
        return hutch_err_set(err, ENOMEM, "list the deleted files of the data directory");
    sort_changes(&scan.changes.added);
    sort_changes(&scan.changes.modified);
    *ret = scan.changes;
    scan.changes = none;
    return 0;
}

/* ---- during ---- */

/* Which files with several names were counted: open addressing, inode 0 is an empty place. */
struct link_set {
    struct { uint64_t ino; dev_t dev; } *places; /* owned */
    size_t n, cap; /* cap is a power of two */
};

static size_t find_place(const struct link_set *set, uint64_t ino, dev_t dev)
{
    size_t i = (size_t)((ino ^ (uint64_t)dev << 32) * 0x9e3779b97f4a7c15u >> 20) & (set->cap - 1);

    while (set->places[i].ino != 0 && (set->places[i].ino != ino || set->places[i].dev != dev))
        i = (i + 1) & (set->cap - 1);
    return i;
}

/* 1 when this file is new, or cannot be remembered: then it counts again, which errs on the safe side. */
static int is_first_link(struct link_set *set, const struct stat *st)
{
    size_t i;

    if (set->n * 2 >= set->cap && set->n < MAX_LINKS) {
        struct link_set bigger = { .n = set->n, .cap = set->cap ? 2 * set->cap : 256 };

        bigger.places = calloc(bigger.cap, sizeof(*bigger.places));
        if (bigger.places != NULL) {
            for (i = 0; i < set->cap; i++)
                if (set->places[i].ino != 0)
                    bigger.places[find_place(&bigger, set->places[i].ino, set->places[i].dev)] = set->places[i];
            free(set->places);
            *set = bigger;
        }
    }
    if (set->n * 2 >= set->cap)
        return 1;
    i = find_place(set, st->st_ino, st->st_dev);
    if (set->places[i].ino != 0)
        return 0;
    set->places[i].ino = st->st_ino;
    set->places[i].dev = st->st_dev;
    set->n++;
    return 1;
}

static void link_set_done(struct link_set *set)
{
    free(set->places);
}

/* One attempt at counting. */
static int count_usage(int dirfd, const struct collect_bounds *bounds, uint64_t *ret_bytes, uint64_t *ret_entries,
                       struct hutch_err *err)
{
    __attribute__((cleanup(link_set_done))) struct link_set links = { .n = 0 };
    auto_walk w = WALK_INIT;
    uint64_t bytes = 0, entries = 0;

    if (hutch_walk_open(&w, dirfd, ".", WALK_UNLOCK_READ, err) < 0)
        return -1;
    while (entries < bounds->max_walked && (bounds->usage_bytes == 0 || bytes <= bounds->usage_bytes) &&
           (bounds->usage_entries == 0 || entries <= bounds->usage_entries)) {
        enum walk_event event;
        struct stat st;
        int skipped;

        if (hutch_walk_next(&w, &event, err) < 0)
            return -1;
        if (event == WALK_END)
            break;
        if (event != WALK_ENTRY)
            continue;
        entries++;
        if (fstatat(w.dirfd, w.name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
            continue;
        if (S_ISDIR(st.st_mode) || st.st_nlink < 2 || is_first_link(&links, &st))
            bytes += (uint64_t)st.st_blocks * 512;
        if (S_ISDIR(st.st_mode) && hutch_walk_enter(&w, &skipped, err) < 0)
            return -1;
    }
    *ret_bytes = bytes;
    *ret_entries = entries;
    return 0;
}

int hutch_collect_usage(int dirfd, const struct collect_bounds *bounds, uint64_t *ret_bytes, uint64_t *ret_entries,
                        struct hutch_err *err)
{
    struct hutch_err count_err = { 0 };

    for (int i = 0; i < USAGE_TRIES; i++) {
        if (count_usage(dirfd, bounds, ret_bytes, ret_entries, &count_err) == 0)
            return 0;
        /* these come from a tree that moves: a directory that is gone or locked between two calls */
        if (count_err.errnum != ESTALE && count_err.errnum != EACCES && count_err.errnum != ENOENT &&
            count_err.errnum != ENOTDIR) {
            *err = count_err;
            return hutch_err_wrap(err, "count what lies in the data directory");
        }
    }
    *ret_bytes = 0;
    *ret_entries = bounds->usage_entries ? bounds->usage_entries + 1 : UINT64_MAX;
    return 0;
}
