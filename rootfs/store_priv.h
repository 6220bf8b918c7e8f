/* store_priv.h - what the parts of the store share: store.c finds images, store_list.c lists them, store_images.c
 * makes, checks and removes them. The first two are apart because they are in the program of `hutch run`, which must
 * not load what only the third needs (libarchive, libcrypto and what those bring along: 3 ms). */
#ifndef HUTCH_STORE_PRIV_H
#define HUTCH_STORE_PRIV_H

#include "rootfs/store.h"

#include <fcntl.h>

#define STORE_MAX_NAME 200
#define STORE_MAX_SOURCE 1024 /* bytes of where an image was pulled from */

static inline int hutch_store_open_dir(int dirfd, const char *name)
{
    return openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* @path: the directory images of another's home. Nothing is made or swept. */
int hutch_store_open_shared(const char *path, struct store *ret, struct hutch_err *err);
int hutch_store_dup(const struct store *store, struct store *ret, struct hutch_err *err);

/* The lock on the whole store: flock(2) with @operation. *ret_fd is the lock. */
int hutch_store_lock(const struct store *store, int operation, int *ret_fd, struct hutch_err *err);

/* As on disk. No name has a '%'. */
void hutch_store_encode_name(const char *name, char ret[STORE_MAX_NAME + 1]);
/* False for what is no name: another's store may have anything, and a name is shown at terminals. */
bool hutch_store_decode_name(const char *entry, char ret[STORE_MAX_NAME + 1]);
/* The digest that a name, as on disk, stands for. False when there is none, or its tree is gone. */
bool hutch_store_read_name(const struct store *store, const char *file, char ret_hex[DIGEST_HEX + 1]);

/* Calls @each with the sorted entries of a directory of the store. */
int hutch_store_each_entry(const struct store *store, const char *dir, void (*each)(void *ctx, const char *entry),
                           void *ctx, struct hutch_err *err);

/* Adds the names of the images to @text, with ", " between them, as far as there is room. */
int hutch_store_append_names(const struct store *store, char *text, size_t size, struct hutch_err *err);

bool hutch_store_has_tree(const struct store *store, const char *hex);
/* What @name stands for. @ret_file is the name as on disk, "" when it was a digest. */
int hutch_store_resolve(const struct store *store, const char *name, char ret_hex[DIGEST_HEX + 1],
                        char ret_file[STORE_MAX_NAME + 1], struct hutch_err *err);
/* Opens trees/@hex and locks it. Errors: EBUSY (with LOCK_NB); ENOENT (removed while we waited for the lock). */
int hutch_store_lock_tree(const struct store *store, const char *hex, int operation, int *ret_fd,
                          struct hutch_err *err);

/* The caller holds the store's lock. */
int hutch_store_write_name(const struct store *store, const char *name, const char *hex, struct hutch_err *err);

/* A layer's root tree, as hutch_store_find() finds an image's. Errors: ENOENT. */
int hutch_store_find_layer(const struct store *store, const char *hex, char **ret_path, int *ret_lockfd,
                           struct hutch_err *err);
int hutch_store_lock_layer(const struct store *store, const char *hex, int operation, int *ret_fd,
                           struct hutch_err *err);

#define STORE_REQUEST_NAME 33
void hutch_store_name_request(const char *text, char ret[STORE_REQUEST_NAME]);

/* Size, entries, time of unpacking and source, for people; a file that is not readable leaves them 0. */
void hutch_store_read_numbers(int tree_fd, struct store_image *image);

#endif
