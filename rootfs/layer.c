#include "rootfs/layer.h"

#include "rootfs/digest.h"
#include "sandbox/fd.h"
#include "rootfs/oci_image.h"
#include "rootfs/source.h"
#include "rootfs/targuard.h"
#include "rootfs/tree.h"

#include <archive.h>
#include <archive_entry.h>
#include <locale.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_SHOWN 100 /* bytes of a name in a message, which has to hold the reason too */

/* One layer on its way through:
 *
 *   stored bytes ──> digest ──> decompression ──> diff id, byte limit, tar guard ──> tar entries ──> tree
 *   (read_stored)               (outer archive)   (read_plain)                       (inner archive)
 */
struct stream {
    struct member member;
    struct archive *outer, *inner;
    struct digest stored, plain;
    struct targuard guard;
    uint64_t stored_bytes;
    struct layer_budget *budget;
    layer_progress_fn *progress;
    void *ctx;
    const void *first; /* the first block, looked at before decompression was chosen; NULL once it was handed on */
    size_t first_len;
    struct hutch_err err; /* of our own side of a callback: libarchive carries only a message */
    bool has_failed;
};

static void stream_done(struct stream *s)
{
    archive_read_free(s->inner);
    archive_read_free(s->outer);
    hutch_member_done(&s->member);
    hutch_digest_done(&s->stored);
    hutch_digest_done(&s->plain);
    hutch_targuard_done(&s->guard);
}

static int keep_archive_error(struct stream *s, struct archive *a)
{
    s->has_failed = true;
    archive_set_error(a, s->err.errnum ? s->err.errnum : EINVAL, "%s", s->err.msg);
    return ARCHIVE_FATAL;
}

static ssize_t take_stored(struct stream *s, const void **ret)
{
    ssize_t n = hutch_member_read(&s->member, ret, &s->err);

    if (n <= 0)
        return n;
    s->stored_bytes += (uint64_t)n;
    if (s->progress && s->progress(s->ctx, s->stored_bytes) != 0)
        return hutch_err_set(&s->err, ECANCELED, "interrupted");
    return hutch_digest_update(&s->stored, *ret, (size_t)n, &s->err) < 0 ? -1 : n;
}

static la_ssize_t read_stored(struct archive *a, void *ctx, const void **ret)
{
    struct stream *s = ctx;
    ssize_t n;

    if (s->first) {
        *ret = s->first;
        s->first = NULL;
        return (la_ssize_t)s->first_len;
    }
    n = take_stored(s, ret);
    return n < 0 ? keep_archive_error(s, a) : n;
}

static int over_budget(const struct stream *s, struct hutch_err *err)
{
    return hutch_err_set(err, 0, "the image unpacks to more than %llu bytes (--max-size allows more)",
                         (unsigned long long)s->budget->max_bytes);
}

static ssize_t take_plain(struct stream *s, const void **ret)
{
    la_int64_t offset;
    size_t len;
    int rc;

    do {
        rc = archive_read_data_block(s->outer, ret, &len, &offset);
    } while (rc == ARCHIVE_OK && len == 0);
    if (rc == ARCHIVE_EOF)
        return 0;
    if (rc != ARCHIVE_OK) {
        if (!s->has_failed)
            hutch_err_set(&s->err, 0, "decompress: %s", archive_error_string(s->outer));
        return -1;
    }
    if (len > s->budget->bytes)
        return over_budget(s, &s->err);
    s->budget->bytes -= len;
    if (hutch_digest_update(&s->plain, *ret, len, &s->err) < 0 ||
        hutch_targuard_feed(&s->guard, *ret, len, &s->err) < 0)
        return -1;
    return (ssize_t)len;
}

static la_ssize_t read_plain(struct archive *a, void *ctx, const void **ret)
{
    struct stream *s = ctx;
    ssize_t n = take_plain(s, ret);

    return n < 0 ? keep_archive_error(s, a) : n;
}

/* Opens both archives. One filter, chosen by the first bytes: libarchive left to itself would also undo compression
 * inside of compression, and so turn a small layer into any amount of work. */
