#include "rootfs/source.h"

#include "sandbox/fd.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define BLOCK_SIZE (256 * 1024)
#define MAX_MEMBERS 20000 /* of the outer tar file; images have a few dozen */
#define MAX_LINKS 4

static void archive_freep(struct archive **a)
{
    archive_read_free(*a);
    *a = NULL;
}
#define auto_archive __attribute__((cleanup(archive_freep))) struct archive *

int hutch_source_filter(const void *data, size_t len)
{
    const unsigned char *p = data;

    if (len >= 2 && p[0] == 0x1f && p[1] == 0x8b)
        return ARCHIVE_FILTER_GZIP;
    /* A frame, or a skippable frame before it: RFC 8878. */
    if (len >= 4 && ((p[0] == 0x28 && p[1] == 0xb5 && p[2] == 0x2f && p[3] == 0xfd) ||
                     ((p[0] & 0xf0) == 0x50 && p[1] == 0x2a && p[2] == 0x4d && p[3] == 0x18)))
        return ARCHIVE_FILTER_ZSTD;
    return ARCHIVE_FILTER_NONE;
}

/* Opens the descriptor's content from its start with exactly one filter. libarchive left to itself would
 * also undo compression inside of compression, and so unfold a small file to any amount of work. */
static int open_archive(int fd, int filter, bool raw, const char *path, struct archive **ret, struct hutch_err *err)
{
    auto_archive a = archive_read_new();

    if (!a)
        return hutch_err_set(err, ENOMEM, "read '%s'", path);
    if ((raw ? archive_read_support_format_raw(a) : archive_read_support_format_tar(a)) != ARCHIVE_OK ||
        archive_read_append_filter(a, filter) != ARCHIVE_OK)
        return hutch_err_set(err, 0, "read '%s': %s", path, archive_error_string(a));
    if (lseek(fd, 0, SEEK_SET) < 0)
        return hutch_err_set(err, errno, "seek in '%s'", path);
    if (archive_read_open_fd(a, fd, BLOCK_SIZE) != ARCHIVE_OK)
        return hutch_err_set(err, 0, "read '%s': %s", path, archive_error_string(a));
    *ret = a;
    a = NULL;
    return 0;
}

