/* paths.c - one order about a path, done by a process of the sandbox's own: what the path leads to, and what may be
 * done there, is the kernel's to say for this process as for any other of the session's.
 *
 * No memory of libc's is needed here: see spawner.c. Names and trees are hostile code's, which may change them
 * meanwhile: whatever is walked is held by descriptors, through no link, and a walk ends when the engine does not wait
 * any more. */
#include "rootfs/helper/paths.h"

#include "sandbox/fd.h"
#include "sandbox/fdpass.h"
#include "sandbox/path_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define READ_BYTES 4096      /* of a directory at a time */
#define TREE_DEPTH_MAX 4096  /* of what is removed; the walk goes up by "..", and holds one descriptor */
#define LOOK_AFTER 64        /* entries, until the engine is looked for again */
#define ATTEMPTS 100         /* at a directory that fills again while it is removed */
#define DIRECTORY (O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC)

/* The kernel's struct linux_dirent64, which no libc needs to know. */
struct entry {
    uint64_t ino;
    int64_t off;
    uint16_t reclen;
    uint8_t type;
    char name[256];
};

static struct {
    int control;
    struct path_order order;
    const char *path, *new_path;
    bool truncated, existed;
    size_t n_looks;
    size_t len;           /* of the packet */
    size_t n, names;      /* records and bytes of names in all */
    char *packet;         /* PATH_PACKET_MAX bytes */
} job;

/* --- the answer --------------------------------------------------------------------------------------------------- */

static _Noreturn void fail(enum path_step step, int errnum)
{
    struct path_said said = { .what = PATH_FAILED, .step = step, .errnum = errnum };

    hutch_fdpass_send(job.control, &said, sizeof(said), NULL, 0, 0);
    _exit(1);
}

static struct path_said *head(void)
{
    return (struct path_said *)job.packet;
}

static void begin_packet(void)
{
    *head() = (struct path_said){ .what = PATH_ENTRIES };
    job.len = sizeof(struct path_said);
}

static _Noreturn void finish(const int *fd)
{
    head()->what = PATH_DONE;
    head()->truncated = job.truncated;
    head()->existed = job.existed;
    hutch_fdpass_send(job.control, job.packet, job.len, fd, fd != NULL, 0);
    _exit(0);
}

/* False: there is no room for it in the whole answer. */
static bool add_record(const struct stat *st, const char *path, size_t path_len, const char *target)
{
    const size_t target_len = target ? strlen(target) + 1 : 1;
    struct path_record record = {
        .bytes = (uint64_t)st->st_size,
        .mtime_s = st->st_mtim.tv_sec,
        .mtime_ns = (uint32_t)st->st_mtim.tv_nsec,
        .mode = st->st_mode,
        .uid = st->st_uid,
        .gid = st->st_gid,
        .path_len = (uint16_t)(path_len + 1),
        .target_len = (uint16_t)target_len,
        .has_target = target != NULL,
    };

    if (job.names + path_len + 1 + target_len > PATH_NAMES_MAX)
        return false;
    if (job.len + sizeof(record) + path_len + 1 + target_len > PATH_PACKET_MAX) {
        if (hutch_fdpass_send(job.control, job.packet, job.len, NULL, 0, 0) < 0)
            _exit(1); /* the engine has given it up */
        begin_packet();
    }
    memcpy(job.packet + job.len, &record, sizeof(record));
    job.len += sizeof(record);
    memcpy(job.packet + job.len, path, path_len);
    job.len += path_len;
    job.packet[job.len++] = '\0';
    if (target)
        memcpy(job.packet + job.len, target, target_len);
    else
        job.packet[job.len] = '\0';
    job.len += target_len;
    head()->n++;
    job.n++;
    job.names += path_len + 1 + target_len;
    return true;
}

/* Now and then: the engine does not wait any more when its end is closed. */
static void look_for_engine(void)
{
    struct pollfd control = { .fd = job.control };

    if (++job.n_looks % LOOK_AFTER == 0 && poll(&control, 1, 0) > 0)
        _exit(1);
}

/* --- looking ------------------------------------------------------------------------------------------------------ */

/* @to has PATH_TEXT_MAX bytes; NULL: it is no link, or says too much. */
static const char *read_target(int dirfd, const char *name, char *to)
{
    ssize_t n = readlinkat(dirfd, name, to, PATH_TEXT_MAX);

    if (n < 0 || n >= PATH_TEXT_MAX)
        return NULL;
    to[n] = '\0';
    return to;
}

static void add_one(const struct stat *st)
{
    char target[PATH_TEXT_MAX];

    add_record(st, "", 0, read_target(AT_FDCWD, job.path, target));
}