static int stream_open(struct stream *s, struct hutch_err *err)
{
    struct archive_entry *entry;
    ssize_t n;
    int rc;

    n = take_stored(s, &s->first);
    if (n < 0) {
        *err = s->err;
        return -1;
    }
    s->first_len = (size_t)n;
    s->outer = archive_read_new();
    s->inner = archive_read_new();
    if (!s->outer || !s->inner || hutch_targuard_open(&s->guard, err) < 0)
        return hutch_err_set(err, ENOMEM, "read a layer");
    if (archive_read_support_format_raw(s->outer) != ARCHIVE_OK ||
        archive_read_support_format_empty(s->outer) != ARCHIVE_OK ||
        archive_read_append_filter(s->outer, hutch_source_filter(s->first, s->first_len)) != ARCHIVE_OK ||
        archive_read_support_format_tar(s->inner) != ARCHIVE_OK ||
        archive_read_support_format_empty(s->inner) != ARCHIVE_OK ||
        archive_read_append_filter(s->inner, ARCHIVE_FILTER_NONE) != ARCHIVE_OK)
        return hutch_err_set(err, 0, "this libarchive reads no tar, gzip or zstd");
    rc = archive_read_open2(s->outer, s, NULL, read_stored, NULL, NULL);
    if (rc == ARCHIVE_OK)
        rc = archive_read_next_header(s->outer, &entry);
    if (rc != ARCHIVE_OK && rc != ARCHIVE_EOF) {
        if (!s->has_failed)
            return hutch_err_set(err, 0, "decompress: %s", archive_error_string(s->outer));
        *err = s->err;
        return -1;
    }
    if (archive_read_open2(s->inner, s, NULL, read_plain, NULL, NULL) != ARCHIVE_OK) {
        if (!s->has_failed && s->err.msg[0] == '\0')
            return hutch_err_set(err, 0, "not a tar stream: %s", archive_error_string(s->inner));
        *err = s->err;
        return -1;
    }
    return 0;
}

/* What libarchive or one of our callbacks says went wrong. */
static int stream_failed(const struct stream *s, struct hutch_err *err)
{
    if (s->has_failed) {
        *err = s->err;
        return -1;
    }
    return hutch_err_set(err, 0, "%s",
                         archive_error_string(s->inner) ? archive_error_string(s->inner) : "broken tar stream");
}

static int write_content(struct stream *s, int fd, uint64_t size, struct hutch_err *err)
{
    const void *block;
    la_int64_t offset;
    size_t len;
    int rc;

    while ((rc = archive_read_data_block(s->inner, &block, &len, &offset)) == ARCHIVE_OK) {
        if (offset < 0 || (uint64_t)offset > size || len > size - (uint64_t)offset)
            return hutch_err_set(err, 0, "more content than its header says");
        if (len > 0 && (lseek(fd, offset, SEEK_SET) < 0 || hutch_fd_write_all(fd, block, len) < 0))
            return hutch_err_set(err, errno, "write");
    }
    if (rc != ARCHIVE_EOF)
        return stream_failed(s, err);
    if (ftruncate(fd, (off_t)size) < 0) /* a hole at the end */
        return hutch_err_set(err, errno, "set the size to %llu", (unsigned long long)size);
    return 0;
}

static int add_file(struct stream *s, struct archive_entry *entry, const char *path, const struct tree_meta *meta,
                    struct tree *tree, struct hutch_err *err)
{
    la_int64_t size = archive_entry_size(entry);
    auto_fd fd = -1;

    /* The content was charged as it came out of the decompression; holes of a sparse file were not. */
    if (size < 0 || (uint64_t)size > s->budget->max_bytes)
        return over_budget(s, err);
    if (archive_entry_sparse_count(entry) > 0) {
        if ((uint64_t)size > s->budget->bytes)
            return over_budget(s, err);
        s->budget->bytes -= (uint64_t)size;
    }
    if (hutch_tree_add_file(tree, path, meta, &fd, err) < 0)
        return -1;
    if (fd < 0) /* not for the sandbox's user to read */
        return 0;
    if (write_content(s, fd, (uint64_t)size, err) < 0)
        return -1;
    return hutch_tree_end_file(fd, meta, err);
}

static int add_entry(struct stream *s, struct archive_entry *entry, const char *path, struct tree *tree,
                     struct hutch_err *err)
{
    struct tree_meta meta = {
        .mode = archive_entry_perm(entry) & 07777,
        .uid = (uid_t)archive_entry_uid(entry),
        .gid = (gid_t)archive_entry_gid(entry),
        .mtime = archive_entry_mtime(entry),
    };
    const char *target = archive_entry_hardlink(entry);

