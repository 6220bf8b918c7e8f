#include "runtime/batch/output.h"

#include "sandbox/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define COPY_CHUNK (1u << 18)
#define FIRST_ROOM 1024

static int note_record(struct batch_output *out, const struct batch_record *record, struct hutch_err *err)
{
    if (out->n_records == out->records_room) {
        size_t room = out->records_room ? out->records_room * 2 : FIRST_ROOM;
        struct batch_record *records = realloc(out->records, room * sizeof(*records));

        if (!records)
            return hutch_err_set(err, ENOMEM, "remember %zu results", room);
        out->records = records;
        out->records_room = room;
    }
    out->records[out->n_records++] = *record;
    return 0;
}

/* ---- the file ---- */

static int compare_records(const void *a, const void *b)
{
    uint32_t x = ((const struct batch_record *)a)->item, y = ((const struct batch_record *)b)->item;

    return x < y ? -1 : x > y;
}

static int copy_record(int from, int to, const struct batch_record *record, const char *path, struct hutch_err *err)
{
    auto_free char *buf = malloc(COPY_CHUNK);

    if (!buf)
        return hutch_err_set(err, ENOMEM, "sort '%s'", path);
    for (uint32_t done = 0; done < record->len;) {
        size_t want = record->len - done < COPY_CHUNK ? record->len - done : COPY_CHUNK;
        ssize_t n = TEMP_FAILURE_RETRY(pread(from, buf, want, (off_t)(record->offset + done)));

        if (n <= 0)
            return hutch_err_set(err, n < 0 ? errno : EIO, "read '%s'", path);
        if (hutch_fd_write_all(to, buf, (size_t)n) < 0)
            return hutch_err_set(err, errno, "write to '%s'", path);
        done += (uint32_t)n;
    }
    return 0;
}

/* Puts a copy in the place of the file: the records that count, in input order when that is wanted. The old file stays
 * until the copy is complete, so an interruption here loses nothing. */
