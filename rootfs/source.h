/* source.h - an image on disk: a tar file (OCI image layout, or what `docker save` writes), itself possibly
 * compressed, or a directory with an OCI image layout. Finds members by name and reads them.
 *
 * A tar file is searched from its start for each member: there are few, and seeking past contents is cheap. Two
 * members of one source are never read at the same time. */
#ifndef HUTCH_SOURCE_H
#define HUTCH_SOURCE_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct archive;

struct source {
    char *path;  /* owned; for messages */
    int fd;      /* owned; the tar file, or the directory */
    bool is_dir;
};
#define SOURCE_INIT { .path = NULL, .fd = -1 }

struct member {
    struct archive *archive; /* owned; of a tar file */
    int fd;                  /* owned; of a directory */
    char *block;             /* owned; what was read from fd */
    char *name;              /* owned; for messages */
    uint64_t size;           /* bytes */
};
#define MEMBER_INIT { .archive = NULL, .fd = -1, .block = NULL, .name = NULL }

/* A compressed tar file is first unpacked into a file in @tmp_dirfd that has no name any more, at most @max_bytes of
 * it. Errors: those of open(2); 0 (not a tar file); EFBIG; ENOSPC. */
int hutch_source_open(const char *path, int tmp_dirfd, uint64_t max_bytes, struct source *ret, struct hutch_err *err);
void hutch_source_done(struct source *source);

/* @name is relative, without "." or ".." components. Links inside a tar file, by which `docker save` shares
 * layers, are followed inside it. Errors: ENOENT (no such member); 0 (not a file, broken archive). */
int hutch_source_find(const struct source *source, const char *name, struct member *ret, struct hutch_err *err);
/* The next piece of the content, valid until the next call. Its length; 0 at the end; -1 with @err. */
ssize_t hutch_member_read(struct member *member, const void **ret_block, struct hutch_err *err);
/* The whole content, NUL-terminated, freed by the caller. Errors: EFBIG above @max. */
int hutch_member_slurp(struct member *member, size_t max, char **ret_data, size_t *ret_len, struct hutch_err *err);
void hutch_member_done(struct member *member);

/* Which compression the first bytes of @data speak of: ARCHIVE_FILTER_GZIP, _ZSTD or _NONE. */
int hutch_source_filter(const void *data, size_t len);

#endif
