#include "snapshot.h"

#include "collect.h"
#include "fd.h"
#include "files.h"
#include "log.h"
#include "opath.h"
#include "rmtree.h"
#include "walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define BUF_SIZE (256u << 10)
#define XATTRS_MAX (64u << 10) /* XATTR_LIST_MAX and XATTR_SIZE_MAX */
#define CHUNK (64u << 20)      /* copied by one call; so that a signal is not kept waiting */
#define MAX_SWAPS 16           /* times that a name may turn out to be something else than a moment before */
#define MOVING ".hutch-moving" /* a copy that is not complete, where a move has to copy */

_Static_assert(BUF_SIZE >= 2 * XATTRS_MAX && BUF_SIZE > PATH_MAX, "one buffer serves all");

#define auto_walk __attribute__((cleanup(hutch_walk_done))) struct walk
#define auto_copier __attribute__((cleanup(copier_done))) struct copier

const char *hutch_snapshot_how(const struct snapshot_report *report)
{
    if (report->bytes_cloned && report->bytes_copied)
        return "both";
    return report->bytes_cloned ? "reflink" : report->bytes_copied ? "copied" : "nothing";
}

static int open_dir(int dirfd, const char *name)
{
    return openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
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
        return hutch_err_set(err, EINVAL, "the name of a state is 1 to %d letters, digits, '-' and '_'", SNAPSHOT_NAME_MAX);
    return 0;
}

/* ---- one copying ---- */

struct copier {
    struct snapshot_bounds bounds;
    struct snapshot_report report;
    int target;        /* not owned; top of what is written, where the directory of links goes */
    int links_fd;      /* owned; -1: not needed yet. Files with several names, by their inode: link(2) needs no table */
    char links_name[32];
    char *buf;         /* owned */
};
#define COPIER_INIT { .target = -1, .links_fd = -1 }

static int copier_init(struct copier *c, int target, const struct snapshot_bounds *bounds, struct hutch_err *err)
{
    c->target = target;
    if (bounds)
        c->bounds = *bounds;
    if (c->bounds.max_depth == 0 || c->bounds.max_depth > SNAPSHOT_MAX_DEPTH)
        c->bounds.max_depth = SNAPSHOT_MAX_DEPTH;
    c->buf = malloc(BUF_SIZE);
    return c->buf ? 0 : hutch_err_set(err, ENOMEM, "copy files");
}

static void copier_done(struct copier *c)
{
    struct hutch_err ignored;

    if (c->links_fd >= 0)
        hutch_rmtree(c->target, c->links_name, &ignored);
    hutch_fd_closep(&c->links_fd);
    free(c->buf);
    c->buf = NULL;
}

/* Fails with what happened to @path, which is hostile text. */
static int fail_at(const char *path, int errnum, const char *what, struct hutch_err *err)
{
    char quoted[FILES_QUOTED];

    hutch_files_quote(path, quoted);
    if (errnum == EXDEV)
        return hutch_err_set(err, 0, "'%s' cannot be kept: something is mounted there", quoted);
    if (errnum == EWOULDBLOCK)
        return hutch_err_set(err, 0, "'%s' cannot be kept: a process inside holds on to it", quoted);
    if (errnum == ESTALE)
        return hutch_err_set(err, 0, "'%s' cannot be kept: it keeps changing", quoted);
    return hutch_err_set(err, errnum, "%s '%s'", what, quoted);
}

static int count_bytes(struct copier *c, uint64_t *counter, uint64_t bytes, struct hutch_err *err)
{
    *counter += bytes;
    if (c->bounds.max_bytes && c->report.bytes_cloned + c->report.bytes_copied > c->bounds.max_bytes)
        return hutch_err_set(err, E2BIG, "the files are larger than %llu bytes", (unsigned long long)c->bounds.max_bytes);
    return 0;
}

static int count_entry(struct copier *c, struct hutch_err *err)
{
    c->report.entries++;
    if (c->bounds.max_entries && c->report.entries > c->bounds.max_entries)
        return hutch_err_set(err, E2BIG, "there are more than %llu files and directories", (unsigned long long)c->bounds.max_entries);
    return 0;
}

