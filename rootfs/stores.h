/* stores.h - the stores that an image is looked for in: that of hutch's home, and then those that $HUTCH_IMAGES names.
 *
 * HUTCH_IMAGES is a list of absolute paths with ':' between them, each the directory `images` of some home. They belong
 * to others: they are read, never written, and may lie on a file system that cannot be written at all. */
#ifndef HUTCH_STORES_H
#define HUTCH_STORES_H

#include "rootfs/image_root.h"
#include "rootfs/store.h"
#include "sandbox/err.h"

#define STORES_MAX_SHARED 16 /* paths in HUTCH_IMAGES */

/* Opens the store that has the image @name (as hutch_store_find() takes it): the first of them. @ret is closed with
 * hutch_store_done(). Errors: ENOENT, with a sentence that lists what all of them have; 0 (HUTCH_IMAGES is not what is
 * said above, or there is no store at a path of it that had to be looked at); those of hutch_store_open(). */
int hutch_stores_open(const char *home, const char *name, struct store *ret, struct hutch_err *err);

/* What the image @name is to one that extends it: its digest, and its base and layers, which for an image that extends
 * none are itself and none. Errors: those of hutch_stores_open(); 0 (the store has something that is none). */
int hutch_stores_read_extension(const char *home, const char *name, char ret_hex[DIGEST_HEX + 1],
                                struct extension *ret, struct hutch_err *err);

/* Calls @each with all of them, in that order, until it does not return 0. Returns that, or -1. */
typedef int stores_each_fn(void *ctx, const struct store *store, struct hutch_err *err);
int hutch_stores_each(const char *home, stores_each_fn *each, void *ctx, struct hutch_err *err);
/* Without the home's, which the others make when it is missing. */
int hutch_stores_each_shared(stores_each_fn *each, void *ctx, struct hutch_err *err);

/* The files of the image @name, which is hutch_store_find()'s, freed with hutch_image_root_done(). Of an extended image
 * the base and the layers are those of the store that has it or, where that lacks one, of the first that has it.
 * Errors: those of hutch_stores_open(); 0 (a base or a layer is nowhere). */
int hutch_stores_find(const char *home, const char *name, struct image_root *ret, struct hutch_err *err);

#endif
