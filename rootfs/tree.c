#include "rootfs/tree.h"

#include "rootfs/mount_points.h"
#include "sandbox/fd.h"
#include "sandbox/rmtree.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <search.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define MAX_LINKS 40             /* as the kernel: path_resolution(7) */
#define MAX_STEPS 1000           /* components on the way to one directory, those of links included */
#define MAX_TIME (1ll << 40)     /* seconds; some file systems refuse what is further away */
/* Names in an archive are bounded by TREE_MAX_DEPTH, links may lead a little deeper with each layer. */
#define TREE_MAX_REAL_DEPTH (2 * TREE_MAX_DEPTH)
#define OPAQUE ".wh..wh..opq"
#define AUFS ".wh..wh." /* names that aufs kept for itself at the top of a layer */

struct tree_time {
    ino_t ino;
    size_t seq; /* the last word on an inode counts */
    int64_t mtime;
};

int hutch_tree_open(int dirfd, struct tree *ret, struct hutch_err *err)
{
    if (fchmod(dirfd, 0755) < 0)
        return hutch_err_set(err, errno, "set the mode of a new root tree");
    *ret = (struct tree){ .dirfd = dirfd, .parent_fd = -1 };
    return 0;
}

static void forget_parent(struct tree *tree)
{
    hutch_fd_closep(&tree->parent_fd);
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void forget_layer(struct tree *tree)
{
    tdestroy(tree->layer_paths, free);
    tree->layer_paths = NULL;
    tree->layer_bytes = 0;
}

void hutch_tree_done(struct tree *tree)
{
    forget_layer(tree);
    forget_parent(tree);
    hutch_freep(&tree->times);
    tree->times = NULL;
    tree->n_times = tree->cap_times = 0;
    hutch_fd_closep(&tree->dirfd);
}

void hutch_tree_start_layer(struct tree *tree)
{
    tree->is_first_layer = tree->n_layers++ == 0;
    forget_layer(tree);
    forget_parent(tree);
}

/* Remembers that the current layer made @path or something below it, so that its own whiteouts spare it. A balanced
 * tree rather than a hash table: the names come from the archive. */
static int note_path(struct tree *tree, const char *path, struct hutch_err *err)
{
    char *copy;
    void *node;

    if (tree->is_first_layer) /* nothing is below it that a whiteout could mean */
        return 0;
    copy = strdup(path);
    if (!copy)
        return hutch_err_set(err, ENOMEM, "remember '%s'", path);
    for (;;) {
        char *slash, *shorter;

        node = tsearch(copy, &tree->layer_paths, compare_paths);
        if (!node) {
            free(copy);
            return hutch_err_set(err, ENOMEM, "remember '%s'", path);
        }
        if (*(char **)node != copy) { /* known, and so are its parents */
            free(copy);
            return 0;
        }
        tree->layer_bytes += strlen(copy) + 64; /* with its node */
        if (tree->layer_bytes > TREE_MAX_LAYER_BYTES)
            return hutch_err_set(err, E2BIG, "remember '%.100s': the layer's names are more than %llu MiB", path,
                                 TREE_MAX_LAYER_BYTES >> 20);
        slash = strrchr(copy, '/');
        if (!slash)
            return 0;
        shorter = strndup(copy, (size_t)(slash - copy));
        if (!shorter)
            return hutch_err_set(err, ENOMEM, "remember '%s'", path);
        copy = shorter;
    }
}

static int note_time(struct tree *tree, ino_t ino, int64_t mtime, struct hutch_err *err)
{
    if (tree->n_times == tree->cap_times) {
        size_t cap = tree->cap_times ? tree->cap_times * 2 : 256;
        struct tree_time *bigger = reallocarray(tree->times, cap, sizeof(*bigger));

        if (!bigger)
            return hutch_err_set(err, ENOMEM, "remember the time of a directory");
        tree->times = bigger;
        tree->cap_times = cap;
    }
    tree->times[tree->n_times] = (struct tree_time){ .ino = ino, .seq = tree->n_times, .mtime = mtime };
    tree->n_times++;
    return 0;
}

static struct timespec clamp_time(int64_t mtime)
{
    return (struct timespec){ .tv_sec = mtime < 0 ? 0 : mtime > MAX_TIME ? MAX_TIME : mtime };
}

/* What the sandbox's user may do, as rwx bits. */
static mode_t user_bits(const struct tree_meta *meta)
{
    if (meta->uid == TREE_USER)
        return (meta->mode >> 6) & 7;
    if (meta->gid == TREE_USER)
        return (meta->mode >> 3) & 7;
    return meta->mode & 7;
}

/* The same bits for owner, group and others: to an ordinary caller the sandbox's user is the owner, to root it is
 * another user of the host. Only the owner may write, and setuid, setgid and sticky bits are gone. */
static mode_t file_mode(const struct tree_meta *meta)
{
    mode_t bits = user_bits(meta);

    if (!(bits & 4))
        return 0;
    return (bits & 1) ? 0755 : 0644;
}

/* A directory stays writable for us until the end; the "others" bits keep what it shall be. */
static mode_t dir_mode(const struct tree_meta *meta)
{
    mode_t bits = user_bits(meta);

    if (!(bits & 1))
        return 0700;
    return (bits & 4) ? 0755 : 0711;
}

/* Checks @path and writes it without "." components and doubled slashes to @ret; "" is the root. */
static int plain_path(const char *path, const char *what, char ret[PATH_MAX], struct hutch_err *err)
{
    size_t len = 0;
    unsigned depth = 0;

    if (path[0] == '\0')
        return hutch_err_set(err, 0, "the %s is empty", what);
    if (path[0] == '/')
        return hutch_err_set(err, 0, "the %s is an absolute path", what);
    for (const char *p = path; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return hutch_err_set(err, 0, "the %s holds a control character (0x%02x)", what, (unsigned char)*p);
    while (*path) {
        size_t n = strcspn(path, "/");

        if (n == 2 && path[0] == '.' && path[1] == '.')
            return hutch_err_set(err, 0, "the %s has a component '..'", what);
        if (n > 0 && !(n == 1 && path[0] == '.')) {
            if (n > NAME_MAX)
                return hutch_err_set(err, ENAMETOOLONG, "the %s has a component of %zu bytes", what, n);
            if (len + n + 2 > PATH_MAX)
                return hutch_err_set(err, ENAMETOOLONG, "the %s is longer than %d bytes", what, PATH_MAX - 1);
            if (++depth > TREE_MAX_DEPTH)
                return hutch_err_set(err, 0, "the %s is more than %d directories deep", what, TREE_MAX_DEPTH);
            if (len > 0)
                ret[len++] = '/';
            memcpy(ret + len, path, n);
            len += n;
        }
        path += n;
        while (*path == '/')
            path++;
    }
    ret[len] = '\0';
    return 0;
}

/* Splits the last component off. @path is plain and not "". */
static const char *split_path(char *path)
{
    char *slash = strrchr(path, '/');

    if (!slash)
        return path;
    *slash = '\0';
    return slash + 1;
}

static int open_beneath(int dirfd, const char *path, uint64_t flags, uint64_t resolve)
{
    struct open_how how = { .flags = flags | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | resolve };

    return (int)syscall(SYS_openat2, dirfd, path[0] ? path : ".", &how, sizeof(how));
}

static int make_dir(struct tree *tree, int dirfd, const char *name, const char *real, mode_t mode, int64_t mtime,
                    struct hutch_err *err)
{
    struct stat st;

    if (mkdirat(dirfd, name, 0700) < 0 || fchmodat(dirfd, name, mode, 0) < 0 ||
        fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return hutch_err_set(err, errno, "create directory '%s'", real);
    if (note_path(tree, real, err) < 0)
        return -1;
    return note_time(tree, st.st_ino, mtime, err);
}

/* Where a path leads, while it is followed. */
struct follow {
    char real[PATH_MAX];           /* so far, without links */
    char pending[2 * PATH_MAX];    /* what is still to be followed, */
    const char *at;                /* from here on */
    size_t own_len;                /* this much of the end of pending is the entry's own path, not a link's text */
    char link[PATH_MAX + NAME_MAX + 2]; /* the last one on the way, for messages; "" without one */
    unsigned links, steps;
};

/* Continues with the text of the link at @candidate. */
static int follow_link(struct tree *tree, struct follow *f, const char *candidate, struct hutch_err *err)
{
    char target[PATH_MAX], next[2 * PATH_MAX];
    ssize_t n = readlinkat(tree->dirfd, candidate, target, sizeof(target) - 1);
    size_t rest_len = strlen(f->at);

    if (n < 0)
        return hutch_err_set(err, errno, "read the symbolic link '%s'", candidate);
    target[n] = '\0';
    snprintf(f->link, sizeof(f->link), "%s", candidate);
    if (++f->links > MAX_LINKS)
        return hutch_err_set(err, ELOOP, "follow the symbolic link '%s'", candidate);
    if ((size_t)snprintf(next, sizeof(next), "%s/%s", target, f->at) >= sizeof(next))
        return hutch_err_set(err, ENAMETOOLONG, "follow the symbolic link '%s'", candidate);
    if (target[0] == '/')
        f->real[0] = '\0';
    if (f->own_len > rest_len)
        f->own_len = rest_len;
    memcpy(f->pending, next, sizeof(next));
    f->at = f->pending;
    return 0;
}

/* Takes the next component, which is neither "" nor "." nor "..". */
static int follow_component(struct tree *tree, struct follow *f, size_t len, bool create, struct hutch_err *err)
{
    char candidate[PATH_MAX + NAME_MAX + 2];
    bool is_own = strlen(f->at) <= f->own_len;
    struct stat st;

    if ((size_t)snprintf(candidate, sizeof(candidate), "%s%s%.*s", f->real, f->real[0] ? "/" : "", (int)len, f->at) >=
        PATH_MAX - NAME_MAX)
        return hutch_err_set(err, ENAMETOOLONG, "open directory '%.100s...'", candidate);
    f->at += len;
    if (fstatat(tree->dirfd, candidate, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno == ENOENT && !is_own)
            return hutch_err_set(err, 0, "it goes through the symbolic link '%s', which leads to nothing in the tree",
                                 f->link);
        if (errno != ENOENT || !create)
            return hutch_err_set(err, errno, "open directory '%s'", candidate);
        if (tree->entries_left && (*tree->entries_left)-- == 0) {
            *tree->entries_left = 0;
            return hutch_err_set(err, 0, "the image has too many directories, those that only a path names among them "
                                         "(--max-entries allows more)");
        }
        if (make_dir(tree, tree->dirfd, candidate, candidate, 0755, 0, err) < 0)
            return -1;
    } else if (S_ISLNK(st.st_mode)) {
        return follow_link(tree, f, candidate, err);
    } else if (!S_ISDIR(st.st_mode)) {
        return hutch_err_set(err, 0, "'%s' is not a directory", candidate);
    }
    memcpy(f->real, candidate, strlen(candidate) + 1);
    return 0;
}

/* Writes to f->real where f->at leads, making what is missing of the entry's own path. */
static int follow_dirs(struct tree *tree, struct follow *f, bool create, struct hutch_err *err)
{
    for (;;) {
        size_t len;

        f->at += strspn(f->at, "/");
        len = strcspn(f->at, "/");
        if (len == 0)
            return 0;
        /* Links may send us round and round: each entry of a million could cost a second otherwise. */
        if (++f->steps > MAX_STEPS)
            return hutch_err_set(err, ELOOP, "follow the symbolic link '%s' (more than %d steps)", f->link, MAX_STEPS);
        if (len > NAME_MAX)
            return hutch_err_set(err, ENAMETOOLONG, "follow the symbolic link '%s'", f->link);
        if (len == 1 && f->at[0] == '.') {
            f->at += len;
        } else if (len == 2 && memcmp(f->at, "..", 2) == 0) { /* only a link's text can hold one */
            char *slash = strrchr(f->real, '/');

            if (f->real[0] == '\0')
                return hutch_err_set(err, 0, "it goes through the symbolic link '%s', which leads out of the tree",
                                     f->link);
            *(slash ? slash : f->real) = '\0';
            f->at += len;
        } else if (follow_component(tree, f, len, create, err) < 0) {
            return -1;
        }
    }
}

/* Opens the directory that @path (plain) stands for. *ret_fd stays the tree's, valid until the next call. */
static int open_parent(struct tree *tree, const char *path, bool create, int *ret_fd, struct hutch_err *err)
{
    struct follow f = { .real = "", .own_len = SIZE_MAX, .link = "", .links = 0 };

    if (tree->parent_fd >= 0 && strcmp(tree->parent, path) == 0) {
        *ret_fd = tree->parent_fd;
        return 0;
    }
    snprintf(f.pending, sizeof(f.pending), "%s", path);
    f.at = f.pending;
    if (follow_dirs(tree, &f, create, err) < 0)
        return -1;
    forget_parent(tree);
    tree->parent_fd = open_beneath(tree->dirfd, f.real, O_PATH | O_DIRECTORY, RESOLVE_NO_SYMLINKS);
    if (tree->parent_fd < 0)
        return hutch_err_set(err, errno, "open directory '%s'", f.real);
    snprintf(tree->parent, sizeof(tree->parent), "%s", path);
    memcpy(tree->parent_real, f.real, sizeof(f.real));
    *ret_fd = tree->parent_fd;
    return 0;
}

/* An entry's place: the directory that holds it, its own name there, and its path without links. */
struct place {
    char plain[PATH_MAX];
    const char *name; /* in plain */
    int dirfd;        /* the tree's */
    char real[PATH_MAX];
};

static int find_place(struct tree *tree, const char *path, const char *what, bool create, struct place *ret,
                      struct hutch_err *err)
{
    unsigned depth = 0;

    if (plain_path(path, what, ret->plain, err) < 0)
        return -1;
    if (ret->plain[0] == '\0')
        return hutch_err_set(err, 0, "the %s is the root of the tree", what);
    ret->name = split_path(ret->plain);
    if (open_parent(tree, ret->name == ret->plain ? "" : ret->plain, create, &ret->dirfd, err) < 0)
        return -1;
    if ((size_t)snprintf(ret->real, sizeof(ret->real), "%s%s%s", tree->parent_real, tree->parent_real[0] ? "/" : "",
                         ret->name) >= sizeof(ret->real))
        return hutch_err_set(err, ENAMETOOLONG, "the %s is too long", what);
    for (const char *p = ret->real; *p; p++)
        depth += *p == '/';
    if (depth > TREE_MAX_REAL_DEPTH)
        return hutch_err_set(err, 0, "the %s leads more than %d directories deep", what, TREE_MAX_REAL_DEPTH);
    return 0;
}

/* The way to the directory that is held open may have changed; the descriptor itself stays good for this entry. */
static void distrust_parent(struct tree *tree)
{
    memcpy(tree->parent, "/", 2); /* which no plain path is equal to */
}

/* Takes away what is at @place, so that O_EXCL finds nothing. */
static int clear_place(struct tree *tree, const struct place *place, struct hutch_err *err)
{
    struct stat st;

    if (fstatat(place->dirfd, place->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : hutch_err_set(err, errno, "look at '%s'", place->real);
    if (!S_ISDIR(st.st_mode)) {
        if (unlinkat(place->dirfd, place->name, 0) < 0)
            return hutch_err_set(err, errno, "replace '%s'", place->real);
        if (S_ISLNK(st.st_mode))
            distrust_parent(tree);
        return 0;
    }
    distrust_parent(tree);
    return hutch_rmtree(place->dirfd, place->name, err);
}

int hutch_tree_add_dir(struct tree *tree, const char *path, const struct tree_meta *meta, struct hutch_err *err)
{
    struct place place;
    struct stat st;

    if (plain_path(path, "name", place.plain, err) < 0)
        return -1;
    if (place.plain[0] == '\0') { /* "./": the root stays as it is but for its time */
        if (fstat(tree->dirfd, &st) < 0)
            return hutch_err_set(err, errno, "look at the root of the tree");
        return note_time(tree, st.st_ino, meta->mtime, err);
    }
    if (find_place(tree, path, "name", true, &place, err) < 0)
        return -1;
    if (fstatat(place.dirfd, place.name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)) {
        if (fchmodat(place.dirfd, place.name, dir_mode(meta), 0) < 0)
            return hutch_err_set(err, errno, "set the mode of '%s'", place.real);
        if (note_path(tree, place.real, err) < 0)
            return -1;
        return note_time(tree, st.st_ino, meta->mtime, err);
    }
    if (clear_place(tree, &place, err) < 0)
        return -1;
    return make_dir(tree, place.dirfd, place.name, place.real, dir_mode(meta), meta->mtime, err);
}

int hutch_tree_add_file(struct tree *tree, const char *path, const struct tree_meta *meta, int *ret_fd,
                        struct hutch_err *err)
{
    struct place place;
    auto_fd fd = -1;

    if (find_place(tree, path, "name", true, &place, err) < 0 || clear_place(tree, &place, err) < 0)
        return -1;
    fd = openat(place.dirfd, place.name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return hutch_err_set(err, errno, "create '%s'", place.real);
    if (note_path(tree, place.real, err) < 0)
        return -1;
    if (file_mode(meta) == 0) {
        if (hutch_tree_end_file(fd, meta, err) < 0)
            return -1;
        *ret_fd = -1;
        return 0;
    }
    *ret_fd = hutch_fd_take(&fd);
    return 0;
}

int hutch_tree_end_file(int fd, const struct tree_meta *meta, struct hutch_err *err)
{
    struct timespec times[2] = { clamp_time(meta->mtime), clamp_time(meta->mtime) };

    if (fchmod(fd, file_mode(meta)) < 0 || futimens(fd, times) < 0)
        return hutch_err_set(err, errno, "set mode and time");
    return 0;
}

int hutch_tree_add_symlink(struct tree *tree, const char *path, const char *target, const struct tree_meta *meta,
                           struct hutch_err *err)
{
    struct timespec times[2] = { clamp_time(meta->mtime), clamp_time(meta->mtime) };
    struct place place;

    if (target[0] == '\0' || strlen(target) >= PATH_MAX)
        return hutch_err_set(err, 0, "the symbolic link's text has %zu bytes", strlen(target));
    for (const char *p = target; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return hutch_err_set(err, 0, "the symbolic link's text holds a control character (0x%02x)",
                                 (unsigned char)*p);
    if (find_place(tree, path, "name", true, &place, err) < 0 || clear_place(tree, &place, err) < 0)
        return -1;
    if (symlinkat(target, place.dirfd, place.name) < 0)
        return hutch_err_set(err, errno, "create symbolic link '%s'", place.real);
    if (utimensat(place.dirfd, place.name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return hutch_err_set(err, errno, "set the time of '%s'", place.real);
    return note_path(tree, place.real, err);
}

static bool is_below_dev(const char *path)
{
    struct hutch_err ignored;
    char plain[PATH_MAX];

    return plain_path(path, "name", plain, &ignored) == 0 && strncmp(plain, "dev/", 4) == 0;
}

/* No directory is made for a node; what a lower layer has in its place is gone. */
int hutch_tree_pass_device(struct tree *tree, const char *path, struct hutch_err *err)
{
    struct place place;
    const bool is_there = find_place(tree, path, "name", false, &place, err) == 0;

    if (!is_there && err->errnum != ENOENT)
        return -1;
    if (is_there ? strncmp(place.real, "dev/", 4) != 0 : !is_below_dev(path))
        return hutch_err_set(err, 0, "a device node outside of /dev; an image has no use for one");
    tree->n_devices++;
    return is_there ? clear_place(tree, &place, err) : 0;
}

int hutch_tree_add_hardlink(struct tree *tree, const char *path, const char *target, struct hutch_err *err)
{
    struct place from, to;
    struct stat st, there;
    auto_fd dirfd = -1;
    int rc;

    rc = find_place(tree, target, "link target", false, &from, err);
    if (rc < 0)
        hutch_err_wrap(err, "hard link to '%s'", target);
    else
        dirfd = openat(from.dirfd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC); /* the next look-up gives from's back */
    if (rc == 0 && (dirfd < 0 || fstatat(dirfd, from.name, &st, AT_SYMLINK_NOFOLLOW) < 0))
        rc = hutch_err_set(err, errno, "hard link to '%s'", target);
    if (rc < 0 && err->errnum == ENOENT && tree->n_devices > 0 && is_below_dev(target) && is_below_dev(path))
        return hutch_tree_pass_device(tree, path, err); /* a node by another name */
    if (rc < 0)
        return -1;
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return hutch_err_set(err, 0, "hard link to '%s', which is not a file", target);
    if (find_place(tree, path, "name", true, &to, err) < 0)
        return -1;
    if (fstatat(to.dirfd, to.name, &there, AT_SYMLINK_NOFOLLOW) == 0 && there.st_ino == st.st_ino &&
        there.st_dev == st.st_dev)
        return note_path(tree, to.real, err);
    if (clear_place(tree, &to, err) < 0)
        return -1;
    if (linkat(dirfd, from.name, to.dirfd, to.name, 0) < 0)
        return hutch_err_set(err, errno, "hard link to '%s'", target);
    return note_path(tree, to.real, err);
}

static int remove_lower(struct tree *tree, int dirfd, const char *name, const char *real, unsigned depth,
                        struct hutch_err *err);

/* Removes what is in the directory @name, except what the current layer made. */
static int empty_lower(struct tree *tree, int dirfd, const char *name, const char *real, unsigned depth,
                       struct hutch_err *err)
{
    char below[PATH_MAX];
    struct dirent *de;
    DIR *dir;
    int rc = 0, fd;

    /* Once a layer: nothing of lower layers comes back, and a layer may say so a million times. */
    if ((size_t)snprintf(below, sizeof(below), "%s%s%s", real, real[0] ? "/" : "", OPAQUE) >= sizeof(below))
        return hutch_err_set(err, ENAMETOOLONG, "empty directory '%s'", real);
    if (tfind(below, &tree->layer_paths, compare_paths))
        return 0;
    if (note_path(tree, below, err) < 0)
        return -1;
    fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP || errno == ENOENT)) /* not a directory: nothing is in it */
        return 0;
    dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        hutch_err_set(err, errno, "open directory '%s'", real);
        hutch_fd_closep(&fd);
        return -1;
    }
    while (rc == 0 && (de = readdir(dir))) {
        if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
            continue;
        if ((size_t)snprintf(below, sizeof(below), "%s%s%s", real, real[0] ? "/" : "", de->d_name) >= sizeof(below) ||
            depth > TREE_MAX_REAL_DEPTH)
            rc = hutch_err_set(err, ENAMETOOLONG, "empty directory '%s'", real);
        else
            rc = remove_lower(tree, fd, de->d_name, below, depth + 1, err);
    }
    closedir(dir);
    return rc;
}

static int remove_lower(struct tree *tree, int dirfd, const char *name, const char *real, unsigned depth,
                        struct hutch_err *err)
{
    if (tfind(real, &tree->layer_paths, compare_paths))
        return empty_lower(tree, dirfd, name, real, depth, err);
    return hutch_rmtree(dirfd, name, err);
}

bool hutch_tree_is_whiteout(const char *path)
{
    const char *last;
    size_t len;

    while (strncmp(path, "./", 2) == 0)
        path += 2;
    if (strncmp(path, AUFS, strlen(AUFS)) == 0)
        return true;
    for (len = strlen(path); len > 0 && path[len - 1] == '/'; len--)
        continue;
    last = len > 0 ? memrchr(path, '/', len) : NULL;
    return strncmp(last ? last + 1 : path, ".wh.", 4) == 0;
}

int hutch_tree_whiteout(struct tree *tree, const char *path, struct hutch_err *err)
{
    struct place place;
    const char *hidden;
    char real[PATH_MAX + NAME_MAX + 2];

    if (plain_path(path, "name", place.plain, err) < 0)
        return -1;
    if (strncmp(place.plain, AUFS, strlen(AUFS)) == 0 && strcmp(place.plain, OPAQUE) != 0)
        return 0;
    if (find_place(tree, path, "name", true, &place, err) < 0)
        return -1;
    distrust_parent(tree);
    if (strcmp(place.name, OPAQUE) == 0) {
        if (tree->is_first_layer)
            return 0;
        return empty_lower(tree, place.dirfd, ".", tree->parent_real, 0, err);
    }
    if (strncmp(place.name, AUFS, strlen(AUFS)) == 0)
        return 0;
    hidden = place.name + 4;
    if (hidden[0] == '\0' || strcmp(hidden, ".") == 0 || strcmp(hidden, "..") == 0)
        return hutch_err_set(err, 0, "the whiteout does not say which name it hides");
    if (tree->is_first_layer)
        return 0;
    snprintf(real, sizeof(real), "%s%s%s", tree->parent_real, tree->parent_real[0] ? "/" : "", hidden);
    return remove_lower(tree, place.dirfd, hidden, real, 0, err);
}

static int compare_times(const void *a, const void *b)
{
    const struct tree_time *x = a, *y = b;

    if (x->ino != y->ino)
        return x->ino < y->ino ? -1 : 1;
    return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* The last time noted for an inode; 0 (1970) for directories that no archive entry spoke of. */
static int64_t time_of(const struct tree *tree, ino_t ino)
{
    size_t low = 0, high = tree->n_times;

    while (low < high) { /* the first entry behind those of @ino */
        size_t mid = low + (high - low) / 2;

        if (tree->times[mid].ino <= ino)
            low = mid + 1;
        else
            high = mid;
    }
    return low > 0 && tree->times[low - 1].ino == ino ? tree->times[low - 1].mtime : 0;
}

/* Sets the final mode and time of the directory @fd and of all below it. Takes @fd. */
static int finish_dir(struct tree *tree, int fd, unsigned depth, struct hutch_err *err)
{
    struct timespec times[2];
    struct dirent *de;
    struct stat st;
    bool is_closed;
    int rc = 0;
    DIR *dir = fdopendir(fd);

    if (!dir || fstat(fd, &st) < 0) {
        rc = hutch_err_set(err, errno, "read a directory");
        if (dir)
            closedir(dir);
        else
            close(fd);
        return rc;
    }
    is_closed = !(st.st_mode & 1);
    if (depth > TREE_MAX_REAL_DEPTH)
        rc = hutch_err_set(err, 0, "the tree is more than %d directories deep", TREE_MAX_REAL_DEPTH);
    while (rc == 0 && (de = readdir(dir))) {
        int below;

        if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
            continue;
        if (is_closed) {
            rc = hutch_rmtree(fd, de->d_name, err);
            continue;
        }
        if (de->d_type != DT_DIR && de->d_type != DT_UNKNOWN)
            continue;
        below = openat(fd, de->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        if (below >= 0)
            rc = finish_dir(tree, below, depth + 1, err);
        else if (errno != ENOTDIR && errno != ELOOP)
            rc = hutch_err_set(err, errno, "open directory '%s'", de->d_name);
    }
    times[0] = times[1] = clamp_time(time_of(tree, st.st_ino));
    if (rc == 0 && (fchmod(fd, is_closed ? 0 : st.st_mode & 0777) < 0 || futimens(fd, times) < 0))
        rc = hutch_err_set(err, errno, "set the mode and time of a directory");
    closedir(dir);
    return rc;
}

int hutch_tree_finish_part(struct tree *tree, struct hutch_err *err)
{
    int top;

    forget_layer(tree);
    forget_parent(tree);
    if (tree->n_times > 0)
        qsort(tree->times, tree->n_times, sizeof(*tree->times), compare_times);
    top = openat(tree->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
        return hutch_err_set(err, errno, "open the root tree");
    return finish_dir(tree, top, 0, err);
}

int hutch_tree_finish(struct tree *tree, struct hutch_err *err)
{
    if (hutch_mount_points_make(tree->dirfd, err) < 0)
        return hutch_err_wrap(err, "make the sandbox's mount points");
    return hutch_tree_finish_part(tree, err);
}
