/* layer.h - unpack one layer of an image: checks both digests, bounds what comes out, and hands each entry to the tree.
 * Sources: OCI image-spec 1.1, layer.md. */
#ifndef HUTCH_LAYER_H
#define HUTCH_LAYER_H

#include "sandbox/err.h"

#include <stdint.h>

struct oci_layer;
struct source;
struct tree;

/* What one image may still use, over all of its layers. However well a layer is compressed, this is where it ends. */
struct layer_budget {
    uint64_t bytes;   /* of the layers' tar streams, and of the files in them (a sparse file counts whole) */
    uint64_t entries;
    uint64_t max_bytes, max_entries; /* what they started with, for messages */
};

/* Called about every 256 KiB of stored bytes. Not 0 ends the work (ECANCELED). */
typedef int layer_progress_fn(void *ctx, uint64_t stored_bytes);

/* On failure the tree is half unpacked, and good for nothing but removal.
 * Errors: 0 (the archive is broken, hostile, or not what its digest says; a limit); ENOSPC, EDQUOT; ECANCELED. */
int hutch_layer_unpack(const struct source *source, const struct oci_layer *layer, struct tree *tree,
                       struct layer_budget *budget, layer_progress_fn *progress, void *ctx, struct hutch_err *err);

#endif
