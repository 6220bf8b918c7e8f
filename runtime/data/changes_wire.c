#include "runtime/data/changes_wire.h"

#include "runtime/data/names.h"
#include "sandbox/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MAX_FILES (1u << 20)   /* of one list; collect_bounds has fewer */
#define MAX_BYTES (256u << 20) /* of one memory file */
#define N_LISTS   3            /* added, modified, deleted; a file_list has one */

/* A memory file is this, then @n_files records, each followed by its path and its mime type with a NUL each. */
struct head {
    uint64_t n_files[N_LISTS];
    uint64_t stripped, strip_failed, top_ino;
    int64_t taken_ns, newest_ns, top_ctime_ns;
    uint32_t is_truncated, is_changes;
};

struct record {
    uint64_t size, ino;
    int64_t mtime_ns, ctime_ns;
    uint32_t mode, type, path_len, mime_len;
};

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void write_record(FILE *f, const struct record *r, const char *path, const char *mime)
{
    fwrite(r, sizeof(*r), 1, f);
    fwrite(path, r->path_len + 1, 1, f);
    fwrite(mime, r->mime_len + 1, 1, f);
}

static void write_changes(FILE *f, const struct file_change_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct file_change *change = &list->items[i];
        const char *mime = change->mime ? change->mime : "";
        const struct record r = { .size = change->size,
                                  .mtime_ns = change->mtime_ns,
                                  .type = change->type,
                                  .path_len = (uint32_t)strlen(change->path),
                                  .mime_len = (uint32_t)strlen(mime) };

        write_record(f, &r, change->path, mime);
    }
}

static FILE *open_file(int *ret_fd, struct hutch_err *err)
{
    auto_fd fd = memfd_create("hutch-files", MFD_CLOEXEC), copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
    FILE *f = copy < 0 ? NULL : fdopen(copy, "w");

    if (!f) {
        hutch_err_set(err, errno, "make a list of files");
        return NULL;
    }
    hutch_fd_take(&copy);
    *ret_fd = hutch_fd_take(&fd);
    return f;
}

static int close_file(FILE *f, int *fd, struct hutch_err *err)
{
    bool has_failed = ferror(f);

    if (fclose(f) == 0 && !has_failed)
        return 0;
    hutch_fd_closep(fd);
    return hutch_err_set(err, ENOMEM, "write a list of files");
}

int hutch_file_list_store(const struct file_list *list, int *ret_fd, struct hutch_err *err)
{
    const struct head head = { .n_files = { list->n_files },
                               .top_ino = list->top.ino,
                               .taken_ns = list->taken_ns,
                               .newest_ns = list->newest_ns,
                               .top_ctime_ns = list->top.ctime_ns,
                               .is_truncated = list->truncated };
    FILE *f = open_file(ret_fd, err);

    if (!f)
        return -1;
    fwrite(&head, sizeof(head), 1, f);
    for (size_t i = 0; i < list->n_files; i++) {
        const struct file_seen *file = &list->files[i];
        const struct record r = { .size = file->size,
                                  .ino = file->ino,
                                  .mtime_ns = file->mtime_ns,
                                  .ctime_ns = file->ctime_ns,
                                  .mode = file->mode,
                                  .path_len = (uint32_t)strlen(file->path) };

        write_record(f, &r, file->path, "");
    }
    return close_file(f, ret_fd, err);
}