static _Noreturn void look(void)
{
    struct stat st;

    if (fstatat(AT_FDCWD, job.path, &st, job.order.flags & PATH_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW) < 0)
        fail(PATH_STEP_LOOK, errno);
    add_one(&st);
    finish(NULL);
}

/* One that a directory is read by. */
struct level {
    int fd;
    size_t at, end;
    size_t path_len; /* of what stands before its entries' names */
    char buf[READ_BYTES];
};

/* 1: @ret is the next, never "." or ".."; 0: there is none; -1 with errno. */
static int read_entry(struct level *l, struct entry *ret)
{
    for (;;) {
        size_t size;

        if (l->at >= l->end) {
            long n = syscall(SYS_getdents64, l->fd, l->buf, sizeof(l->buf));

            if (n <= 0)
                return (int)n;
            l->at = 0;
            l->end = (size_t)n;
        }
        memset(ret, 0, sizeof(*ret));
        memcpy(&ret->reclen, l->buf + l->at + offsetof(struct entry, reclen), sizeof(ret->reclen));
        size = ret->reclen < sizeof(*ret) ? ret->reclen : sizeof(*ret);
        memcpy(ret, l->buf + l->at, size);
        l->at += ret->reclen;
        ret->name[sizeof(ret->name) - 1] = '\0';
        if (strcmp(ret->name, ".") != 0 && strcmp(ret->name, "..") != 0)
            return 1;
    }
}

static void open_level(struct level *l, int fd, size_t path_len)
{
    l->fd = fd;
    l->at = l->end = 0;
    l->path_len = path_len;
}

/* False: there is no more room. @path has the name at its end, and is @len long. */
static bool add_entry(const struct level *l, const struct entry *e, const char *path, size_t len,
                      bool *ret_is_directory)
{
    char target[PATH_TEXT_MAX];
    struct stat st;

    *ret_is_directory = false;
    if (fstatat(l->fd, e->name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno == ENOENT)
            return true;
        memset(&st, 0, sizeof(st)); /* a directory whose entries can be read, and not be looked at */
        st.st_mode = (mode_t)e->type << 12; /* DT_... as S_IF... */
        job.truncated = true;
    }
    *ret_is_directory = S_ISDIR(st.st_mode);
    return job.n < job.order.max_entries &&
           add_record(&st, path, len, S_ISLNK(st.st_mode) ? read_target(l->fd, e->name, target) : NULL);
}

static _Noreturn void list(void)
{
    struct level levels[PATH_DEPTH_MAX];
    char path[PATH_DEPTH_MAX * 256];
    int fd = openat(AT_FDCWD, job.path, DIRECTORY);
    size_t n = 1;

    if (fd < 0)
        fail(PATH_STEP_OPEN, errno);
    open_level(&levels[0], fd, 0);
    while (n > 0) {
        struct level *l = &levels[n - 1];
        struct entry e;
        int rc = read_entry(l, &e);
        size_t len;
        bool is_directory;

        look_for_engine();
        if (rc < 0 && n == 1)
            fail(PATH_STEP_READ, errno);
        if (rc <= 0) {
            job.truncated = job.truncated || rc < 0;
            close(l->fd);
            n--;
            continue;
        }
        len = l->path_len + strlen(e.name);
        memcpy(path + l->path_len, e.name, len - l->path_len);
        if (!add_entry(l, &e, path, len, &is_directory)) {
            job.truncated = true;
            break;
        }
        if (!is_directory || n >= job.order.depth)
            continue;
        fd = openat(l->fd, e.name, DIRECTORY | O_NOFOLLOW);
        if (fd < 0) {
            job.truncated = job.truncated || errno != ENOENT;
            continue;
        }
        path[len] = '/';
        open_level(&levels[n++], fd, len + 1);
    }
    finish(NULL);
}

/* --- making ------------------------------------------------------------------------------------------------------- */

/* The directories before the last name of @path. */
static void make_parents(const char *path)
{
    char prefix[PATH_TEXT_MAX];
    size_t end = strlen(path);

    memcpy(prefix, path, end + 1);
    while (end > 0 && path[end - 1] == '/')
        end--;
    while (end > 0 && path[end - 1] != '/')
        end--;
    for (size_t i = 1; i < end; i++) {
        if (path[i] != '/' || path[i - 1] == '/')
            continue;
        prefix[i] = '\0';
        if (mkdirat(AT_FDCWD, prefix, 0755) < 0 && errno != EEXIST)
            fail(PATH_STEP_PARENTS, errno);
        prefix[i] = '/';
    }
}

static int make_one(void)
{
    return mkdirat(AT_FDCWD, job.path, job.order.mode);
}