/* ---- attributes ---- */

static int copy_xattrs(struct copier *c, int from, int to, const char *path, struct hutch_err *err)
{
    char *names = c->buf, *value = c->buf + XATTRS_MAX;
    ssize_t len = flistxattr(from, NULL, 0);

    if (len > 0)
        len = flistxattr(from, names, XATTRS_MAX);
    for (char *name = names, *end = names + len; len > 0 && name < end; name += strlen(name) + 1) {
        ssize_t n;

        if (strncmp(name, "user.", 5) != 0)
            continue;
        n = fgetxattr(from, name, value, XATTRS_MAX);
        if (n < 0)
            continue; /* gone meanwhile */
        if (count_bytes(c, &c->report.bytes_copied, (uint64_t)n, err) < 0)
            return -1;
        if (fsetxattr(to, name, value, (size_t)n, 0) < 0 && errno != EOPNOTSUPP)
            return fail_at(path, errno, "keep the attributes of", err);
    }
    return 0;
}

/* Owner, mode and times; the order is that chown(2) takes bits off and everything else changes times. Whoever is not root gives
 * nothing away, and has what he copied. */
static int copy_stat(int to, const struct stat *st, const char *path, struct hutch_err *err)
{
    const struct timespec times[] = { st->st_atim, st->st_mtim };

    if ((st->st_uid != geteuid() || st->st_gid != getegid()) && fchown(to, st->st_uid, st->st_gid) < 0 && errno != EPERM &&
        errno != EINVAL)
        return fail_at(path, errno, "keep the owner of", err);
    if (fchmod(to, st->st_mode & (S_ISDIR(st->st_mode) ? 03777 : 01777)) < 0)
        return fail_at(path, errno, "keep the mode of", err);
    if (futimens(to, times) < 0)
        return fail_at(path, errno, "keep the times of", err);
    return 0;
}

/* @to is to have the attributes of @from, and mode and times of @st: for the data directory itself, which may be another user's; then it
 * stays as it is. */
static void copy_top(struct copier *c, int from, const struct stat *st, int to)
{
    const struct timespec times[] = { st->st_atim, st->st_mtim };
    struct hutch_err ignored;
    ssize_t len = flistxattr(to, c->buf, XATTRS_MAX);
    struct stat old;

    for (char *name = c->buf, *end = c->buf + len; len > 0 && name < end; name += strlen(name) + 1)
        if (strncmp(name, "user.", 5) == 0)
            (void)fremovexattr(to, name);
    copy_xattrs(c, from, to, "", &ignored);
    if (fstat(to, &old) == 0 && (st->st_mode & 03777) != (old.st_mode & 03777))
        (void)!fchmod(to, st->st_mode & 03777);
    (void)!futimens(to, times);
}

/* ---- files ---- */

/* The bytes from @at to @end, which are no hole. */
static int copy_range(struct copier *c, int from, int to, off_t at, off_t end)
{
    bool can_offload = true;

    while (at < end) {
        off_t in = at, out = at;
        size_t want = (size_t)(end - at < (off_t)CHUNK ? end - at : (off_t)CHUNK);
        ssize_t n = -1;

        if (can_offload) {
            n = copy_file_range(from, &in, to, &out, want, 0);
            if (n < 0 && (errno == EINTR || errno == ENOSPC || errno == EDQUOT || errno == EIO || errno == EFBIG)) {
                if (errno == EINTR)
                    continue;
                return -1;
            }
            if (n <= 0) /* other file systems, no such call, or pages that it cannot see: the plain way says whether it is the end */
                can_offload = false;
        }
        if (n <= 0) {
            n = TEMP_FAILURE_RETRY(pread(from, c->buf, want < BUF_SIZE ? want : BUF_SIZE, at));
            if (n < 0)
                return -1;
            if (n == 0)
                return 0; /* shortened meanwhile */
            for (ssize_t done = 0; done < n;) {
                ssize_t m = TEMP_FAILURE_RETRY(pwrite(to, c->buf + done, (size_t)(n - done), at + done));

                if (m < 0)
                    return -1;
                done += m;
            }
        }
        at += n;
    }
    return 0;
}

