#include "runtime/batch/source.h"

#include "sandbox/fd.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define CHUNK (1u << 18)

/* ---- what cannot be read twice ---- */

static int open_nameless(struct hutch_err *err)
{
    const char *dir = getenv("TMPDIR");
    char path[4096];
    int fd;

    if (!dir || dir[0] != '/')
        dir = "/tmp";
    fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    if ((size_t)snprintf(path, sizeof(path), "%s/hutch-batch.XXXXXX", dir) >= sizeof(path))
        return hutch_err_set(err, ENAMETOOLONG, "make a temporary file in '%s'", dir);
    fd = mkostemp(path, O_CLOEXEC); /* a file system without O_TMPFILE */
    if (fd < 0)
        return hutch_err_set(err, errno, "make a temporary file in '%s'", dir);
    unlink(path);
    return fd;
}

/* Copies @from to a file without a name, which takes its place. */
static int spool(int from, const char *name, int *ret_fd, struct hutch_err *err)
{
    auto_fd to = open_nameless(err);
    auto_free char *buf = malloc(CHUNK);
    uint64_t total = 0;

    if (to < 0)
        return hutch_err_wrap(err, "keep '%s' for reading it again", name);
    if (!buf)
        return hutch_err_set(err, ENOMEM, "read '%s'", name);
    for (;;) {
        ssize_t n = TEMP_FAILURE_RETRY(read(from, buf, CHUNK));

        if (n < 0)
            return hutch_err_set(err, errno, "read '%s'", name);
        if (n == 0)
            break;
        total += (uint64_t)n;
        if (total > BATCH_SPOOL_MAX)
            return hutch_err_set(err, EFBIG, "'%s' holds more than %llu bytes", name,
                                 (unsigned long long)BATCH_SPOOL_MAX);
        if (hutch_fd_write_all(to, buf, (size_t)n) < 0)
            return hutch_err_set(err, errno, "keep '%s' for reading it again in $TMPDIR or /tmp", name);
    }
    if (lseek(to, 0, SEEK_SET) < 0)
        return hutch_err_set(err, errno, "read '%s'", name);
    *ret_fd = hutch_fd_take(&to);
    return 0;
}

/* The program gzip and not libz: it is everywhere, its decoder runs in a process of its own, and hutch needs no library
 * for this alone. */