static _Noreturn void make(void)
{
    const bool has_parents = job.order.flags & PATH_PARENTS;
    struct stat st;
    int rc = make_one();

    if (rc < 0 && errno == ENOENT && has_parents) {
        make_parents(job.path);
        rc = make_one();
    }
    job.existed = rc < 0 && errno == EEXIST;
    if (rc < 0 && !(job.existed && has_parents))
        fail(PATH_STEP_MAKE, errno);
    if (fstatat(AT_FDCWD, job.path, &st, 0) < 0)
        fail(PATH_STEP_LOOK, errno);
    if (!S_ISDIR(st.st_mode))
        fail(PATH_STEP_MAKE, EEXIST);
    add_one(&st);
    finish(NULL);
}

static _Noreturn void rename_it(void)
{
    int rc = renameat(AT_FDCWD, job.path, AT_FDCWD, job.new_path);
    struct stat st;

    if (rc < 0 && errno == ENOENT && (job.order.flags & PATH_PARENTS) &&
        fstatat(AT_FDCWD, job.path, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        make_parents(job.new_path);
        rc = renameat(AT_FDCWD, job.path, AT_FDCWD, job.new_path);
    }
    if (rc < 0)
        fail(PATH_STEP_RENAME, errno);
    finish(NULL);
}

/* --- removing ----------------------------------------------------------------------------------------------------- */

static bool is_mount(int dirfd, const char *name)
{
    struct statx stx;

    memset(&stx, 0, sizeof(stx));
    return syscall(SYS_statx, dirfd, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE, &stx) == 0 &&
           (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT); /* Linux 5.8; before, what is in it is removed, and not it */
}

/* 0: it is gone; 1: it is a directory with something in it; -1 with errno. */
static int remove_one(int dirfd, const char *name)
{
    if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR)
        return -1;
    if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    return errno == ENOTEMPTY || errno == EEXIST ? 1 : -1;
}

/* Removes what is in @fd, until it is empty (0), or until @ret is a directory that is not (1). */
static int remove_entries(int fd, struct entry *ret)
{
    struct level l;
    bool has_removed = true;

    while (has_removed) { /* some file systems skip entries when others are removed */
        int rc;

        has_removed = false;
        if (lseek(fd, 0, SEEK_SET) < 0)
            return -1;
        open_level(&l, fd, 0);
        while ((rc = read_entry(&l, ret)) > 0) {
            look_for_engine();
            rc = remove_one(fd, ret->name);
            if (rc != 0)
                return rc;
            has_removed = true;
        }
        if (rc < 0)
            return -1;
    }
    return 0;
}

struct place {
    dev_t dev;
    ino_t ino;
};

static bool is_at(int fd, const struct place *place)
{
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_dev == place->dev && st.st_ino == place->ino;
}

