#include "rootfs/record.h"

#include "rootfs/digest.h"
#include "sandbox/fd.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#define READ_SIZE (1u << 20)
#define MAX_DEPTH 512
#define HEAD "hutch-tree 1\n"
#define TAIL "end "
/* type, mode, size and digest; path; link text */
#define LINE_SIZE (16 + 24 + DIGEST_HEX + 2 * PATH_MAX)

/* Goes through a tree in the order of a record and hands a line to @emit for each entry. */
struct scan {
    int (*emit)(struct scan *scan, const char *path, const char *line, struct hutch_err *err);
    void *emit_ctx;
    record_progress_fn *progress;
    void *ctx;
    struct digest digest;
    char *buffer;
    struct record_totals totals;
    char path[PATH_MAX], line[LINE_SIZE];
};

/* '/' sorts before every other byte of a name, so that a directory's entries follow it directly. */
static int compare_paths(const char *a, const char *b)
{
    for (;; a++, b++) {
        unsigned x = *a == '/' ? 1 : (unsigned char)*a, y = *b == '/' ? 1 : (unsigned char)*b;

        if (x != y)
            return x < y ? -1 : 1;
        if (x == 0)
            return 0;
    }
}

static int by_name(const void *a, const void *b)
{
    return compare_paths(*(char *const *)a, *(char *const *)b);
}

struct names {
    char **name; /* owned */
    size_t n, cap;
};

static void names_done(struct names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->name[i]);
    free(names->name);
}

/* The sorted names in the directory @fd, which is taken. */
static int read_names(int fd, struct names *ret, struct hutch_err *err)
{
    DIR *dir = fdopendir(fd);
    struct dirent *de;
    int rc = 0;

    if (!dir) {
        close(fd);
        return hutch_err_set(err, ENOMEM, "read a directory");
    }
    for (;;) {
        errno = 0;
        de = readdir(dir);
        if (!de) {
            rc = errno ? hutch_err_set(err, errno, "read a directory") : 0;
            break;
        }
        if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
            continue;
        if (ret->n == ret->cap) {
            size_t cap = ret->cap ? ret->cap * 2 : 32;
            char **bigger = reallocarray(ret->name, cap, sizeof(*bigger));

            if (!bigger) {
                rc = hutch_err_set(err, ENOMEM, "read a directory");
                break;
            }
            ret->name = bigger;
            ret->cap = cap;
        }
        ret->name[ret->n] = strdup(de->d_name);
        if (!ret->name[ret->n]) {
            rc = hutch_err_set(err, ENOMEM, "read a directory");
            break;
        }
        ret->n++;
    }
    closedir(dir);
    if (rc == 0 && ret->n > 0)
        qsort(ret->name, ret->n, sizeof(*ret->name), by_name);
    return rc;
}

static void clean(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

static int describe_file(struct scan *scan, int dirfd, const char *name, const struct stat *st, struct hutch_err *err)
{
    char hex[DIGEST_HEX + 1];
    auto_fd fd = -1;
    ssize_t n = 0;

    if (hutch_digest_start(&scan->digest, err) < 0)
        return -1;
    if (st->st_size > 0) { /* an empty file may be one that no user may open */
        fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0 && errno != EACCES) /* taken away since: a difference like others */
            return hutch_err_set(err, errno, "open '%s'", scan->path);
        while (fd >= 0 && (n = TEMP_FAILURE_RETRY(read(fd, scan->buffer, READ_SIZE))) > 0) {
            if (hutch_digest_update(&scan->digest, scan->buffer, (size_t)n, err) < 0)
                return -1;
            scan->totals.bytes += (uint64_t)n;
            if (scan->progress && scan->progress(scan->ctx, scan->totals.bytes) != 0)
                return hutch_err_set(err, ECANCELED, "interrupted");
        }
        if (n < 0)
            return hutch_err_set(err, errno, "read '%s'", scan->path);
    }
    if (hutch_digest_finish(&scan->digest, hex, err) < 0)
        return -1;
    snprintf(scan->line, sizeof(scan->line), "f %04o %lld %s %s", st->st_mode & 07777, (long long)st->st_size, hex,
             scan->path);
    return 0;
}

static int scan_dir(struct scan *scan, int fd, size_t path_len, unsigned depth, struct hutch_err *err);