static int rewrite_file(struct batch_output *out, struct hutch_err *err)
{
    auto_free char *temporary = NULL;
    struct stat st;
    auto_fd to = -1;
    uint64_t offset = 0;

    if (asprintf(&temporary, "%s.XXXXXX", out->path) < 0) {
        temporary = NULL;
        return hutch_err_set(err, ENOMEM, "sort '%s'", out->path);
    }
    to = mkostemp(temporary, O_CLOEXEC | O_APPEND);
    if (to < 0)
        return hutch_err_set(err, errno, "make the file '%s'", temporary);
    if (flock(to, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
        hutch_err_set(err, errno, "another 'hutch batch' writes to '%s'", temporary);
        goto failed;
    }
    if (out->in_order && out->n_records)
        qsort(out->records, out->n_records, sizeof(*out->records), compare_records);
    for (size_t i = 0; i < out->n_records; i++)
        if (copy_record(out->fd, to, &out->records[i], out->path, err) < 0)
            goto failed;
    if (fstat(out->fd, &st) < 0 || fchmod(to, st.st_mode & 0777) < 0 || fsync(to) < 0 ||
        rename(temporary, out->path) < 0) {
        hutch_err_set(err, errno, "put '%s' in the place of '%s'", temporary, out->path);
        goto failed;
    }
    for (size_t i = 0; i < out->n_records; i++) {
        out->records[i].offset = offset;
        offset += out->records[i].len;
    }
    close(out->fd);
    out->fd = hutch_fd_take(&to);
    out->size = offset;
    return 0;
failed:
    unlink(temporary);
    return -1;
}

static int read_journal(struct batch_output *out, struct hutch_err *err)
{
    struct batch_journal journal;
    struct batch_record record;
    bool counts = false;
    int rc;

    if (hutch_batch_journal_open(out->fd, out->path, out->plan, &journal, err) < 0)
        return -1;
    while ((rc = hutch_batch_journal_next(&journal, &record, &counts, err)) > 0) {
        if (!counts)
            out->n_dropped++;
        else if (note_record(out, &record, err) < 0)
            break;
    }
    out->n_kept = out->n_records;
    out->size = journal.offset;
    out->is_torn = journal.is_torn;
    hutch_batch_journal_done(&journal);
    return rc == 0 ? 0 : -1;
}

static int open_file(struct batch_output *out, bool resume, struct hutch_err *err)
{
    struct stat st;

    out->fd = open(out->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
    if (out->fd < 0 || fstat(out->fd, &st) < 0)
        return hutch_err_set(err, errno, "open '%s' for the results", out->path);
    if (!S_ISREG(st.st_mode) && resume)
        return hutch_err_set(err, 0, "'%s' is not a regular file, so nothing can be resumed from it", out->path);
    if (!S_ISREG(st.st_mode))
        return 0;
    if (flock(out->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        return hutch_err_set(err, errno, "another 'hutch batch' writes to '%s'", out->path);
    if (!resume && st.st_size > 0)
        return hutch_err_say(err, EEXIST, "'%s' holds results (--resume goes on from there; or remove it)", out->path);
    if (!resume)
        return 0;
    if (read_journal(out, err) < 0)
        return -1;
    return out->is_torn || out->n_dropped ? rewrite_file(out, err) : 0;
}

int hutch_batch_output_open(const char *path, bool resume, bool in_order, struct batch_plan *plan,
                            struct batch_output *ret, struct hutch_err *err)
{
    struct batch_output out = BATCH_OUTPUT_INIT;

    out.plan = plan;
    out.in_order = in_order;
    out.held = calloc(plan->n_items + 1, sizeof(*out.held));
    out.held_len = calloc(plan->n_items + 1, sizeof(*out.held_len));
    if (!out.held || !out.held_len) {
        hutch_batch_output_done(&out);
        return hutch_err_set(err, ENOMEM, "remember %zu samples", plan->n_items);
    }
    if (!path || strcmp(path, "-") == 0) {
        out.fd = STDOUT_FILENO;
        if (resume) {
            hutch_batch_output_done(&out);
            return hutch_err_set(err, 0, "--resume needs the file that was written before: -o FILE");
        }
    } else {
        /* Through a link, if it is one: rename(2) would put a file in its place. */
        out.path = realpath(path, NULL);
        if (!out.path)
            out.path = strdup(path);
        if (!out.path)
            hutch_err_set(err, ENOMEM, "open '%s'", path);
        if (!out.path || open_file(&out, resume, err) < 0) {
            hutch_batch_output_done(&out);
            return -1;
        }
    }
    *ret = out;
    return 0;
}

/* ---- writing ---- */

static int write_record(struct batch_output *out, size_t item, const char *record, size_t len, struct hutch_err *err)
{
    struct batch_record written = { .item = (uint32_t)item, .len = (uint32_t)len, .offset = out->size };

    if (hutch_fd_write_all(out->fd, record, len) < 0)
        return hutch_err_set(err, errno, "write to '%s'", out->path ? out->path : "standard output");
    if (out->path && note_record(out, &written, err) < 0)
        return -1;
    out->size += len;
    return 0;
}

static int write_held(struct batch_output *out, size_t item, struct hutch_err *err)
{
    int rc = write_record(out, item, out->held[item], out->held_len[item], err);

    free(out->held[item]);
    out->held[item] = NULL;
    out->n_held--;
    return rc;
}

int hutch_batch_output_add(struct batch_output *out, size_t item, char *record, size_t len, struct hutch_err *err)
{
    if (!out->in_order) {
        int rc = write_record(out, item, record, len, err);

        free(record);
        return rc;
    }
    out->held[item] = record;
    out->held_len[item] = len;
    out->n_held++;
    for (; out->next < out->plan->n_items; out->next++) {
        if (out->held[out->next]) {
            if (write_held(out, out->next, err) < 0)
                return -1;
        } else if (!out->plan->items[out->next].is_done) {
            break;
        }
    }
    return 0;
}

int hutch_batch_output_finish(struct batch_output *out, bool is_complete, struct hutch_err *err)
{
    bool is_sorted = true;

    for (size_t i = 0; out->n_held && i < out->plan->n_items; i++)
        if (out->held[i] && write_held(out, i, err) < 0)
            return -1;
    for (size_t i = 1; i < out->n_records; i++)
        is_sorted = is_sorted && out->records[i - 1].item < out->records[i].item;
    return is_complete && out->in_order && !is_sorted ? rewrite_file(out, err) : 0;
}

void hutch_batch_output_done(struct batch_output *out)
{
    for (size_t i = 0; out->held && out->n_held && i < out->plan->n_items; i++)
        free(out->held[i]);
    free(out->held);
    free(out->held_len);
    free(out->records);
    free(out->path);
    if (out->fd >= 0 && out->fd != STDOUT_FILENO)
        close(out->fd);
    *out = (struct batch_output)BATCH_OUTPUT_INIT;
}