int hutch_file_changes_store(const struct file_changes *changes, int *ret_fd, struct hutch_err *err)
{
    const struct head head = { .n_files = { changes->added.n, changes->modified.n, changes->deleted.n },
                               .stripped = changes->stripped,
                               .strip_failed = changes->strip_failed,
                               .is_truncated = changes->truncated,
                               .is_changes = 1 };
    FILE *f = open_file(ret_fd, err);

    if (!f)
        return -1;
    fwrite(&head, sizeof(head), 1, f);
    write_changes(f, &changes->added);
    write_changes(f, &changes->modified);
    write_changes(f, &changes->deleted);
    return close_file(f, ret_fd, err);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

struct reader {
    char *bytes; /* owned */
    size_t len, at;
};
#define auto_reader __attribute__((cleanup(reader_done))) struct reader

static void reader_done(struct reader *r)
{
    free(r->bytes);
}

static int fail(struct hutch_err *err)
{
    return hutch_err_set(err, EPROTO, "a list of files is not one");
}

static const void *take(struct reader *r, size_t len)
{
    const void *at = r->bytes + r->at;

    if (len > r->len - r->at)
        return NULL;
    r->at += len;
    return at;
}

/* A text of @len bytes and its NUL. */
static const char *take_text(struct reader *r, size_t len)
{
    const char *text = take(r, len + 1);

    return text && strnlen(text, len + 1) == len ? text : NULL;
}

static int read_head(int fd, bool is_changes, struct reader *r, struct head *ret, struct hutch_err *err)
{
    const void *head;
    struct stat st;

    if (fstat(fd, &st) < 0)
        return hutch_err_set(err, errno, "look at a list of files");
    if (st.st_size < (off_t)sizeof(*ret) || st.st_size > MAX_BYTES)
        return fail(err);
    r->bytes = malloc((size_t)st.st_size);
    if (!r->bytes)
        return hutch_err_set(err, ENOMEM, "read a list of files");
    while (r->len < (size_t)st.st_size) {
        ssize_t n = TEMP_FAILURE_RETRY(pread(fd, r->bytes + r->len, (size_t)st.st_size - r->len, (off_t)r->len));

        if (n <= 0)
            return n < 0 ? hutch_err_set(err, errno, "read a list of files") : fail(err);
        r->len += (size_t)n;
    }
    head = take(r, sizeof(*ret));
    memcpy(ret, head, sizeof(*ret));
    if (ret->is_changes != is_changes || ret->is_truncated > 1)
        return fail(err);
    for (size_t i = 0; i < N_LISTS; i++)
        if (ret->n_files[i] > MAX_FILES || (i > 0 && !is_changes && ret->n_files[i] > 0))
            return fail(err);
    return 0;
}

static int read_record(struct reader *r, struct record *ret, struct collect_names **names, const char **ret_path,
                       const char **ret_mime, struct hutch_err *err)
{
    const void *record = take(r, sizeof(*ret));
    const char *path, *mime;

    if (!record)
        return fail(err);
    memcpy(ret, record, sizeof(*ret));
    if (ret->path_len == 0 || ret->path_len > COLLECT_MAX_PATH || ret->mime_len > COLLECT_MAX_PATH)
        return fail(err);
    path = take_text(r, ret->path_len);
    mime = path ? take_text(r, ret->mime_len) : NULL;
    if (!mime)
        return fail(err);
    *ret_path = hutch_names_keep(names, path, ret->path_len);
    if (ret->mime_len == 0)
        *ret_mime = NULL;
    else if (!*ret_mime || strcmp(*ret_mime, mime) != 0) /* mostly that of the file before */
        *ret_mime = hutch_names_keep(names, mime, ret->mime_len);
    return *ret_path && (ret->mime_len == 0 || *ret_mime) ? 0 : hutch_err_set(err, ENOMEM, "read a list of files");
}

int hutch_file_list_load(int fd, struct file_list *ret, struct hutch_err *err)
{
    struct file_list list = FILE_LIST_INIT;
    auto_reader r = { .bytes = NULL };
    const char *mime = NULL;
    struct record record;
    struct head head;

    if (read_head(fd, false, &r, &head, err) < 0)
        return -1;
    list.truncated = head.is_truncated;
    list.taken_ns = head.taken_ns;
    list.newest_ns = head.newest_ns;
    list.top.ino = head.top_ino;
    list.top.ctime_ns = head.top_ctime_ns;
    list.files = calloc(head.n_files[0] + 1, sizeof(*list.files));
    if (!list.files)
        return hutch_err_set(err, ENOMEM, "read a list of files");
    for (; list.n_files < head.n_files[0]; list.n_files++) {
        struct file_seen *file = &list.files[list.n_files];

        if (read_record(&r, &record, &list.names, &file->path, &mime, err) < 0) {
            hutch_file_list_done(&list);
            return -1;
        }
        file->size = record.size;
        file->ino = record.ino;
        file->mtime_ns = record.mtime_ns;
        file->ctime_ns = record.ctime_ns;
        file->mode = record.mode;
    }
    *ret = list;
    return 0;
}

static int read_changes(struct reader *r, uint64_t n, struct file_change_list *list, struct collect_names **names,
                        struct hutch_err *err)
{
    const char *mime = NULL;
    struct record record;

    if (n == 0)
        return 0;
    list->items = calloc(n, sizeof(*list->items));
    if (!list->items)
        return hutch_err_set(err, ENOMEM, "read a list of files");
    for (list->cap = n; list->n < n; list->n++) {
        struct file_change *change = &list->items[list->n];

        if (read_record(r, &record, names, &change->path, &mime, err) < 0)
            return -1;
        if (record.type >= FILE_TYPE_COUNT)
            return fail(err);
        change->size = record.size;
        change->mtime_ns = record.mtime_ns;
        change->type = (enum file_type)record.type;
        change->mime = mime;
    }
    return 0;
}

int hutch_file_changes_load(int fd, struct file_changes *ret, struct hutch_err *err)
{
    struct file_changes changes = FILE_CHANGES_INIT;
    auto_reader r = { .bytes = NULL };
    struct head head;

    if (read_head(fd, true, &r, &head, err) < 0)
        return -1;
    changes.truncated = head.is_truncated;
    changes.stripped = head.stripped;
    changes.strip_failed = head.strip_failed;
    if (read_changes(&r, head.n_files[0], &changes.added, &changes.names, err) < 0 ||
        read_changes(&r, head.n_files[1], &changes.modified, &changes.names, err) < 0 ||
        read_changes(&r, head.n_files[2], &changes.deleted, &changes.names, err) < 0) {
        hutch_file_changes_done(&changes);
        return -1;
    }
    *ret = changes;
    return 0;
}