/* Replaces *fd, a compressed file, by a nameless file with the content. */
static int decompress(int *fd, int filter, const char *path, int tmp_dirfd, uint64_t max_bytes, struct hutch_err *err)
{
    auto_archive a = NULL;
    auto_fd plain = -1;
    struct archive_entry *entry;
    uint64_t total = 0;
    int rc;

    if (open_archive(*fd, filter, true, path, &a, err) < 0)
        return -1;
    /* O_TMPFILE would do, but not every file system has it. */
    plain = openat(tmp_dirfd, "decompressed", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (plain < 0 || unlinkat(tmp_dirfd, "decompressed", 0) < 0)
        return hutch_err_set(err, errno, "create a temporary file to decompress '%s'", path);
    rc = archive_read_next_header(a, &entry);
    while (rc == ARCHIVE_OK) {
        const void *block;
        size_t len;
        la_int64_t offset;

        rc = archive_read_data_block(a, &block, &len, &offset);
        if (rc != ARCHIVE_OK)
            break;
        total += len;
        if (total > max_bytes)
            return hutch_err_set(err, EFBIG, "decompress '%s' (more than %llu bytes)", path,
                                 (unsigned long long)max_bytes);
        if (hutch_fd_write_all(plain, block, len) < 0)
            return hutch_err_set(err, errno, "decompress '%s' into the store", path);
    }
    if (rc != ARCHIVE_EOF)
        return hutch_err_set(err, 0, "decompress '%s': %s", path, archive_error_string(a));
    close(*fd);
    *fd = hutch_fd_take(&plain);
    return 0;
}

int hutch_source_open(const char *path, int tmp_dirfd, uint64_t max_bytes, struct source *ret, struct hutch_err *err)
{
    unsigned char magic[512] = { 0 };
    /* O_NONBLOCK: a FIFO of that name must not hold us up. */
    auto_fd fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    auto_free char *copy = strdup(path);
    struct stat st;
    ssize_t n;
    int filter;

    if (!copy)
        return hutch_err_set(err, ENOMEM, "open '%s'", path);
    if (fd < 0 || fstat(fd, &st) < 0)
        return hutch_err_set(err, errno, "open '%s'", path);
    if (!S_ISDIR(st.st_mode)) {
        if (!S_ISREG(st.st_mode))
            return hutch_err_set(err, 0, "'%s' is neither a file nor a directory", path);
        n = hutch_fd_read_full(fd, magic, sizeof(magic));
        if (n < 0)
            return hutch_err_set(err, errno, "read '%s'", path);
        filter = hutch_source_filter(magic, (size_t)n);
        if (filter != ARCHIVE_FILTER_NONE && decompress(&fd, filter, path, tmp_dirfd, max_bytes, err) < 0)
            return -1;
        if (filter != ARCHIVE_FILTER_NONE &&
            (lseek(fd, 0, SEEK_SET) < 0 || (n = hutch_fd_read_full(fd, magic, sizeof(magic))) < 0))
            return hutch_err_set(err, errno, "read '%s'", path);
        if (n == 0)
            return hutch_err_set(err, 0, "'%s' is empty", path);
        if (n == sizeof(magic) && !memcmp(magic, (const char[sizeof(magic)]){ 0 }, sizeof(magic))) /* its end marker */
            return hutch_err_set(err, 0, "'%s' is an empty tar archive, or none: it begins with 512 zeros", path);
        if (n < (ssize_t)sizeof(magic) || memcmp(magic + 257, "ustar", 5) != 0)
            return hutch_err_set(err, 0, "'%s' is not a tar archive", path);
    }
    *ret = (struct source){ .path = copy, .fd = hutch_fd_take(&fd), .is_dir = S_ISDIR(st.st_mode) };
    copy = NULL;
    return 0;
}

void hutch_source_done(struct source *source)
{
    hutch_freep(&source->path);
    source->path = NULL;
    hutch_fd_closep(&source->fd);
}

static int find_in_dir(const struct source *source, const char *name, struct member *ret, struct hutch_err *err)
{
    struct open_how how = { .flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
                            .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
    auto_fd fd = (int)syscall(SYS_openat2, source->fd, name, &how, sizeof(how));
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return hutch_err_set(err, errno, "open '%s' in '%s'", name, source->path);
    if (!S_ISREG(st.st_mode))
        return hutch_err_set(err, 0, "'%s' in '%s' is not a file", name, source->path);
    ret->block = malloc(BLOCK_SIZE);
    ret->name = strdup(name);
    if (!ret->block || !ret->name) {
        hutch_member_done(ret);
        return hutch_err_set(err, ENOMEM, "open '%s' in '%s'", name, source->path);
    }
    ret->fd = hutch_fd_take(&fd);
    ret->size = (uint64_t)st.st_size;
    return 0;
}

static const char *plain_name(const char *name)
{
    while (name && strncmp(name, "./", 2) == 0)
        name += 2;
    return name;
}

/* Writes the member that link @text of member @name stands for to @ret; false when that is outside. */
static bool resolve_link(const char *name, const char *text, char *ret, size_t size)
{
    const char *slash = strrchr(name, '/');
    size_t dir_len = slash ? (size_t)(slash - name) : 0;

    if (text[0] == '/')
        return false;
    while (strncmp(text, "../", 3) == 0) {
        if (dir_len == 0)
            return false;
        while (dir_len > 0 && name[dir_len - 1] != '/')
            dir_len--;
        if (dir_len > 0)
            dir_len--;
        text += 3;
    }
    if ((size_t)snprintf(ret, size, "%.*s%s%s", (int)dir_len, name, dir_len ? "/" : "", text) >= size)
        return false;
    return true;
}

/* One pass through the tar file. 0: @ret is at the member. 1: it is a link, @ret_link says to what. */
static int find_in_tar(const struct source *source, const char *name, struct member *ret, char *ret_link, size_t size,
                       struct hutch_err *err)
{
    auto_archive a = NULL;
    unsigned seen = 0;
    int rc;

    if (open_archive(source->fd, ARCHIVE_FILTER_NONE, false, source->path, &a, err) < 0)
        return -1;
    for (;;) {
        struct archive_entry *entry;
        const char *path, *link;

        rc = archive_read_next_header(a, &entry);
        if (rc == ARCHIVE_EOF)
            return hutch_err_set(err, ENOENT, "find '%s' in '%s'", name, source->path);
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
            return hutch_err_set(err, 0, "read '%s': %s", source->path, archive_error_string(a));
        if (++seen > MAX_MEMBERS)
            return hutch_err_set(err, 0, "'%s' has more than %d members", source->path, MAX_MEMBERS);
        path = plain_name(archive_entry_pathname(entry));
        if (!path || strcmp(path, name) != 0)
            continue;
        link = archive_entry_hardlink(entry);
        if (link) {
            if ((size_t)snprintf(ret_link, size, "%s", plain_name(link)) >= size)
                return hutch_err_set(err, 0, "'%s' in '%s' is a link with too long a target", name, source->path);
            return 1;
        }
        if (archive_entry_filetype(entry) == AE_IFLNK) {
            link = archive_entry_symlink(entry);
            if (!link || !resolve_link(name, link, ret_link, size))
                return hutch_err_set(err, 0, "'%s' in '%s' is a link that leads out of the archive", name,
                                     source->path);
            return 1;
        }
        if (archive_entry_filetype(entry) != AE_IFREG)
            return hutch_err_set(err, 0, "'%s' in '%s' is not a file", name, source->path);
        ret->name = strdup(name);
        if (!ret->name)
            return hutch_err_set(err, ENOMEM, "open '%s' in '%s'", name, source->path);
        ret->size = archive_entry_size(entry) > 0 ? (uint64_t)archive_entry_size(entry) : 0;
        ret->archive = a;
        a = NULL;
        return 0;
    }
}

int hutch_source_find(const struct source *source, const char *name, struct member *ret, struct hutch_err *err)
{
    char at[1024], next[1024];

    *ret = (struct member)MEMBER_INIT;
    if (source->is_dir)
        return find_in_dir(source, name, ret, err);
    if ((size_t)snprintf(at, sizeof(at), "%s", name) >= sizeof(at))
        return hutch_err_set(err, ENAMETOOLONG, "find '%.100s…' in '%s'", name, source->path);
    for (int links = 0; links <= MAX_LINKS; links++) {
        int rc = find_in_tar(source, at, ret, next, sizeof(next), err);

        if (rc <= 0)
            return rc;
        memcpy(at, next, sizeof(at));
    }
    return hutch_err_set(err, 0, "'%s' in '%s' is a link to a link to a link", name, source->path);
}

ssize_t hutch_member_read(struct member *member, const void **ret_block, struct hutch_err *err)
{
    la_int64_t offset;
    size_t len;
    ssize_t n;
    int rc;

    if (!member->archive) {
        n = TEMP_FAILURE_RETRY(read(member->fd, member->block, BLOCK_SIZE));
        if (n < 0)
            return hutch_err_set(err, errno, "read '%s'", member->name);
        *ret_block = member->block;
        return n;
    }
    do {
        rc = archive_read_data_block(member->archive, ret_block, &len, &offset);
    } while (rc == ARCHIVE_OK && len == 0);
    if (rc == ARCHIVE_EOF)
        return 0;
    if (rc != ARCHIVE_OK)
        return hutch_err_set(err, 0, "read '%s': %s", member->name, archive_error_string(member->archive));
    return (ssize_t)len;
}

int hutch_member_slurp(struct member *member, size_t max, char **ret_data, size_t *ret_len, struct hutch_err *err)
{
    auto_free char *data = NULL;
    size_t len = 0;

    if (member->size > max)
        return hutch_err_set(err, EFBIG, "read '%s' (the limit is %zu bytes)", member->name, max);
    data = malloc(max + 1);
    if (!data)
        return hutch_err_set(err, ENOMEM, "read '%s'", member->name);
    for (;;) {
        const void *block;
        ssize_t n = hutch_member_read(member, &block, err);

        if (n < 0)
            return -1;
        if (n == 0)
            break;
        if ((size_t)n > max - len)
            return hutch_err_set(err, EFBIG, "read '%s' (the limit is %zu bytes)", member->name, max);
        memcpy(data + len, block, (size_t)n);
        len += (size_t)n;
    }
    data[len] = '\0';
    *ret_data = data;
    data = NULL;
    *ret_len = len;
    return 0;
}

void hutch_member_done(struct member *member)
{
    archive_freep(&member->archive);
    hutch_fd_closep(&member->fd);
    hutch_freep(&member->block);
    hutch_freep(&member->name);
    member->block = member->name = NULL;
}