/* Goes to the directory @name in *@fd; where it is none any more, or gone, nowhere. */
static void enter(int *fd, const char *name, struct place *ret)
{
    struct stat st;
    int child = openat(*fd, name, DIRECTORY | O_NOFOLLOW);

    if (child < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
        fail(PATH_STEP_REMOVE, errno);
    if (child < 0)
        return;
    if (is_mount(*fd, name))
        fail(PATH_STEP_REMOVE, EBUSY);
    if (fstat(*fd, &st) < 0)
        fail(PATH_STEP_REMOVE, errno);
    *ret = (struct place){ st.st_dev, st.st_ino };
    close(*fd);
    *fd = child;
}

/* What is in the directory @path. */
static void empty(const char *path)
{
    struct place above[TREE_DEPTH_MAX];
    struct entry e;
    size_t n = 0;
    int fd = openat(AT_FDCWD, path, DIRECTORY | O_NOFOLLOW);

    if (fd < 0)
        fail(PATH_STEP_REMOVE, errno);
    for (;;) {
        int rc = remove_entries(fd, &e), before = fd;

        look_for_engine();
        if (rc < 0)
            fail(PATH_STEP_REMOVE, errno);
        if (rc > 0 && n == TREE_DEPTH_MAX)
            fail(PATH_STEP_REMOVE, ENAMETOOLONG);
        if (rc > 0) {
            enter(&fd, e.name, &above[n]);
            n += fd != before;
        } else if (n == 0) {
            close(fd);
            return;
        } else {
            fd = openat(before, "..", DIRECTORY);
            if (fd < 0 || !is_at(fd, &above[--n])) /* it was moved meanwhile */
                fail(PATH_STEP_REMOVE, fd < 0 ? errno : ESTALE);
            close(before);
        }
    }
}

static _Noreturn void remove_it(void)
{
    char path[PATH_TEXT_MAX];
    const char *name;
    size_t len = strlen(job.path);
    struct stat st;
    int rc;

    memcpy(path, job.path, len + 1);
    while (len > 1 && path[len - 1] == '/')
        path[--len] = '\0';
    name = strrchr(path, '/');
    name = name ? name + 1 : path;
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        fail(PATH_STEP_REMOVE, EINVAL);
    if (fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        fail(PATH_STEP_REMOVE, errno);
    if (is_mount(AT_FDCWD, path))
        fail(PATH_STEP_REMOVE, EBUSY);
    rc = remove_one(AT_FDCWD, path);
    for (int i = 0; rc > 0 && i < ATTEMPTS && (job.order.flags & PATH_TREE); i++) {
        empty(path);
        rc = remove_one(AT_FDCWD, path);
    }
    if (rc != 0)
        fail(PATH_STEP_REMOVE, rc > 0 ? ENOTEMPTY : errno);
    finish(NULL);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static int open_file(void)
{
    const uint32_t flags = job.order.flags;
    const int how = (flags & PATH_WRITE ? O_WRONLY : O_RDONLY) | (flags & PATH_NEW ? O_EXCL : 0) |
                    (flags & PATH_EMPTY ? O_TRUNC : 0) | (flags & PATH_APPEND ? O_APPEND : 0) |
                    O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

    return flags & PATH_CREATE ? openat(AT_FDCWD, job.path, how | O_CREAT, job.order.mode)
                               : openat(AT_FDCWD, job.path, how);
}

/* 0: it is a file. Nothing else is opened, as already that may have consequences. */
static int why_not_file(const struct stat *st)
{
    return S_ISREG(st->st_mode) ? 0 : S_ISDIR(st->st_mode) ? EISDIR : EINVAL;
}

static _Noreturn void open_it(void)
{
    struct stat st;
    int fd, why = 0;

    if (fstatat(AT_FDCWD, job.path, &st, 0) == 0)
        why = why_not_file(&st);
    if (why)
        fail(PATH_STEP_OPEN, why);
    fd = open_file();
    if (fd < 0 && errno == ENOENT && (job.order.flags & PATH_PARENTS) && (job.order.flags & PATH_CREATE)) {
        make_parents(job.path);
        fd = open_file();
    }
    if (fd < 0 || fstat(fd, &st) < 0)
        fail(PATH_STEP_OPEN, errno);
    why = why_not_file(&st);
    if (why)
        fail(PATH_STEP_OPEN, why);
    add_one(&st);
    finish(&fd);
}

static _Noreturn void open_directory(void)
{
    struct stat st;
    int fd = openat(AT_FDCWD, job.path, DIRECTORY);

    if (fd < 0 || fstat(fd, &st) < 0)
        fail(PATH_STEP_OPEN, errno);
    add_one(&st);
    finish(&fd);
}

/* --- the order ---------------------------------------------------------------------------------------------------- */

/* What follows the string at @text; NULL: it does not end before @end, or is too long for a path. */
static const char *skip_path(const char *text, const char *end)
{
    const char *nul = text && text < end ? memchr(text, '\0', (size_t)(end - text)) : NULL;

    return nul && nul - text < PATH_TEXT_MAX ? nul + 1 : NULL;
}

static bool read_order(const char *order, size_t len)
{
    const char *at = order + sizeof(job.order), *end = order + len;

    if (len < sizeof(job.order))
        return false;
    memcpy(&job.order, order, sizeof(job.order));
    job.path = at;
    at = skip_path(at, end);
    if (job.order.kind == PATH_RENAME) {
        job.new_path = at;
        at = skip_path(at, end);
    }
    return at == end && job.order.kind < PATH_KINDS && job.order.depth <= PATH_DEPTH_MAX;
}

_Noreturn void hutch_paths_serve(int control, const char *order, size_t len)
{
    static void (*const acts[])(void) = { [PATH_STAT] = look, [PATH_LIST] = list, [PATH_MAKE] = make,
                                          [PATH_RENAME] = rename_it, [PATH_REMOVE] = remove_it, [PATH_OPEN] = open_it,
                                          [PATH_WATCH] = open_directory };
    char packet[PATH_PACKET_MAX] __attribute__((aligned(16)));

    job.control = control;
    job.packet = packet;
    job.n_looks = LOOK_AFTER - 1; /* what was given up before it began is not begun */
    look_for_engine();
    begin_packet();
    umask(0);
    if (!read_order(order, len))
        fail(PATH_STEP_ORDER, EPROTO);
    acts[job.order.kind]();
    _exit(1);
}

void hutch_paths_refuse(int control, int errnum)
{
    struct path_said said = { .what = PATH_FAILED, .step = PATH_STEP_FORK, .errnum = errnum };

    hutch_fdpass_send(control, &said, sizeof(said), NULL, 0, 0);
}
