#include "runtime/data/copier.h"

#include "sandbox/fd.h"
#include "runtime/data/files.h"
#include "sandbox/opath.h"
#include "sandbox/rmtree.h"
#include "sandbox/walk.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/xattr.h>

#define BUF_SIZE (256u << 10)
#define XATTRS_MAX (64u << 10) /* XATTR_LIST_MAX and XATTR_SIZE_MAX */
#define CHUNK (64u << 20)      /* copied by one call; so that a signal is not kept waiting */
#define MAX_SWAPS 16           /* times that a name may turn out to be something else than a moment before */

_Static_assert(BUF_SIZE >= 2 * XATTRS_MAX && BUF_SIZE > PATH_MAX, "one buffer serves all");

#define auto_walk __attribute__((cleanup(hutch_walk_done))) struct walk

int hutch_copier_init(struct copier *c, int target, const struct snapshot_bounds *bounds, struct hutch_err *err)
{
    c->target = target;
    if (bounds)
        c->bounds = *bounds;
    if (c->bounds.max_depth == 0 || c->bounds.max_depth > SNAPSHOT_MAX_DEPTH)
        c->bounds.max_depth = SNAPSHOT_MAX_DEPTH;
    c->buf = malloc(BUF_SIZE);
    return c->buf ? 0 : hutch_err_set(err, ENOMEM, "copy files");
}

static void drop_links(struct copier *c)
{
    struct hutch_err ignored;

    if (c->links_fd >= 0)
        hutch_rmtree(c->target, c->links_name, &ignored);
    hutch_fd_closep(&c->links_fd);
}

void hutch_copier_done(struct copier *c)
{
    drop_links(c);
    free(c->buf);
    c->buf = NULL;
}

int hutch_copier_fail(const char *path, int errnum, const char *what, struct hutch_err *err)
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
        return hutch_err_say(err, E2BIG, "the files are larger than %llu bytes",
                             (unsigned long long)c->bounds.max_bytes);
    return 0;
}

static int count_entry(struct copier *c, struct hutch_err *err)
{
    c->report.entries++;
    if (c->bounds.max_entries && c->report.entries > c->bounds.max_entries)
        return hutch_err_say(err, E2BIG, "there are more than %llu files and directories",
                             (unsigned long long)c->bounds.max_entries);
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
            return hutch_copier_fail(path, errno, "keep the attributes of", err);
    }
    return 0;
}

static bool is_given_away(const struct copier *c, const struct stat *st)
{
    return !c->owns_all && (st->st_uid != geteuid() || st->st_gid != getegid());
}

/* Owner, mode and times; the order is that chown(2) takes bits off and everything else changes times. Whoever is not
 * root gives nothing away, and has what he copied. */
static int copy_stat(const struct copier *c, int to, const struct stat *st, const char *path, struct hutch_err *err)
{
    const struct timespec times[] = { st->st_atim, st->st_mtim };

    if (is_given_away(c, st) && fchown(to, st->st_uid, st->st_gid) < 0 && errno != EPERM && errno != EINVAL)
        return hutch_copier_fail(path, errno, "keep the owner of", err);
    if (fchmod(to, st->st_mode & (S_ISDIR(st->st_mode) ? 03777 : 01777)) < 0)
        return hutch_copier_fail(path, errno, "keep the mode of", err);
    if (futimens(to, times) < 0)
        return hutch_copier_fail(path, errno, "keep the times of", err);
    return 0;
}

void hutch_copier_copy_top(struct copier *c, int from, const struct stat *st, int to)
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
            /* other file systems, no such call, or pages that it cannot see: the plain way says whether it is the end
             */
            if (n <= 0)
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

static int copy_contents(struct copier *c, int from, int to, const struct stat *st, const char *path,
                         struct hutch_err *err)
{
    uint64_t allocated = (uint64_t)st->st_blocks * 512;

    if (st->st_size == 0)
        return 0;
    if (ioctl(to, FICLONE, from) == 0)
        return count_bytes(c, &c->report.bytes_cloned,
                           allocated < (uint64_t)st->st_size ? allocated : (uint64_t)st->st_size, err);
    if (ftruncate(to, st->st_size) < 0)
        return hutch_copier_fail(path, errno, "copy", err);
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
            return hutch_copier_fail(path, errno, "copy", err);
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
        return hutch_copier_fail(path, errno, "read", err);
    if (!S_ISREG(st.st_mode))
        return 1;
    to = openat(to_dirfd, to_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0)
        return hutch_copier_fail(path, errno, "copy", err);
    if (copy_contents(c, from, to, &st, path, err) < 0 || copy_xattrs(c, from, to, path, err) < 0 ||
        copy_stat(c, to, &st, path, err) < 0)
        return -1;
    return 0;
}

