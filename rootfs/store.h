/* store.h - the images on this machine: $HUTCH_HOME/images.
 *
 *     lock                 held (flock) while names and trees come and go
 *     names/NAME           "sha256:<digest>"; '/' in a name is '%' on disk
 *     trees/DIGEST/root    the root tree
 *     trees/DIGEST/record  what it consists of: record.h
 *     trees/DIGEST/image.json
 *     trees/DIGEST/config.json  image_config.h
 *     trees/DIGEST/extends  of an extended image, which has no root: extension.h
 *     layers/DIGEST/root   a layer of such images; DIGEST is that of its record
 *     layers/DIGEST/record
 *     layers/DIGEST/layer.json
 *     requests/KEY         what was asked for, and the image that was made of it: store_layers.h
 *     tmp/WORK             an unpacking or removal under way
 *
 * A tree appears and disappears by rename(2), whole. A process that works in tmp/WORK holds an exclusive flock(2) on
 * that directory; what is there without one is left over from a process that was killed, and hutch_store_open() removes
 * it. A sandbox holds a shared flock on trees/DIGEST, and on each of its layers, for as long as it runs, so that remove
 * can refuse. */
#ifndef HUTCH_STORE_H
#define HUTCH_STORE_H

#include "rootfs/digest.h"
#include "rootfs/extension.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORE_MAX_BYTES (16ull << 30) /* what one image may unpack to unless the caller says otherwise */
#define STORE_MAX_ENTRIES 1000000ull
#define STORE_MAX_REQUEST (256u << 10) /* bytes of what is kept of one: hutch_store_find_request() */

struct store {
    char *path;     /* owned; absolute path of the directory images */
    int dirfd;      /* owned */
    bool is_shared; /* another's: stores.h. Nothing is written, and what changes it fails */
};
#define STORE_INIT { .path = NULL, .dirfd = -1 }

/* What docker and others call images: letters, digits, and "._-/:@" after the first character. */
bool hutch_store_is_name(const char *name);

/* @home is the HUTCH_HOME directory; it is created when missing (0700). */
int hutch_store_open(const char *home, struct store *ret, struct hutch_err *err);
void hutch_store_done(struct store *store);

/* Finds the tree of an image, which has no root when it is an extended one. @name is an image's name ("python"; "x"
 * also finds "x:latest") or the beginning of its digest, with or without "sha256:". The caller frees *@ret_path
 * (absolute) and keeps *@ret_lockfd open for as long as the tree is in use. Errors: ENOENT (the message lists what
 * there is, and says how to build); EINVAL (a prefix of several digests). */
int hutch_store_find(const struct store *store, const char *name, char **ret_path, int *ret_lockfd,
                     struct hutch_err *err);

/* The image, in this store, that the request @text was answered with: store_layers.h. False: there is none. */
bool hutch_store_find_request(const struct store *store, const char *text, char ret_hex[DIGEST_HEX + 1]);

/* Called now and then. @doing is "unpack", "record" or "verify". Not 0 ends the work (ECANCELED). */
typedef int store_progress_fn(void *ctx, const char *doing, uint64_t done, uint64_t total);

struct store_unpack {
    const char *name;      /* NULL: what the archive says, if anything */
    const char *select, *platform; /* which image of several: struct oci_choice */
    const char *source;    /* where @archive was pulled from, for messages and the list; NULL: it is the user's own */
    uint64_t max_bytes;    /* 0: STORE_MAX_BYTES */
    uint64_t max_entries;  /* 0: STORE_MAX_ENTRIES */
    store_progress_fn *progress; /* may be NULL */
    void *ctx;
};

struct store_image {
    char digest[DIGEST_HEX + 1];
    char **names;      /* owned; sorted; may be none */
    size_t n_names;
    uint64_t bytes;    /* of all files in the tree, or in the layers */
    uint64_t entries;
    uint64_t devices;  /* nodes below /dev that were passed over */
    int64_t unpacked;  /* seconds since 1970 */
    char *source;      /* owned; where its tree was pulled from, NULL: it was unpacked from an archive */
    struct extension extension; /* with layers when it is an extended image; then the numbers are those of the layers */
};

/* Unpacks the image in @archive (source.h says what that may be). When its tree is there already, only the name is
 * set. @ret (may be NULL) is freed with hutch_store_image_done().
 * Errors: see layer.h, oci_image.h. The store is unchanged after each of them. */
int hutch_store_unpack(const struct store *store, const char *archive, const struct store_unpack *opts,
                       struct store_image *ret, struct hutch_err *err);

/* Sorted by name; the caller frees each image, and the array. */
int hutch_store_list(const struct store *store, struct store_image **ret, size_t *ret_n, struct hutch_err *err);
void hutch_store_image_done(struct store_image *image);
/* Fills @ret for the image @hex. */
int hutch_store_describe(const struct store *store, const char *hex, struct store_image *ret, struct hutch_err *err);

/* Called for each difference: @what is "missing", "extra" or "changed". */
typedef void store_difference_fn(void *ctx, const char *what, const char *path);
/* Compares an image's tree with what was unpacked. *@ret_n is the number of differences. */
int hutch_store_verify(const struct store *store, const char *name, uint64_t *ret_n, store_difference_fn *difference,
                       store_progress_fn *progress, void *ctx, struct hutch_err *err);

/* Removes a name, and the tree when no other name has it, with the layers that no other image has; given a digest, the
 * tree with all its names. Errors: ENOENT; EBUSY (a sandbox is running on it); 0 (another image extends it). */
int hutch_store_remove(const struct store *store, const char *name, struct hutch_err *err);

/* Called for what nothing names: an image, by its digest in hex, with the bytes that its files had; one that stays
 * since a sandbox runs on it; a name of an image that is gone; and a layer that no image has. */
enum store_pruned { STORE_PRUNED_IMAGE, STORE_PRUNED_BUSY, STORE_PRUNED_NAME, STORE_PRUNED_LAYER };
typedef void store_pruned_fn(void *ctx, enum store_pruned kind, const char *name, uint64_t bytes);
/* Removes them; with @is_dry it only tells. */
int hutch_store_prune(const struct store *store, bool is_dry, store_pruned_fn *tell, void *ctx, struct hutch_err *err);

/* A fresh directory below tmp/, for files on their way into the store; gone at the next start if we are killed. */
struct store_work {
    const struct store *store;
    char name[64];
    int dirfd;   /* owned; holds the lock */
};
#define STORE_WORK_INIT { .store = NULL, .dirfd = -1 }
int hutch_store_work_begin(const struct store *store, struct store_work *ret, struct hutch_err *err);
void hutch_store_work_end(struct store_work *work);

#endif
