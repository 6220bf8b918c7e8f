/* oci_image.h - what an image consists of: reads the index, manifest and configuration of an OCI image
 * layout, of what `docker save` writes (with or without the layout inside), or of skopeo's dir:.
 * Sources: OCI image-spec 1.1 (image-layout, descriptor, manifest, config); Docker image specification 1.2. */
#ifndef HUTCH_OCI_IMAGE_H
#define HUTCH_OCI_IMAGE_H

#include "rootfs/digest.h"
#include "rootfs/image_config.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct source;

#define OCI_MAX_LAYERS 256

struct oci_layer {
    char *member;                 /* owned; its name in the source */
    char digest[DIGEST_HEX + 1];  /* of the stored bytes; "" where the format names none (docker save) */
    char diff_id[DIGEST_HEX + 1]; /* of the tar stream inside */
    uint64_t size;                /* stored bytes; 0 where the format names none */
};

struct oci_image {
    char digest[DIGEST_HEX + 1]; /* of the manifest, or of the configuration where there is none */
    char *name;                  /* owned; what the source calls the image, NULL when it does not */
    struct oci_layer *layers;    /* owned; the lowest first */
    size_t n_layers;
    struct image_config config;  /* owned */
};
#define OCI_IMAGE_INIT { .name = NULL, .layers = NULL, .n_layers = 0 }

struct oci_platform {
    bool is_given; /* by the user; else this machine's */
    char arch[64], variant[64];
};
/* Reads "linux/ARCH[/VARIANT]"; NULL is this machine. A platform without a variant has the usual one of its
 * architecture, "" where there is none. Errors (errnum 0): not of that form. */
int hutch_oci_platform_parse(const char *text, struct oci_platform *ret, struct hutch_err *err);

/* Which image of several. */
struct oci_choice {
    const char *select;   /* its name ("x" also is "x:latest") or its number, from 0; NULL: there has to be one */
    const char *platform; /* linux/ARCH[/VARIANT]; NULL: this machine's */
};

/* The digests of all JSON that was read on the way are checked; the layers' are checked when they are unpacked
 * (rootfs/layer.h). Errors (errnum 0 unless reading fails): none of the formats, several images and no choice, an image
 * for another machine, a wrong digest, JSON that is broken, too large, too deep or of the wrong shape. */
int hutch_oci_image_read(const struct source *source, const struct oci_choice *choice, struct oci_image *ret,
                         struct hutch_err *err);
void hutch_oci_image_done(struct oci_image *image);

#endif