static int scan_entry(struct scan *scan, int dirfd, const char *name, size_t path_len, unsigned depth,
                      struct hutch_err *err)
{
    char target[PATH_MAX];
    struct stat st;
    ssize_t n;
    int below;

    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return hutch_err_set(err, errno, "look at '%s'", scan->path);
    switch (st.st_mode & S_IFMT) {
    case S_IFREG:
        if (describe_file(scan, dirfd, name, &st, err) < 0)
            return -1;
        break;
    case S_IFLNK:
        n = readlinkat(dirfd, name, target, sizeof(target) - 1);
        if (n < 0)
            return hutch_err_set(err, errno, "read the link '%s'", scan->path);
        target[n] = '\0';
        clean(target);
        snprintf(scan->line, sizeof(scan->line), "l %s\t%s", scan->path, target);
        break;
    case S_IFDIR:
        snprintf(scan->line, sizeof(scan->line), "d %04o %s", st.st_mode & 07777, scan->path);
        break;
    default: /* an unpacked tree has none */
        snprintf(scan->line, sizeof(scan->line), "? %06o %s", st.st_mode, scan->path);
    }
    scan->totals.entries++;
    if (scan->emit(scan, scan->path, scan->line, err) < 0)
        return -1;
    if (!S_ISDIR(st.st_mode) || (st.st_mode & 0777) == 0)
        return 0;
    if (depth >= MAX_DEPTH)
        return hutch_err_set(err, 0, "'%.200s…' is too deep", scan->path);
    below = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below < 0 && errno == EACCES)
        return 0;
    if (below < 0)
        return hutch_err_set(err, errno, "open directory '%s'", scan->path);
    return scan_dir(scan, below, path_len, depth + 1, err);
}