    if (hutch_tree_is_whiteout(path))
        return hutch_tree_whiteout(tree, path, err);
    if (target)
        return hutch_tree_add_hardlink(tree, path, target, err);
    switch (archive_entry_filetype(entry)) {
    case AE_IFDIR:
        return hutch_tree_add_dir(tree, path, &meta, err);
    case AE_IFREG:
        return add_file(s, entry, path, &meta, tree, err);
    case AE_IFLNK:
        target = archive_entry_symlink(entry);
        if (!target)
            return hutch_err_set(err, 0, "a symbolic link without a text");
        return hutch_tree_add_symlink(tree, path, target, &meta, err);
    case AE_IFCHR:
    case AE_IFBLK:
        return hutch_tree_pass_device(tree, path, err);
    case AE_IFIFO:
        return hutch_err_set(err, 0, "a FIFO; an image has no use for one");
    default:
        return hutch_err_set(err, 0, "neither file, directory nor link");
    }
}

static int add_entries(struct stream *s, struct tree *tree, struct hutch_err *err)
{
    for (;;) {
        struct archive_entry *entry;
        const char *path;
        int rc = archive_read_next_header(s->inner, &entry);

        if (rc == ARCHIVE_EOF)
            return 0;
        /* A warning is about an attribute that is not used here, or about a name, which is then NULL. */
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
            return stream_failed(s, err);
        path = archive_entry_pathname(entry);
        if (!path)
            return hutch_err_set(err, 0, "an entry whose name is not valid UTF-8");
        if (s->budget->entries == 0)
            return hutch_err_set(err, 0, "the image has more than %llu entries (--max-entries allows more)",
                                 (unsigned long long)s->budget->max_entries);
        s->budget->entries--;
        if (add_entry(s, entry, path, tree, err) < 0) {
            bool is_full = err->errnum == ENOSPC || err->errnum == EDQUOT;

            return hutch_err_wrap(err, "entry '%.*s%s'%s", MAX_SHOWN, path, strlen(path) > MAX_SHOWN ? "..." : "",
                                  is_full ? " (the store needs more room)" : "");
        }
    }
}

/* Whatever follows the end of the archive is part of both digests. */
static int drain(struct stream *s, struct hutch_err *err)
{
    const void *block;
    ssize_t n;

    while ((n = take_plain(s, &block)) > 0)
        continue;
    while (n == 0 && (n = take_stored(s, &block)) > 0)
        n = 0;
    if (n < 0)
        *err = s->err;
    return n < 0 ? -1 : 0;
}

static int check_digests(struct stream *s, const struct oci_layer *layer, struct hutch_err *err)
{
    char hex[DIGEST_HEX + 1];

    if (hutch_digest_finish(&s->stored, hex, err) < 0)
        return -1;
    if (layer->digest[0] && strcmp(hex, layer->digest) != 0)
        return hutch_err_set(err, 0, "it has the digest sha256:%s, not the sha256:%s that the manifest names", hex,
                             layer->digest);
    if (hutch_digest_finish(&s->plain, hex, err) < 0)
        return -1;
    if (strcmp(hex, layer->diff_id) != 0)
        return hutch_err_set(err, 0,
                             "its content has the digest sha256:%s, not the sha256:%s that the configuration names",
                             hex, layer->diff_id);
    return 0;
}

static int unpack_stream(struct stream *s, const struct source *source, const struct oci_layer *layer,
                         struct tree *tree, struct hutch_err *err)
{
    if (hutch_source_find(source, layer->member, &s->member, err) < 0)
        return -1;
    if (layer->digest[0] && s->member.size != layer->size)
        return hutch_err_set(err, 0, "it has %llu bytes, not the %llu that the manifest names",
                             (unsigned long long)s->member.size, (unsigned long long)layer->size);
    if (hutch_digest_start(&s->stored, err) < 0 || hutch_digest_start(&s->plain, err) < 0 || stream_open(s, err) < 0)
        return -1;
    hutch_tree_start_layer(tree);
    if (add_entries(s, tree, err) < 0 || drain(s, err) < 0)
        return -1;
    return check_digests(s, layer, err);
}

int hutch_layer_unpack(const struct source *source, const struct oci_layer *layer, struct tree *tree,
                       struct layer_budget *budget, layer_progress_fn *progress, void *ctx, struct hutch_err *err)
{
    struct stream s = { .member = MEMBER_INIT, .stored = DIGEST_INIT, .plain = DIGEST_INIT, .budget = budget,
                        .progress = progress, .ctx = ctx };
    /* libarchive converts names from UTF-8 to the locale's bytes; in the C locale it would lose most of them. */
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    locale_t before = utf8 ? uselocale(utf8) : (locale_t)0;
    int rc = unpack_stream(&s, source, layer, tree, err);

    if (utf8) {
        uselocale(before);
        freelocale(utf8);
    }
    stream_done(&s);
    if (rc < 0)
        return hutch_err_wrap(err, "layer '%s'", layer->member);
    return 0;
}
