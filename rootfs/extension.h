/* extension.h - an image that is another one with layers over it: trees/DIGEST/extends in a store, and no root tree.
 *
 *     hutch-extended 1
 *     base sha256:...
 *     layer sha256:...          the lowest first
 *
 * The base is never an extension itself: what extends one has its base, and its layers before its own. The digest of
 * the image is that of this text. */
#ifndef HUTCH_EXTENSION_H
#define HUTCH_EXTENSION_H

#include "rootfs/digest.h"
#include "sandbox/err.h"
#include "sandbox/spec.h"

#include <stddef.h>

#define EXTENSION_FILE "extends"
#define EXTENSION_MAX_TEXT 2048

struct extension {
    char base[DIGEST_HEX + 1];
    char layers[SPEC_MAX_LAYERS][DIGEST_HEX + 1];
    size_t n_layers;
};

/* What is in the directory @tree_fd. 1; 0: the image is no extension; -1: the file cannot be read, or is broken. */
int hutch_extension_read(int tree_fd, struct extension *ret, struct hutch_err *err);
/* The text; its length. */
size_t hutch_extension_print(const struct extension *extension, char ret[EXTENSION_MAX_TEXT]);

#endif
