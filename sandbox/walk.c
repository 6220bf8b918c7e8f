#include "sandbox/walk.h"

#include "sandbox/fd.h"
#include "sandbox/opath.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

struct walk_level {
    uint64_t ino, mount_id;
    dev_t dev;
    long position;   /* in a closed level: where to go on, as telldir(3) gave it */
    size_t path_len; /* of the directory itself, with a trailing '/'; 0 for the top */
};

static DIR **slot(struct walk *w, size_t level)
{
    return &w->open[level % WALK_MAX_OPEN];
}

static int identify(int fd, struct walk_level *ret)
{
    struct statx stx;

    if (statx(fd, "", AT_EMPTY_PATH | AT_NO_AUTOMOUNT, STATX_TYPE | STATX_INO | STATX_MNT_ID, &stx) < 0)
        return -1;
    ret->ino = stx.stx_ino;
    ret->dev = makedev(stx.stx_dev_major, stx.stx_dev_minor);
    ret->mount_id = (stx.stx_mask & STATX_MNT_ID) ? stx.stx_mnt_id : 0;
    return 0;
}

static mode_t unlock_bits(const struct walk *w)
{
    if (w->flags & WALK_UNLOCK_WRITE)
        return 0700;
    return (w->flags & WALK_UNLOCK_READ) ? 0500 : 0;
}

/* The directory behind @fd becomes the deepest level. Takes @fd in any case. */
static int push_level(struct walk *w, int dir, const struct walk_level *level, struct hutch_err *err)
{
    auto_fd fd = dir;
    DIR **stream = slot(w, w->n_levels);

    if (w->n_levels == w->cap_levels) {
        size_t cap = w->cap_levels ? 2 * w->cap_levels : 64;
        struct walk_level *levels = reallocarray(w->levels, cap, sizeof(*levels));

        if (levels == NULL)
            return hutch_err_set(err, ENOMEM, "walk into directory level %zu", w->n_levels);
        w->levels = levels;
        w->cap_levels = cap;
    }
    if (*stream != NULL) { /* of the level WALK_MAX_OPEN above */
        w->levels[w->n_levels - WALK_MAX_OPEN].position = telldir(*stream);
        closedir(*stream);
        *stream = NULL;
    }
    *stream = fdopendir(fd);
    if (*stream == NULL)
        return hutch_err_set(err, errno, "read a directory %zu levels down", w->n_levels);
    hutch_fd_take(&fd);
    w->levels[w->n_levels++] = *level;
    return 0;
}

int hutch_walk_open(struct walk *w, int dirfd, const char *name, unsigned flags, struct hutch_err *err)
{
    struct walk fresh = WALK_INIT;
    struct walk_level top = { 0 };
    auto_fd fd = -1;

    *w = fresh;
    w->flags = flags;
    fd = hutch_opath_open_dir(dirfd, name, unlock_bits(w));
    if (fd < 0 || identify(fd, &top) < 0)
        return hutch_err_set(err, errno, "read directory '%s'", name);
    return push_level(w, hutch_fd_take(&fd), &top, err);
}

/* Appends @name to the path at @at and terminates it. */
static int set_path(struct walk *w, size_t at, const char *name, struct hutch_err *err)
{
    size_t len = strlen(name);

    if (w->path_cap < at + len + 2) {
        size_t cap = 2 * (at + len + 2) + 256;
        char *path = realloc(w->path, cap);

        if (path == NULL)
            return hutch_err_set(err, ENOMEM, "hold a path of %zu bytes", at + len);
        w->path = path;
        w->path_cap = cap;
    }
    memcpy(w->path + at, name, len + 1);
    w->path_len = at + len;
    w->name = w->path + at;
    return 0;
}