static int copy_contents(struct copier *c, int from, int to, const struct stat *st, const char *path, struct hutch_err *err)
{
    uint64_t allocated = (uint64_t)st->st_blocks * 512;

    if (st->st_size == 0)
        return 0;
    if (ioctl(to, FICLONE, from) == 0)
        return count_bytes(c, &c->report.bytes_cloned, allocated < (uint64_t)st->st_size ? allocated : (uint64_t)st->st_size, err);
    if (ftruncate(to, st->st_size) < 0)
        return fail_at(path, errno, "copy", err);
    for (off_t at = 0; at < st->st_size;) {
        off_t data = lseek(from, at, SEEK_DATA), hole;

        if (data < 0 && errno == ENXIO)
            break; /* a hole up to the end */
        if (data < 0)
            data = at; /* a file system without holes */
        hole = lseek(from, data, SEEK_HOLE);
        if (hole < 0 || hole > st->st_size)
            hole = st->st_size;
        if (hole <= data)
            break; /* shortened, or has grown beyond what is copied */
        if (count_bytes(c, &c->report.bytes_copied, (uint64_t)(hole - data), err) < 0)
            return -1;
        if (copy_range(c, from, to, data, hole) < 0)
            return fail_at(path, errno, "copy", err);
        at = hole;
    }
    return 0;
}

/* 1 when @name is no regular file any more, 0 when it is copied or gone. */
static int copy_file(struct copier *c, int dirfd, const char *name, int to_dirfd, const char *to_name, const char *path,
                     struct hutch_err *err)
{
    auto_fd from = hutch_files_open_beneath(dirfd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0), to = -1;
    struct stat st;

    if (from < 0 && errno == ENOENT)
        return 0;
    if (from < 0 && (errno == ELOOP || errno == ENXIO))
        return 1;
    if (from < 0 || fstat(from, &st) < 0)
        return fail_at(path, errno, "read", err);
    if (!S_ISREG(st.st_mode))
        return 1;
    to = openat(to_dirfd, to_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0)
        return fail_at(path, errno, "copy", err);
    if (copy_contents(c, from, to, &st, path, err) < 0 || copy_xattrs(c, from, to, path, err) < 0 ||
        copy_stat(to, &st, path, err) < 0)
        return -1;
    return 0;
}