/* A link, FIFO or socket. The result is that of copy_file(). */
static int copy_special(struct copier *c, int dirfd, const char *name, const struct stat *st, int to_dirfd,
                        const char *to_name, const char *path, struct hutch_err *err)
{
    const struct timespec times[] = { st->st_atim, st->st_mtim };
    auto_fd made = -1;
    ssize_t n;

    if (S_ISLNK(st->st_mode)) {
        n = readlinkat(dirfd, name, c->buf, PATH_MAX);
        if (n < 0)
            return errno == ENOENT ? 0 : errno == EINVAL ? 1 : hutch_copier_fail(path, errno, "read", err);
        c->buf[n] = '\0';
        if (count_bytes(c, &c->report.bytes_copied, (uint64_t)n, err) < 0)
            return -1;
        if (symlinkat(c->buf, to_dirfd, to_name) < 0)
            return hutch_copier_fail(path, errno, "copy", err);
    } else if (S_ISFIFO(st->st_mode) || S_ISSOCK(st->st_mode)) {
        if (mknodat(to_dirfd, to_name, (st->st_mode & S_IFMT) | 0600, 0) < 0)
            return hutch_copier_fail(path, errno, "copy", err);
        made = openat(to_dirfd, to_name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (made < 0 || hutch_opath_chmod(made, st->st_mode & 0777) < 0)
            return hutch_copier_fail(path, errno, "keep the mode of", err);
    } else {
        return hutch_copier_fail(path, 0, "a device cannot be kept:", err);
    }
    if (is_given_away(c, st) &&
        fchownat(to_dirfd, to_name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0 && errno != EPERM &&
        errno != EINVAL)
        return hutch_copier_fail(path, errno, "keep the owner of", err);
    (void)utimensat(to_dirfd, to_name, times, AT_SYMLINK_NOFOLLOW);
    return 0;
}

/* Where the first name of @st was noted when it was copied. The time is in it because an inode may be used again
 * meanwhile. */
static int name_link(struct copier *c, const struct stat *st, char ret[64], struct hutch_err *err)
{
    uint64_t random;

    if (c->links_fd < 0) {
        if (getrandom(&random, sizeof(random), 0) != sizeof(random))
            return hutch_err_set(err, errno, "get random bytes");
        snprintf(c->links_name, sizeof(c->links_name), ".hutch-%016llx", (unsigned long long)random);
        if (mkdirat(c->target, c->links_name, 0700) < 0 ||
            (c->links_fd = hutch_opath_open_dir(c->target, c->links_name, 0)) < 0)
            return hutch_err_set(err, errno, "make a directory for files with several names");
    }
    snprintf(ret, 64, "%llx-%llx-%lx", (unsigned long long)st->st_ino, (unsigned long long)st->st_ctim.tv_sec,
             st->st_ctim.tv_nsec);
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
            return errno == ENOENT ? 0 : hutch_copier_fail(path, errno, "look at", err);
        if (S_ISDIR(st.st_mode))
            return 1;
        has_more = st.st_nlink > 1;
        if (has_more) {
            if (name_link(c, &st, link, err) < 0)
                return -1;
            if (linkat(c->links_fd, link, to_dirfd, to_name, 0) == 0)
                return 0;
            if (errno != ENOENT)
                return hutch_copier_fail(path, errno, "link", err);
        }
        rc = S_ISREG(st.st_mode) ? copy_file(c, dirfd, name, to_dirfd, to_name, path, err)
                                 : copy_special(c, dirfd, name, &st, to_dirfd, to_name, path, err);
        if (rc == 0 && has_more && linkat(to_dirfd, to_name, c->links_fd, link, 0) < 0 && errno != ENOENT)
            return hutch_copier_fail(path, errno, "link", err);
        if (rc <= 0)
            return rc;
    }
    return hutch_copier_fail(path, ESTALE, "", err);
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
        return hutch_err_say(err, E2BIG, "directories are more than %u deep", c->bounds.max_depth);
    if (fstatat(w->dirfd, w->name, &child->st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
        return errno == ENOENT ? 0 : hutch_copier_fail(w->path, errno, "look at", err);
    if (mkdirat(parent->fd, w->name, 0700) < 0 || (child->fd = hutch_opath_open_dir(parent->fd, w->name, 0)) < 0)
        return hutch_copier_fail(w->path, errno, "copy", err);
    if (hutch_walk_enter(w, &skipped, err) < 0)
        return -1;
    if (skipped == 0)
        return 0;
    hutch_fd_closep(&child->fd);
    if (skipped == ENOTDIR)
        skipped = ESTALE; /* it became something else */
    if (skipped != ENOENT)
        return hutch_copier_fail(w->path, skipped, "read", err);
    if (unlinkat(parent->fd, w->name, AT_REMOVEDIR) < 0)
        return hutch_copier_fail(w->path, errno, "copy", err);
    return 0;
}

static int leave(struct copier *c, const struct walk *w, struct copy_level *levels, struct hutch_err *err)
{
    struct copy_level *level = &levels[w->depth + 1];
    auto_fd from = hutch_opath_open_dir(w->dirfd, w->name, 0), to = hutch_fd_take(&level->fd);

    if (from >= 0 && copy_xattrs(c, from, to, w->path, err) < 0)
        return -1;
    return copy_stat(c, to, &level->st, w->path, err);
}

static bool is_left_out(const struct copier *c, const struct walk *w)
{
    struct stat st;

    /* What cannot be looked at is told by who copies it. */
    return c->is_left_out && fstatat(w->dirfd, w->name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0 &&
           c->is_left_out(c->user, w->path, S_ISDIR(st.st_mode));
}

/* Copies what is in @from into @to. */
static int copy_below(struct copier *c, int from, int to, struct hutch_err *err)
{
    struct copy_level levels[SNAPSHOT_MAX_DEPTH + 2];
    auto_walk w = WALK_INIT;
    int rc;

    for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
        levels[i].fd = -1;
    levels[0].fd = to;
    rc = hutch_walk_open(&w, from, ".", 0, err);
    while (rc == 0) {
        enum walk_event event;

        rc = hutch_walk_next(&w, &event, err);
        if (rc < 0 || event == WALK_END)
            break;
        if (event == WALK_LEAVE) {
            rc = leave(c, &w, levels, err);
            continue;
        }
        if (c->is_interrupted && c->is_interrupted()) {
            rc = hutch_err_set(err, ECANCELED, "copy '%s'", w.path);
            break;
        }
        if (is_left_out(c, &w))
            continue;
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

int hutch_copier_copy_contents(struct copier *c, int from, struct hutch_err *err)
{
    struct stat st;

    if (fstat(from, &st) < 0)
        return hutch_err_set(err, errno, "look at a directory");
    if (copy_below(c, from, c->target, err) < 0)
        return -1;
    drop_links(c); /* before the top gets its times */
    hutch_copier_copy_top(c, from, &st, c->target);
    return 0;
}

int hutch_copier_copy_entry(struct copier *c, int dirfd, const char *name, int to_dirfd, const char *to_name,
                            struct hutch_err *err)
{
    auto_fd from = -1, to = -1;
    struct stat st;
    int rc = count_entry(c, err);

    for (int i = 0; rc == 0 && from < 0; i++) {
        rc = copy_node(c, dirfd, name, to_dirfd, to_name, name, err);
        if (rc <= 0)
            return rc;
        from = hutch_opath_open_dir(dirfd, name, 0);
        if (from < 0 && errno == ENOENT) /* it is gone since it was looked at */
            return 0;
        if (from < 0 && (errno == ENOTDIR || errno == ELOOP) && i < MAX_SWAPS) /* it became something else */
            rc = 0;
    }
    if (rc < 0)
        return rc;
    if (from < 0 || fstat(from, &st) < 0)
        return hutch_copier_fail(name, errno, "read", err);
    if (mkdirat(to_dirfd, to_name, 0700) < 0 || (to = hutch_opath_open_dir(to_dirfd, to_name, 0)) < 0)
        return hutch_copier_fail(name, errno, "copy", err);
    if (copy_below(c, from, to, err) < 0 || copy_xattrs(c, from, to, name, err) < 0)
        return -1;
    return copy_stat(c, to, &st, name, err);
}

int hutch_copier_copy_tree(int from_dirfd, int store_dirfd, const char *name, const struct snapshot_bounds *bounds,
                           struct snapshot_report *ret, struct hutch_err *err)
{
    auto_fd from = hutch_opath_open_dir(from_dirfd, ".", 0), to = -1;
    struct copier c = COPIER_INIT;
    struct hutch_err ignored;
    struct stat top;
    int rc = -1;

    if (from < 0 || fstat(from, &top) < 0)
        return hutch_err_set(err, errno, "read the data directory");
    if (mkdirat(store_dirfd, name, 0700) < 0)
        return hutch_err_set(err, errno, "make the directory '%s'", name);
    to = hutch_opath_open_dir(store_dirfd, name, 0);
    if (to < 0) {
        hutch_err_set(err, errno, "open the directory '%s'", name);
    } else if (hutch_copier_init(&c, to, bounds, err) == 0 && copy_below(&c, from, to, err) == 0) {
        drop_links(&c); /* before the top gets its times */
        hutch_copier_copy_top(&c, from, &top, to);
        *ret = c.report;
        rc = 0;
    }
    hutch_copier_done(&c);
    if (rc < 0)
        hutch_rmtree(store_dirfd, name, &ignored);
    return rc;
}
