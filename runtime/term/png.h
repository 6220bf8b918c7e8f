/* png.h - PNG images that hostile code has made, decoded and encoded anew, so that no other decoder sees what that
 * code wrote. libspng decodes. */
#ifndef HUTCH_TERM_PNG_H
#define HUTCH_TERM_PNG_H

#include "sandbox/err.h"

#include <stddef.h>
#include <stdint.h>

#define PNG_MAX_PIXELS (16u << 20)
#define PNG_MAX_SIDE   16384

struct png_image {
    uint32_t width, height; /* at most PNG_MAX_SIDE each and PNG_MAX_PIXELS in all */
    unsigned char *pixels;  /* owned; red, green, blue and opacity of each, row by row */
};
#define PNG_IMAGE_INIT { .pixels = NULL }

/* The whole picture. Takes four bytes of memory for each pixel, and at most 1 MiB for what @data has besides the
 * picture. On failure *@ret has no pixels, and its sides as far as they were decoded: what it took. Errors,
 * errnum 0: what is wrong with it, or too large. */
int hutch_png_decode(const unsigned char *data, size_t len, struct png_image *ret, struct hutch_err *err);
void hutch_png_image_done(struct png_image *image);

/* A PNG file with the picture and nothing else, for the caller to free. */
int hutch_png_encode(const struct png_image *image, unsigned char **ret, size_t *ret_len, struct hutch_err *err);

#endif
