/* png.h - a PNG image that hostile code has made, before anybody's decoder sees it. Source: the PNG specification, W3C, 2nd edition. */
#ifndef HUTCH_TERM_PNG_H
#define HUTCH_TERM_PNG_H

#include "sandbox/err.h"

#include <stddef.h>
#include <stdint.h>

#define PNG_MAX_PIXELS (16u << 20)
#define PNG_MAX_SIDE   16384

struct png_size {
    uint32_t width, height;
};

/* Checks signature, header, the order, lengths and checksums of all chunks, and makes a copy that has only what the picture needs
 * (IHDR, PLTE, tRNS, IDAT, IEND): texts, profiles, animations and whatever follows the end are left out. What the compressed data
 * expand to stays for the decoder to check. The copy is the caller's. Errors, errnum 0: what is wrong with it, or too large. */
int hutch_png_clean(const unsigned char *data, size_t len, unsigned char **ret, size_t *ret_len, struct png_size *ret_size,
                    struct hutch_err *err);

#endif
