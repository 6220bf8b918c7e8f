/* store_layers.h - extended images in the store: their layers, and what they were asked for.
 *
 * A layer is named by the digest of its record, which is of all that is in it, and not by what its builder says: a
 * layer that is in the store is that one, whoever made it. It goes with the last image that has it.
 *
 * A request is the text that says what was to be laid over which image. Its file has that, behind the digest of the
 * image that came of it, so that the same request is answered by reading one file. */
#ifndef HUTCH_STORE_LAYERS_H
#define HUTCH_STORE_LAYERS_H

#include "rootfs/extension.h"
#include "rootfs/store.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORE_MAX_LOCK (4u << 20)    /* bytes of a layer's lock.json and layer.json */
#define STORE_MAX_LAYER_ENTRIES 200000ull

/* The one process that answers the request @text holds this; the others wait. */
struct store_turn {
    const struct store *store;
    char name[64]; /* below tmp/ */
    int dirfd;     /* owned; holds the lock, -1 when unset */
};
#define STORE_TURN_INIT { .store = NULL, .dirfd = -1 }

/* @wait is called ten times a second while another process has it; not 0 ends the waiting.
 * Errors: ECANCELED (@wait ended it). */
int hutch_store_turn_begin(const struct store *store, const char *text, int (*wait)(void *ctx), void *ctx,
                           struct store_turn *ret, struct hutch_err *err);
void hutch_store_turn_end(struct store_turn *turn);

struct store_layer {
    char digest[DIGEST_HEX + 1];
    uint64_t bytes, entries;
    char *lock; /* owned; the text of lock.json, which is the archive's word */
};
void hutch_store_layer_done(struct store_layer *layer);

/* Unpacks the tar file @archive of @work: the file lock.json, and the directory tree, in which are directories of
 * @places alone, "usr" and such; NULL ends them. Everything is checked as an image's layer is: layer.h, tree.h.
 * @limits: max_bytes, max_entries and progress.
 * Errors: those of hutch_layer_unpack(); 0 (there is something else in it). */
int hutch_store_unpack_layer(const struct store_work *work, const char *archive, const char *const *places,
                             const struct store_unpack *limits, struct store_layer *ret, struct hutch_err *err);

/* Puts what hutch_store_unpack_layer() has made into the store, with @about as its layer.json, and the image that is
 * @extension, the last layer of which it is; @bytes and @entries are of all its layers. @name may be NULL; @request is
 * answered with it from now on. */
int hutch_store_add_extension(const struct store *store, const struct store_work *work,
                              const struct extension *extension, uint64_t bytes, uint64_t entries, const char *about,
                              const char *name, const char *request, char ret_hex[DIGEST_HEX + 1],
                              struct hutch_err *err);
/* Puts the image @extension into the store, whose base and layers are known, without a name. */
int hutch_store_keep_extension(const struct store *store, const struct store_work *work,
                               const struct extension *extension, char ret_hex[DIGEST_HEX + 1], struct hutch_err *err);
/* Gives a further name to the image @hex. */
int hutch_store_set_name(const struct store *store, const char *name, const char *hex, struct hutch_err *err);

/* The text of a layer's layer.json, which the caller frees; NULL when it cannot be read. */
char *hutch_store_read_layer(const struct store *store, const char *hex);
/* The same for a layer of whichever store, by the path of its tree: struct image_root. */
char *hutch_store_read_layer_of(const char *tree);

/* An image of the store that extends @hex: its first name, or its digest. False: there is none. */
bool hutch_store_find_extending(const struct store *store, const char *hex, bool only_named, char *ret, size_t size);

/* Calls @each with the digests and sizes of the layers that no image has, under the store's lock; with @is_dry they
 * stay. One that is in use stays. */
int hutch_store_sweep_layers(const struct store *store, bool is_dry,
                             void (*each)(void *ctx, const char *hex, uint64_t bytes), void *ctx,
                             struct hutch_err *err);
/* Removes the requests whose image is gone. */
int hutch_store_sweep_requests(const struct store *store, struct hutch_err *err);

/* Of all files in it; 0 when that cannot be told. */
uint64_t hutch_store_layer_bytes(const struct store *store, const char *hex);
/* The locked directory layers/@hex, whose record is the one that the layer is called after. */
int hutch_store_open_layer(const struct store *store, const char *hex, int *ret_fd, struct hutch_err *err);

#endif