/* Takes @fd. scan->path holds the directory's path, @path_len bytes. */
static int scan_dir(struct scan *scan, int fd, size_t path_len, unsigned depth, struct hutch_err *err)
{
    __attribute__((cleanup(names_done))) struct names names = { 0 };
    auto_fd dirfd = openat(fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (dirfd < 0) {
        close(fd);
        return hutch_err_set(err, errno, "open directory '%s'", scan->path);
    }
    if (read_names(fd, &names, err) < 0)
        return hutch_err_wrap(err, "'%s'", scan->path);
    for (size_t i = 0; i < names.n; i++) {
        int n =
            snprintf(scan->path + path_len, sizeof(scan->path) - path_len, "%s%s", path_len ? "/" : "", names.name[i]);

        if ((size_t)n >= sizeof(scan->path) - path_len)
            return hutch_err_set(err, ENAMETOOLONG, "'%.200s…'", scan->path);
        clean(scan->path + path_len);
        if (scan_entry(scan, dirfd, names.name[i], path_len + (size_t)n, depth, err) < 0)
            return -1;
        scan->path[path_len] = '\0';
    }
    return 0;
}

static int scan_tree(struct scan *scan, int root_dirfd, struct hutch_err *err)
{
    int fd = openat(root_dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc;

    if (fd < 0)
        return hutch_err_set(err, errno, "open the tree");
    scan->buffer = malloc(READ_SIZE);
    if (!scan->buffer) {
        close(fd);
        return hutch_err_set(err, ENOMEM, "read the tree");
    }
    rc = scan_dir(scan, fd, 0, 0, err);
    hutch_freep(&scan->buffer);
    hutch_digest_done(&scan->digest);
    return rc;
}

static int emit_line(struct scan *scan, const char *path, const char *line, struct hutch_err *err)
{
    (void)path;
    if (fputs(line, scan->emit_ctx) == EOF || fputc('\n', scan->emit_ctx) == EOF)
        return hutch_err_set(err, errno, "write the record of the tree");
    return 0;
}

int hutch_record_write(int dirfd, FILE *out, struct record_totals *ret, record_progress_fn *progress, void *ctx,
                       struct hutch_err *err)
{
    struct scan scan = { .emit = emit_line, .emit_ctx = out, .progress = progress, .ctx = ctx, .digest = DIGEST_INIT };

    if (fputs(HEAD, out) == EOF)
        return hutch_err_set(err, errno, "write the record of the tree");
    if (scan_tree(&scan, dirfd, err) < 0)
        return -1;
    if (fprintf(out, TAIL "%llu\n", (unsigned long long)scan.totals.entries) < 0 || fflush(out) == EOF)
        return hutch_err_set(err, errno, "write the record of the tree");
    *ret = scan.totals;
    return 0;
}

/* The record beside the scan: its current line, and what to tell about differences. */
struct comparison {
    FILE *in;
    char line[LINE_SIZE + 1]; /* the record's current one, without newline */
    char *path;               /* owned; the path in it */
    bool is_at_end;           /* the line is the last one */
    uint64_t n_lines, n_different;
    record_difference_fn *difference;
    void *ctx;
};

static int broken_record(struct hutch_err *err)
{
    return hutch_err_set(err, 0, "the record of the tree is broken");
}

/* Where the path begins in a line; it ends at a tab or at the end. */
static const char *find_path(const char *line)
{
    int fields = line[0] == 'd' || line[0] == '?' ? 2 : line[0] == 'f' ? 4 : line[0] == 'l' ? 1 : 0;

    if (fields == 0)
        return NULL;
    while (fields-- > 0) {
        line = strchr(line, ' ');
        if (!line)
            return NULL;
        line++;
    }
    return line;
}

static int next_line(struct comparison *c, struct hutch_err *err)
{
    const char *path;
    size_t n;

    if (!fgets(c->line, sizeof(c->line), c->in))
        return ferror(c->in) ? hutch_err_set(err, errno, "read the record of the tree") : broken_record(err);
    n = strlen(c->line); /* 0 of a line that begins with NUL; one with a NUL further on has no newline before it */
    if (n == 0 || c->line[n - 1] != '\n')
        return broken_record(err);
    c->line[n - 1] = '\0';
    if (strncmp(c->line, TAIL, strlen(TAIL)) == 0) {
        c->is_at_end = true;
        return strtoull(c->line + strlen(TAIL), NULL, 10) == c->n_lines ? 0 : broken_record(err);
    }
    c->n_lines++;
    path = find_path(c->line);
    if (!path)
        return broken_record(err);
    free(c->path);
    c->path = strndup(path, strcspn(path, "\t"));
    return c->path ? 0 : hutch_err_set(err, ENOMEM, "read the record of the tree");
}

static void differ(struct comparison *c, const char *what, const char *path)
{
    c->n_different++;
    if (c->difference)
        c->difference(c->ctx, what, path);
}

static int compare_line(struct scan *scan, const char *path, const char *line, struct hutch_err *err)
{
    struct comparison *c = scan->emit_ctx;

    while (!c->is_at_end && compare_paths(c->path, path) < 0) {
        differ(c, "missing", c->path);
        if (next_line(c, err) < 0)
            return -1;
    }
    if (c->is_at_end || compare_paths(c->path, path) > 0) {
        differ(c, "extra", path);
        return 0;
    }
    if (strcmp(c->line, line) != 0)
        differ(c, "changed", path);
    return next_line(c, err);
}

static void comparison_done(struct comparison *c)
{
    free(c->path);
}

FILE *hutch_record_open(int dirfd, const char *name, struct hutch_err *err)
{
    auto_fd fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;
    FILE *in;

    if (fd < 0 || fstat(fd, &st) < 0) {
        hutch_err_set(err, errno, "open '%s'", name);
        return NULL;
    }
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > RECORD_MAX_BYTES) {
        hutch_err_set(err, 0, S_ISREG(st.st_mode) ? "'%s' is too large for the record of a tree"
                                                  : "'%s' is not a regular file, as the record of a tree is", name);
        return NULL;
    }
    in = fdopen(fd, "r");
    if (!in) {
        hutch_err_set(err, errno, "open '%s'", name);
        return NULL;
    }
    hutch_fd_take(&fd);
    return in;
}

int hutch_record_verify(int dirfd, FILE *in, uint64_t *ret_n, record_difference_fn *difference,
                        record_progress_fn *progress, void *ctx, struct hutch_err *err)
{
    __attribute__((cleanup(comparison_done))) struct comparison c = { .in = in, .difference = difference, .ctx = ctx };
    struct scan scan = {
        .emit = compare_line, .emit_ctx = &c, .progress = progress, .ctx = ctx, .digest = DIGEST_INIT
    };
    char head[sizeof(HEAD)];

    if (!fgets(head, sizeof(head), in) || strcmp(head, HEAD) != 0)
        return broken_record(err);
    if (next_line(&c, err) < 0 || scan_tree(&scan, dirfd, err) < 0)
        return -1;
    while (!c.is_at_end) {
        differ(&c, "missing", c.path);
        if (next_line(&c, err) < 0)
            return -1;
    }
    *ret_n = c.n_different;
    return 0;
}