static int start_gzip(int from, const char *name, pid_t *ret_pid, int *ret_fd, struct hutch_err *err)
{
    static const char *const argv[] = { "gzip", "-dc", NULL };
    extern char **environ;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t all;
    int pipe_fds[2], rc;

    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return hutch_err_set(err, errno, "unpack '%s'", name);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigdefault(&attributes, &all);
    rc = posix_spawn_file_actions_adddup2(&actions, from, STDIN_FILENO);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
    if (rc == 0) /* what it would say there, we say */
        rc = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (rc == 0)
        rc = posix_spawnp(ret_pid, argv[0], &actions, &attributes, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(pipe_fds[1]);
    if (rc != 0) {
        close(pipe_fds[0]);
        return hutch_err_set(err, rc, "unpack '%s': execute 'gzip' (or unpack the file first)", name);
    }
    *ret_fd = pipe_fds[0];
    return 0;
}

static int gunzip(int from, const char *name, int *ret_fd, struct hutch_err *err)
{
    auto_fd out = -1;
    auto_fd unpacked = -1;
    pid_t pid;
    int status, rc;

    if (start_gzip(from, name, &pid, &out, err) < 0)
        return -1;
    rc = spool(out, name, &unpacked, err);
    if (rc < 0)
        kill(pid, SIGKILL);
    close(hutch_fd_take(&out));
    if (TEMP_FAILURE_RETRY(waitpid(pid, &status, 0)) < 0)
        return rc < 0 ? -1 : hutch_err_set(err, errno, "unpack '%s'", name);
    if (rc < 0)
        return -1;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return hutch_err_set(err, 0, "unpack '%s': gzip could not read all of it", name);
    *ret_fd = hutch_fd_take(&unpacked);
    return 0;
}

/* ---- the stream ---- */

/* Reads more behind what is in the buffer; what was passed already makes room. 0 at the end. */
static ssize_t fill(struct batch_source *s, size_t keep_from, struct hutch_err *err)
{
    ssize_t n;

    if (keep_from > 0) {
        memmove(s->buf, s->buf + keep_from, s->buf_len - keep_from);
        s->buf_len -= keep_from;
        s->buf_offset += keep_from;
        s->pos -= keep_from;
    }
    if (s->buf_room - s->buf_len < CHUNK) {
        size_t room = s->buf_room * 2 > s->buf_len + CHUNK ? s->buf_room * 2 : s->buf_len + CHUNK;
        char *buf = realloc(s->buf, room);

        if (!buf)
            return hutch_err_set(err, ENOMEM, "read '%s'", s->name);
        s->buf = buf;
        s->buf_room = room;
    }
    n = TEMP_FAILURE_RETRY(pread(s->fd, s->buf + s->buf_len, s->buf_room - s->buf_len,
                                 (off_t)(s->buf_offset + s->buf_len)));
    if (n < 0)
        return hutch_err_set(err, errno, "read '%s'", s->name);
    s->buf_len += (size_t)n;
    return n;
}

int hutch_batch_source_open(const char *path, struct batch_source *ret, struct hutch_err *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    struct batch_source s = BATCH_SOURCE_INIT;
    unsigned char magic[2];
    struct stat st;
    auto_fd fd = is_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

    if (fd < 0 || fstat(fd, &st) < 0)
        return hutch_err_set(err, errno, "open '%s'", path);
    if (S_ISDIR(st.st_mode))
        return hutch_err_set(err, EISDIR, "read '%s'", path);
    s.name = strdup(is_stdin ? "standard input" : path);
    if (!s.name)
        return hutch_err_set(err, ENOMEM, "read '%s'", path);
    /* A regular file may stand somewhere in its middle when a shell hands it in; all of it is meant, as by name. */
    if (!S_ISREG(st.st_mode)) {
        int copy = -1;

        if (spool(fd, s.name, &copy, err) < 0)
            goto failed;
        close(hutch_fd_take(&fd));
        fd = copy;
    }
    if (pread(fd, magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b) {
        int copy = -1;

        if (lseek(fd, 0, SEEK_SET) < 0) {
            hutch_err_set(err, errno, "read '%s'", s.name);
            goto failed;
        }
        if (gunzip(fd, s.name, &copy, err) < 0)
            goto failed;
        close(hutch_fd_take(&fd));
        fd = copy;
    }
    s.fd = hutch_fd_take(&fd);
    s.line = s.column = 1;
    *ret = s;
    return 0;
failed:
    free(s.name);
    return -1;
}

/* The byte at pos, or -1 at the end, or -2 with *err. */
static int peek(struct batch_source *s, struct hutch_err *err)
{
    if (s->pos == s->buf_len) {
        ssize_t n = fill(s, s->pos, err);

        if (n <= 0)
            return n < 0 ? -2 : -1;
    }
    return (unsigned char)s->buf[s->pos];
}

static void step(struct batch_source *s)
{
    s->column = s->buf[s->pos] == '\n' ? 1 : s->column + 1;
    s->line += s->buf[s->pos] == '\n';
    s->pos++;
}

static int skip_space(struct batch_source *s, struct hutch_err *err)
{
    int c;

    while ((c = peek(s, err)) == ' ' || c == '\t' || c == '\n' || c == '\r')
        step(s);
    return c;
}

static int refuse(const struct batch_source *s, struct hutch_err *err, const char *why)
{
    return hutch_err_set(err, 0, "'%s': line %" PRIu32 ", column %" PRIu32 ": %s", s->name, s->line, s->column, why);
}

/* Does the record that has come so far end here? In an array it ends where the brackets are in balance, else with the
 * line. */
struct extent {
    unsigned depth;
    bool in_string, after_backslash;
};

static bool is_end(struct extent *x, bool is_array, char c)
{
    if (!is_array)
        return c == '\n';
    if (x->in_string) {
        if (x->after_backslash)
            x->after_backslash = false;
        else if (c == '\\')
            x->after_backslash = true;
        else if (c == '"')
            x->in_string = false;
        return false;
    }
    if (c == '"')
        x->in_string = true;
    else if (c == '{' || c == '[')
        x->depth++;
    else if (c == '}' || c == ']')
        return --x->depth == 0;
    return false;
}

/* Before the first record: a byte order mark, and whether it is one array. */
static int begin(struct batch_source *s, struct hutch_err *err)
{
    int c;

    if (fill(s, 0, err) < 0)
        return -1;
    if (s->buf_len >= 3 && memcmp(s->buf, "\xef\xbb\xbf", 3) == 0)
        s->pos = 3;
    c = skip_space(s, err);
    if (c == '[') {
        s->is_array = true;
        step(s);
    }
    return c == -2 ? -1 : 0;
}

/* To the beginning of the next record. 1, or 0 when there is none. */
static int advance(struct batch_source *s, struct hutch_err *err)
{
    int c;

    if (s->buf_offset == 0 && s->buf_len == 0 && begin(s, err) < 0)
        return -1;
    c = skip_space(s, err);
    if (s->is_array && c == ',' && s->n_records > 0) {
        step(s);
        c = skip_space(s, err);
    } else if (s->is_array && c == ']') {
        step(s);
        c = skip_space(s, err);
        if (c >= 0)
            return refuse(s, err, "something follows after the end of the array");
        s->is_over = true;
        return c == -2 ? -1 : 0;
    } else if (s->is_array && s->n_records > 0 && c >= 0) {
        return refuse(s, err, "expected ',' or ']' between records");
    }
    if (c == -2)
        return -1;
    if (c == -1) {
        if (s->is_array)
            return refuse(s, err, "the file ends within the array");
        s->is_over = true;
        return 0;
    }
    if (c != '{')
        return refuse(s, err, "expected an object: a record of the form {…}");
    return 1;
}

int hutch_batch_source_next(struct batch_source *s, struct json_view *ret, struct batch_place *ret_place,
                            struct hutch_err *err)
{
    struct extent extent = { .depth = 0 };
    struct batch_place place;
    struct json_view value;
    char what[300];
    size_t len = 0;
    int rc = s->is_over ? 0 : advance(s, err);

    if (rc <= 0)
        return rc;
    place = (struct batch_place){ .offset = s->buf_offset + s->pos, .line = s->line, .column = s->column };
    for (bool is_ended = false; !is_ended;) {
        if (s->pos + len == s->buf_len) {
            size_t keep = s->pos;
            ssize_t n = fill(s, keep, err);

            if (n < 0)
                return -1;
            if (n == 0)
                break;
        }
        is_ended = is_end(&extent, s->is_array, s->buf[s->pos + len]);
        if (!is_ended || s->is_array)
            len++;
        if (len > BATCH_RECORD_MAX)
            return hutch_err_set(err, EFBIG, "'%s': the record in line %" PRIu32 " is longer than %u MiB", s->name,
                                 place.line, BATCH_RECORD_MAX >> 20);
    }
    place.len = (uint32_t)len;
    snprintf(what, sizeof(what), "'%s'", s->name);
    if (hutch_json_view_check(what, place.line, place.column, s->buf + s->pos, len, &value, err) < 0)
        return -1;
    for (size_t i = 0; i < len; i++)
        step(s);
    s->n_records++;
    *ret = value;
    *ret_place = place;
    return 1;
}

int hutch_batch_source_load(const struct batch_source *s, const struct batch_place *place, char **ret_text,
                            struct json_view *ret, struct hutch_err *err)
{
    auto_free char *text = malloc((size_t)place->len + 1);
    char what[300];
    size_t done = 0;

    if (!text)
        return hutch_err_set(err, ENOMEM, "read '%s' again", s->name);
    while (done < place->len) {
        ssize_t n = TEMP_FAILURE_RETRY(pread(s->fd, text + done, place->len - done, (off_t)(place->offset + done)));

        if (n < 0)
            return hutch_err_set(err, errno, "read '%s' again", s->name);
        if (n == 0)
            return hutch_err_set(err, 0, "'%s' became shorter while it was read", s->name);
        done += (size_t)n;
    }
    text[done] = '\0';
    snprintf(what, sizeof(what), "'%s' (which has changed since it was read first?)", s->name);
    if (hutch_json_view_check(what, place->line, place->column, text, done, ret, err) < 0)
        return -1;
    *ret_text = text;
    text = NULL;
    return 0;
}

void hutch_batch_source_done(struct batch_source *s)
{
    if (s->fd >= 0)
        close(s->fd);
    free(s->name);
    free(s->buf);
    *s = (struct batch_source)BATCH_SOURCE_INIT;
}