/* A link, FIFO or socket. The result is that of copy_file(). */
static int copy_special(struct copier *c, int dirfd, const char *name, const struct stat *st, int to_dirfd, const char *to_name,
                        const char *path, struct hutch_err *err)
{
    const struct timespec times[] = { st->st_atim, st->st_mtim };
    auto_fd made = -1;
    ssize_t n;

    if (S_ISLNK(st->st_mode)) {
        n = readlinkat(dirfd, name, c->buf, PATH_MAX);
        if (n < 0)
            return errno == ENOENT ? 0 : errno == EINVAL ? 1 : fail_at(path, errno, "read", err);
        c->buf[n] = '\0';
        if (count_bytes(c, &c->report.bytes_copied, (uint64_t)n, err) < 0)
            return -1;
        if (symlinkat(c->buf, to_dirfd, to_name) < 0)
            return fail_at(path, errno, "copy", err);
    } else if (S_ISFIFO(st->st_mode) || S_ISSOCK(st->st_mode)) {
        if (mknodat(to_dirfd, to_name, (st->st_mode & S_IFMT) | 0600, 0) < 0)
            return fail_at(path, errno, "copy", err);
        made = openat(to_dirfd, to_name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (made < 0 || hutch_opath_chmod(made, st->st_mode & 0777) < 0)
            return fail_at(path, errno, "keep the mode of", err);
    } else {
        return fail_at(path, 0, "a device cannot be kept:", err);
    }
    if ((st->st_uid != geteuid() || st->st_gid != getegid()) &&
        fchownat(to_dirfd, to_name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0 && errno != EPERM && errno != EINVAL)
        return fail_at(path, errno, "keep the owner of", err);
    (void)utimensat(to_dirfd, to_name, times, AT_SYMLINK_NOFOLLOW);
    return 0;
}

/* Where the first name of @st was noted when it was copied. The time is in it because an inode may be used again meanwhile. */
static int name_link(struct copier *c, const struct stat *st, char ret[64], struct hutch_err *err)
{
    uint64_t random;

    if (c->links_fd < 0) {
        if (getrandom(&random, sizeof(random), 0) != sizeof(random))
            return hutch_err_set(err, errno, "get random bytes");
        snprintf(c->links_name, sizeof(c->links_name), ".hutch-%016llx", (unsigned long long)random);
        if (mkdirat(c->target, c->links_name, 0700) < 0 || (c->links_fd = open_dir(c->target, c->links_name)) < 0)
            return hutch_err_set(err, errno, "make a directory for files with several names");
    }
    snprintf(ret, 64, "%llx-%llx-%lx", (unsigned long long)st->st_ino, (unsigned long long)st->st_ctim.tv_sec, st->st_ctim.tv_nsec);
    return 0;
}

/* Copies what is no directory. 1 when it is one. */
static int copy_node(struct copier *c, int dirfd, const char *name, int to_dirfd, const char *to_name, const char *path,
                     struct hutch_err *err)
{
    for (int i = 0; i < MAX_SWAPS; i++) {
        bool has_more;
        char link[64];
        struct stat st;
        int rc;

        if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
            return errno == ENOENT ? 0 : fail_at(path, errno, "look at", err);
        if (S_ISDIR(st.st_mode))
            return 1;
        has_more = st.st_nlink > 1;
        if (has_more) {
            if (name_link(c, &st, link, err) < 0)
                return -1;
            if (linkat(c->links_fd, link, to_dirfd, to_name, 0) == 0)
                return 0;
            if (errno != ENOENT)
                return fail_at(path, errno, "link", err);
        }
        rc = S_ISREG(st.st_mode) ? copy_file(c, dirfd, name, to_dirfd, to_name, path, err)
                                 : copy_special(c, dirfd, name, &st, to_dirfd, to_name, path, err);
        if (rc == 0 && has_more && linkat(to_dirfd, to_name, c->links_fd, link, 0) < 0 && errno != ENOENT)
            return fail_at(path, errno, "link", err);
        if (rc <= 0)
            return rc;
    }
    return fail_at(path, ESTALE, "", err);
}

/* ---- trees ---- */

struct copy_level {
    int fd; /* of the copy; owned but for the first */
    struct stat st;
};

static int enter(struct copier *c, struct walk *w, struct copy_level *levels, struct hutch_err *err)
{
    struct copy_level *parent = &levels[w->depth], *child = parent + 1;
    int skipped;

    if (w->depth + 1 > c->bounds.max_depth)
        return hutch_err_set(err, E2BIG, "directories are more than %u deep", c->bounds.max_depth);
    if (fstatat(w->dirfd, w->name, &child->st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
        return errno == ENOENT ? 0 : fail_at(w->path, errno, "look at", err);
    if (mkdirat(parent->fd, w->name, 0700) < 0 || (child->fd = open_dir(parent->fd, w->name)) < 0)
        return fail_at(w->path, errno, "copy", err);
    if (hutch_walk_enter(w, &skipped, err) < 0)
        return -1;
    if (skipped == 0)
        return 0;
    hutch_fd_closep(&child->fd);
    if (skipped == ENOTDIR)
        skipped = ESTALE; /* it became something else */
    if (skipped != ENOENT)
        return fail_at(w->path, skipped, "read", err);
    if (unlinkat(parent->fd, w->name, AT_REMOVEDIR) < 0)
        return fail_at(w->path, errno, "copy", err);
    return 0;
}

static int leave(struct copier *c, const struct walk *w, struct copy_level *levels, struct hutch_err *err)
{
    struct copy_level *level = &levels[w->depth + 1];
    auto_fd from = open_dir(w->dirfd, w->name), to = hutch_fd_take(&level->fd);

    if (from >= 0 && copy_xattrs(c, from, to, w->path, err) < 0)
        return -1;
    return copy_stat(to, &level->st, w->path, err);
}

/* Copies what is in the directory @name of @dirfd into @to. */
static int copy_below(struct copier *c, int dirfd, const char *name, int to, struct hutch_err *err)
{
    struct copy_level levels[SNAPSHOT_MAX_DEPTH + 2];
    auto_walk w = WALK_INIT;
    int rc;

    for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
        levels[i].fd = -1;
    levels[0].fd = to;
    rc = hutch_walk_open(&w, dirfd, name, 0, err);
    while (rc == 0) {
        enum walk_event event;

        rc = hutch_walk_next(&w, &event, err);
        if (rc < 0 || event == WALK_END)
            break;
        if (event == WALK_LEAVE) {
            rc = leave(c, &w, levels, err);
            continue;
        }
        rc = count_entry(c, err);
        if (rc == 0)
            rc = copy_node(c, w.dirfd, w.name, levels[w.depth].fd, w.name, w.path, err);
        if (rc == 1)
            rc = enter(c, &w, levels, err);
    }
    for (size_t i = 1; i < ARRAY_SIZE(levels); i++)
        hutch_fd_closep(&levels[i].fd);
    return rc;
}

/* Copies @name, whatever it is, as @to_name. */
static int copy_entry(struct copier *c, int dirfd, const char *name, int to_dirfd, const char *to_name, struct hutch_err *err)
{
    int rc = copy_node(c, dirfd, name, to_dirfd, to_name, name, err);
    auto_fd from = -1, to = -1;
    struct stat st;

    if (rc <= 0)
        return rc;
    from = open_dir(dirfd, name);
    if (from < 0 || fstat(from, &st) < 0)
        return fail_at(name, errno, "read", err);
    if (mkdirat(to_dirfd, to_name, 0700) < 0 || (to = open_dir(to_dirfd, to_name)) < 0)
        return fail_at(name, errno, "copy", err);
    if (copy_below(c, dirfd, name, to, err) < 0 || copy_xattrs(c, from, to, name, err) < 0)
        return -1;
    return copy_stat(to, &st, name, err);
}

/* Makes the directory @name of @store_dirfd a copy of @from. */
static int copy_tree(int from_dirfd, int store_dirfd, const char *name, const struct snapshot_bounds *bounds,
                     struct snapshot_report *ret, struct hutch_err *err)
{
    auto_fd from = open_dir(from_dirfd, "."), to = -1;
    struct hutch_err ignored;
    struct stat top;
    int rc = -1;

    if (from < 0 || fstat(from, &top) < 0)
        return hutch_err_set(err, errno, "read the data directory");
    if (mkdirat(store_dirfd, name, 0700) < 0)
        return hutch_err_set(err, errno, "make the directory '%s'", name);
    to = open_dir(store_dirfd, name);
    if (to < 0) {
        hutch_err_set(err, errno, "open the directory '%s'", name);
    } else {
        struct copier c = COPIER_INIT;

        rc = copier_init(&c, to, bounds, err);
        if (rc == 0)
            rc = copy_below(&c, from, ".", to, err);
        if (rc == 0) {
            if (c.links_fd >= 0) {
                hutch_rmtree(to, c.links_name, &ignored);
                hutch_fd_closep(&c.links_fd);
            }
            copy_top(&c, from, &top, to);
            *ret = c.report;
        }
        copier_done(&c);
    }
    if (rc < 0)
        hutch_rmtree(store_dirfd, name, &ignored);
    return rc;
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
    int fd = open_dir(dirfd, ".");
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

/* To another file system; the original is removed later. The copy gets its name when it is complete; so where there is one already,
 * nothing has to be copied, unless the original @wins. */
static int move_by_copy(struct copier *c, int from, const char *name, int to, bool wins, char *ret_moved, struct hutch_err *err)
{
    struct hutch_err why;

    if (wins && hutch_rmtree(to, name, &why) < 0)
        return fail_at(name, why.errnum, "replace", err);
    *ret_moved = WAS_THERE;
    if (is_there(to, name))
        return 0;
    if (!wins && c->bounds.max_bytes == 0 && bound_move(c, from, err) < 0)
        return -1;
    if (hutch_rmtree(to, MOVING, &why) < 0)
        return fail_at(MOVING, why.errnum, "remove", err);
    if (count_entry(c, err) < 0 || copy_entry(c, from, name, to, MOVING, err) < 0) {
        hutch_rmtree(to, MOVING, &why);
        return -1;
    }
    if (renameat(to, MOVING, to, name) < 0 && errno != ENOENT)
        return fail_at(name, errno, "copy", err);
    *ret_moved = COPIED;
    return 0;
}

static int move_one(struct copier *c, int from, const char *name, int to, bool wins, char *ret_moved, struct hutch_err *err)
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
    return fail_at(name, errno, "move", err);
}

/* Nothing is removed before all is copied: files with several names among the entries stay one file, and what fails can be undone. */
static int move_all(int from, int to, bool wins, struct snapshot_report *report, struct hutch_err *err)
{
    __attribute__((cleanup(name_list_done))) struct name_list names = { .text = NULL };
    auto_copier c = COPIER_INIT;
    struct hutch_err why;
    int rc = 0;

    if (copier_init(&c, to, NULL, err) < 0 || read_names(from, &names, err) < 0)
        return -1;
    for (size_t i = 0; rc == 0 && i < names.len; i += strlen(names.text + i) + 1)
        rc = move_one(&c, from, names.text + i + 1, to, wins, &names.text[i], err);
    for (size_t i = 0; i < names.len; i += strlen(names.text + i) + 1) {
        const char *name = names.text + i + 1;

        if (rc < 0 && names.text[i] == COPIED && !wins)
            hutch_rmtree(to, name, &why);
        else if (rc == 0 && names.text[i] != MOVED && hutch_rmtree(from, name, &why) < 0)
            return fail_at(name, why.errnum, "remove", err);
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
    struct hutch_err why;

    if (move_all(from, to, true, &report, &why) < 0)
        hutch_err_set(err, err->errnum, "%.200s; and then: %.150s; what is missing is in '%s' of the store", err->msg, why.msg, name);
    else if (hutch_rmtree(store, name, &why) < 0) /* what a process made meanwhile may be in it */
        hutch_log_debug("snapshot: %s", why.msg);
}

static void take_over_top(int from, const struct stat *st, int to)
{
    struct hutch_err ignored;
    auto_copier c = COPIER_INIT;

    if (copier_init(&c, to, NULL, &ignored) == 0)
        copy_top(&c, from, st, to);
}

/* The contents of @data become the directory @out of @store, those of @in become the data's. While it is filled, @out has another name:
 * that tells how far an exchange came that was broken off. */
static int exchange(int data, int store, const char *in, const char *out, struct snapshot_report *report, struct hutch_err *err)
{
    auto_fd in_fd = open_dir(store, in), out_fd = -1;
    struct stat in_top, data_top; /* before the moving changes their times */
    struct hutch_err ignored;
    char part[64];

    snprintf(part, sizeof(part), "%s.part", out);
    if (is_there(store, out)) {
        if (in_fd < 0 && errno == ENOENT)
            return 0; /* it was all done */
        out_fd = open_dir(store, out);
        if (in_fd < 0 || fstat(in_fd, &in_top) < 0 || out_fd < 0 || fstat(out_fd, &data_top) < 0)
            return hutch_err_set(err, errno, "open the states '%s' and '%s'", in, out);
    } else {
        if (in_fd < 0 || fstat(in_fd, &in_top) < 0)
            return hutch_err_set(err, errno, "open the state '%s'", in);
        if (fstat(data, &data_top) < 0)
            return hutch_err_set(err, errno, "look at the data directory");
        if ((mkdirat(store, part, 0700) < 0 && errno != EEXIST) || (out_fd = open_dir(store, part)) < 0)
            return hutch_err_set(err, errno, "make the directory '%s'", part);
        if (move_all(data, out_fd, false, report, err) < 0) {
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
    if (move_all(in_fd, data, false, report, err) < 0) {
        struct snapshot_report back = { 0 };
        struct hutch_err why;

        if (move_all(data, in_fd, true, &back, &why) < 0)
            hutch_log_debug("snapshot: %s", why.msg); /* too much is in the data directory then, and nothing is lost */
        take_over_top(out_fd, &data_top, data);
        move_back(out_fd, data, store, out, err);
        return -1;
    }
    take_over_top(in_fd, &in_top, data);
    if (hutch_rmtree(store, in, &ignored) < 0)
        hutch_log_debug("snapshot: %s", ignored.msg);
    return 0;
}

/* exchange(), which SIGTERM waits for: it takes the time of some renames, and a data directory that is the caller's own should not be left
 * between two states. */
static int exchange_undisturbed(int data_dirfd, int store, const char *in, const char *out, struct snapshot_report *report,
                                struct hutch_err *err)
{
    auto_fd data = open_dir(data_dirfd, ".");
    sigset_t term, old;
    int rc;

    if (data < 0)
        return hutch_err_set(err, errno, "open the data directory");
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, &old);
    rc = exchange(data, store, in, out, report, err);
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
        return hutch_err_set(err, EEXIST, "there is a state '%s' already", name);
    snprintf(part, sizeof(part), "%s.in", name);
    if (hutch_rmtree(store_dirfd, part, &why) < 0) { /* of an order that was broken off */
        *err = why;
        return -1;
    }
    if (copy_tree(data_dirfd, store_dirfd, part, bounds, ret, err) < 0)
        return hutch_err_wrap(err, "keep the files");
    if (renameat(store_dirfd, part, store_dirfd, name) < 0) {
        hutch_err_set(err, errno, "rename '%s' to '%s'", part, name);
        hutch_rmtree(store_dirfd, part, &why);
        return -1;
    }
    return 0;
}

int hutch_snapshot_restore(int data_dirfd, int store_dirfd, const char *name, const struct snapshot_bounds *bounds,
                           struct snapshot_report *ret, struct hutch_err *err)
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
    if (!is_there(store_dirfd, out) && !is_there(store_dirfd, half)) { /* else: it was copied, and broken off after that */
        state = open_dir(store_dirfd, name);
        if (state < 0)
            return hutch_err_set(err, errno, "open the state '%s'", name);
        if (hutch_rmtree(store_dirfd, in, &why) < 0) {
            *err = why;
            return -1;
        }
        if (copy_tree(state, store_dirfd, in, bounds, &report, err) < 0)
            return hutch_err_wrap(err, "bring the files back");
    }
    if (exchange_undisturbed(data_dirfd, store_dirfd, in, out, &report, err) < 0) {
        hutch_rmtree(store_dirfd, in, &why);
        return hutch_err_wrap(err, "bring the files back");
    }
    if (renameat(store_dirfd, out, store_dirfd, gone) < 0)
        return hutch_err_set(err, errno, "rename '%s' to '%s'", out, gone);
    if (hutch_rmtree(store_dirfd, gone, &why) < 0)
        hutch_log_debug("snapshot: %s", why.msg); /* the end of the engine takes it away */
    *ret = report;
    return 0;
}

int hutch_snapshot_switch(int data_dirfd, int store_dirfd, const char *name, const char *keep, struct snapshot_report *ret,
                          struct hutch_err *err)
{
    struct snapshot_report report = { 0 };

    if (check_name(name, err) < 0 || check_name(keep, err) < 0)
        return -1;
    if (exchange_undisturbed(data_dirfd, store_dirfd, name, keep, &report, err) < 0)
        return hutch_err_wrap(err, "change the files over");
    *ret = report;
    return 0;
}
