#include "runtime/batch/source.h"

#include "runtime/batch/spool.h"
#include "sandbox/fd.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define READ_CHUNK (1u << 18)

static const char byte_order_mark[] = "\xef\xbb\xbf";

/* Reads more behind what is in the buffer; what was passed already makes room. 0 at the end. */
static ssize_t read_more(struct batch_source *s, size_t keep_from, struct hutch_err *err)
{
    ssize_t n;

    if (keep_from > 0) {
        memmove(s->buf, s->buf + keep_from, s->buf_len - keep_from);
        s->buf_len -= keep_from;
        s->buf_offset += keep_from;
        s->pos -= keep_from;
    }
    if (s->buf_room - s->buf_len < READ_CHUNK) {
        size_t room = s->buf_room * 2 > s->buf_len + READ_CHUNK ? s->buf_room * 2 : s->buf_len + READ_CHUNK;
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
    struct stat st;
    auto_fd fd = is_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

    if (fd < 0 || fstat(fd, &st) < 0)
        return hutch_err_set(err, errno, "open '%s'", path);
    if (S_ISDIR(st.st_mode))
        return hutch_err_set(err, EISDIR, "read '%s'", path);
    s.name = strdup(is_stdin ? "standard input" : path);
    if (!s.name)
        return hutch_err_set(err, ENOMEM, "read '%s'", path);
    s.fd = hutch_fd_take(&fd);
    if (hutch_batch_spool(&s.fd, s.name, err) < 0) {
        hutch_batch_source_done(&s);
        return -1;
    }
    s.line = s.column = 1;
    *ret = s;
    return 0;
}

enum { AT_END = -1, READ_FAILED = -2 };

/* The byte at pos, or AT_END, or READ_FAILED with *err. */
static int peek_byte(struct batch_source *s, struct hutch_err *err)
{
    if (s->pos == s->buf_len) {
        ssize_t n = read_more(s, s->pos, err);

        if (n <= 0)
            return n < 0 ? READ_FAILED : AT_END;
    }
    return (unsigned char)s->buf[s->pos];
}

static void step_byte(struct batch_source *s)
{
    char c = s->buf[s->pos];

    s->column = c == '\n' ? 1 : s->column + ((c & 0xc0) != 0x80); /* in characters, as the scanner counts them */
    s->line += c == '\n';
    s->pos++;
}

static int skip_space(struct batch_source *s, struct hutch_err *err)
{
    int c;

    while ((c = peek_byte(s, err)) == ' ' || c == '\t' || c == '\n' || c == '\r')
        step_byte(s);
    return c;
}

static int refuse_input(const struct batch_source *s, struct hutch_err *err, const char *why)
{
    return hutch_err_set(err, 0, "'%s': line %" PRIu32 ", column %" PRIu32 ": %s", s->name, s->line, s->column, why);
}

/* Does the record that has come so far end here? In an array it ends where the brackets are in balance, else with the
 * line. */
struct extent {
    unsigned depth;
    bool in_string, after_backslash;
};

static bool is_record_end(struct extent *x, bool is_array, char c)
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
static int begin_records(struct batch_source *s, struct hutch_err *err)
{
    int c;

    if (read_more(s, 0, err) < 0)
        return -1;
    if (s->buf_len >= strlen(byte_order_mark) && memcmp(s->buf, byte_order_mark, strlen(byte_order_mark)) == 0)
        s->pos = strlen(byte_order_mark);
    c = skip_space(s, err);
    if (c == '[') {
        s->is_array = true;
        step_byte(s);
    }
    return c == READ_FAILED ? -1 : 0;
}

/* To the beginning of the next record. 1, or 0 when there is none. */
static int find_record(struct batch_source *s, struct hutch_err *err)
{
    int c;

    if (s->buf_offset == 0 && s->buf_len == 0 && begin_records(s, err) < 0)
        return -1;
    c = skip_space(s, err);
    if (s->is_array && c == ',' && s->n_records > 0) {
        step_byte(s);
        c = skip_space(s, err);
    } else if (s->is_array && c == ']') {
        step_byte(s);
        c = skip_space(s, err);
        if (c >= 0)
            return refuse_input(s, err, "something follows after the end of the array");
        s->is_over = true;
        return c == READ_FAILED ? -1 : 0;
    } else if (s->is_array && s->n_records > 0 && c >= 0) {
        return refuse_input(s, err, "expected ',' or ']' between records");
    }
    if (c == READ_FAILED)
        return -1;
    if (c == AT_END) {
        if (s->is_array)
            return refuse_input(s, err, "the file ends within the array");
        s->is_over = true;
        return 0;
    }
    if (c != '{')
        return refuse_input(s, err, "expected an object: a record of the form {…}");
    return 1;
}

/* The bytes of the record that begins at pos; they are all in the buffer then. */
static int measure_record(struct batch_source *s, size_t *ret, struct hutch_err *err)
{
    struct extent extent = { .depth = 0 };
    size_t len = 0;

    for (bool is_ended = false; !is_ended;) {
        if (s->pos + len == s->buf_len) {
            ssize_t n = read_more(s, s->pos, err);

            if (n < 0)
                return -1;
            if (n == 0)
                break;
        }
        is_ended = is_record_end(&extent, s->is_array, s->buf[s->pos + len]);
        if (!is_ended || s->is_array)
            len++;
        if (len > BATCH_RECORD_MAX)
            return hutch_err_say(err, EFBIG, "'%s': the record in line %" PRIu32 " is longer than %u MiB", s->name,
                                 s->line, BATCH_RECORD_MAX >> 20);
    }
    *ret = len;
    return 0;
}

int hutch_batch_source_next(struct batch_source *s, struct json_view *ret, struct batch_place *ret_place,
                            struct hutch_err *err)
{
    char what[BATCH_WHERE_MAX];
    struct batch_place place;
    struct json_view value;
    size_t len = 0;
    int rc = s->is_over ? 0 : find_record(s, err);

    if (rc <= 0)
        return rc;
    if (measure_record(s, &len, err) < 0)
        return -1;
    place = (struct batch_place){ .offset = s->buf_offset + s->pos, .len = (uint32_t)len, .line = s->line,
                                  .column = s->column };
    snprintf(what, sizeof(what), "'%s'", s->name);
    if (hutch_json_view_check(what, place.line, place.column, s->buf + s->pos, len, &value, err) < 0)
        return -1;
    for (size_t i = 0; i < len; i++)
        step_byte(s);
    s->n_records++;
    *ret = value;
    *ret_place = place;
    return 1;
}

int hutch_batch_source_load(const struct batch_source *s, const struct batch_place *place, char **ret_text,
                            struct json_view *ret, struct hutch_err *err)
{
    auto_free char *text = malloc((size_t)place->len + 1);
    char what[BATCH_WHERE_MAX];
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