/* Opens the closed level above the deepest one again, through "..". */
static int reopen_parent(struct walk *w, struct hutch_err *err)
{
    size_t child = w->n_levels - 1, parent = child - 1;
    struct walk_level *want = &w->levels[parent], found = { 0 };
    auto_fd fd = hutch_opath_open_dir(dirfd(*slot(w, child)), "..", unlock_bits(w));
    DIR *stream;

    if (fd < 0 || identify(fd, &found) < 0)
        return hutch_err_set(err, errno, "go back up to directory level %zu", parent);
    if (found.ino != want->ino || found.dev != want->dev || found.mount_id != want->mount_id)
        return hutch_err_set(err, ESTALE, "directory level %zu was moved while it was being read", parent);
    stream = fdopendir(fd);
    if (stream == NULL)
        return hutch_err_set(err, errno, "read directory level %zu again", parent);
    hutch_fd_take(&fd);
    if (!(w->flags & WALK_REREAD))
        seekdir(stream, want->position);
    *slot(w, parent) = stream;
    return 0;
}

/* The deepest level is done: closes it, and shows it as an entry of its parent. */
static int leave_level(struct walk *w, struct hutch_err *err)
{
    size_t child = w->n_levels - 1, parent = child - 1;
    size_t len = w->levels[child].path_len;

    if (*slot(w, parent) == NULL && reopen_parent(w, err) < 0)
        return -1;
    closedir(*slot(w, child));
    *slot(w, child) = NULL;
    w->n_levels--;

    w->path[len - 1] = '\0'; /* was '/' */
    w->path_len = len - 1;
    w->name = w->path + w->levels[parent].path_len;
    w->dirfd = dirfd(*slot(w, parent));
    w->depth = parent;
    w->d_type = DT_DIR;
    return 0;
}

int hutch_walk_next(struct walk *w, enum walk_event *ret_event, struct hutch_err *err)
{
    size_t level = w->n_levels - 1;
    DIR *stream = *slot(w, level);
    struct dirent *entry;

    do {
        errno = 0;
        entry = readdir(stream);
        /* ENOENT: the directory was removed under us, which is the same as having no more entries */
        if (entry == NULL && errno != 0 && errno != ENOENT)
            return hutch_err_set(err, errno, "read a directory %zu levels down", level);
    } while (entry != NULL && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));

    if (entry != NULL) {
        if (set_path(w, w->levels[level].path_len, entry->d_name, err) < 0)
            return -1;
        w->dirfd = dirfd(stream);
        w->depth = level;
        w->d_type = entry->d_type;
        *ret_event = WALK_ENTRY;
        return 0;
    }
    if (level == 0) {
        *ret_event = WALK_END;
        return 0;
    }
    *ret_event = WALK_LEAVE;
    return leave_level(w, err);
}

int hutch_walk_enter(struct walk *w, int *ret_skipped, struct hutch_err *err)
{
    const struct walk_level *parent = &w->levels[w->n_levels - 1];
    struct walk_level child = { 0 };
    auto_fd fd = hutch_opath_open_dir(w->dirfd, w->name, unlock_bits(w));

    if (fd < 0 || identify(fd, &child) < 0) {
        if (errno == ENOMEM || errno == EMFILE || errno == ENFILE)
            return hutch_err_set(err, errno, "open directory '%s'", w->name);
        *ret_skipped = errno;
        return 0;
    }
    if (child.dev != parent->dev || child.mount_id != parent->mount_id) {
        *ret_skipped = EXDEV;
        return 0;
    }
    child.path_len = w->path_len + 1;
    if (push_level(w, hutch_fd_take(&fd), &child, err) < 0)
        return -1;
    w->path[w->path_len] = '/'; /* set_path() left room for it */
    *ret_skipped = 0;
    return 0;
}

void hutch_walk_done(struct walk *w)
{
    struct walk fresh = WALK_INIT;

    for (size_t i = 0; i < WALK_MAX_OPEN; i++)
        if (w->open[i] != NULL)
            closedir(w->open[i]);
    free(w->levels);
    free(w->path);
    *w = fresh;
}
