#include "runtime/term/png.h"

#include <errno.h>
#include <spng.h>
#include <stdlib.h>

#define CHUNK_MAX (1u << 20) /* of what is not the picture: texts, colour profiles */
#define PIXEL_BYTES 4
#define QUICKLY 1 /* zlib's level: the terminal is near */

static int refuse_image(int code, struct hutch_err *err)
{
    return code == SPNG_EMEM ? hutch_err_set(err, ENOMEM, "decode an image")
                             : hutch_err_set(err, 0, "it is a broken PNG image: %s", spng_strerror(code));
}

static int decode_image(spng_ctx *png, struct png_image *image, struct hutch_err *err)
{
    struct spng_ihdr header;
    size_t bytes;
    int rc = spng_get_ihdr(png, &header);

    if (rc)
        return refuse_image(rc, err);
    if (header.width > PNG_MAX_SIDE || header.height > PNG_MAX_SIDE ||
        (uint64_t)header.width * header.height > PNG_MAX_PIXELS)
        return hutch_err_set(err, 0, "it is too large to be shown: %u x %u pixels", header.width, header.height);
    image->width = header.width;
    image->height = header.height;
    rc = spng_decoded_image_size(png, SPNG_FMT_RGBA8, &bytes);
    if (rc)
        return refuse_image(rc, err);
    if (bytes != (size_t)PIXEL_BYTES * header.width * header.height)
        return hutch_err_set(err, 0, "it is a broken PNG image: %zu bytes for %u x %u pixels", bytes, header.width,
                             header.height);
    image->pixels = malloc(bytes);
    if (!image->pixels)
        return hutch_err_set(err, ENOMEM, "decode an image");
    rc = spng_decode_image(png, image->pixels, bytes, SPNG_FMT_RGBA8, SPNG_DECODE_TRNS);
    return rc ? refuse_image(rc, err) : 0;
}

int hutch_png_decode(const unsigned char *data, size_t len, struct png_image *ret, struct hutch_err *err)
{
    struct png_image image = PNG_IMAGE_INIT;
    spng_ctx *png = spng_ctx_new(0);
    int rc;

    *ret = image;
    if (!png)
        return hutch_err_set(err, ENOMEM, "decode an image");
    if (spng_set_chunk_limits(png, CHUNK_MAX, CHUNK_MAX) || spng_set_png_buffer(png, data, len))
        rc = hutch_err_set(err, ENOMEM, "decode an image");
    else
        rc = decode_image(png, &image, err);
    spng_ctx_free(png);
    if (rc < 0) {
        free(image.pixels);
        image.pixels = NULL;
    }
    *ret = image;
    return rc;
}

void hutch_png_image_done(struct png_image *image)
{
    free(image->pixels);
    *image = (struct png_image)PNG_IMAGE_INIT;
}

int hutch_png_encode(const struct png_image *image, unsigned char **ret, size_t *ret_len, struct hutch_err *err)
{
    struct spng_ihdr header = { .width = image->width, .height = image->height, .bit_depth = 8,
                                .color_type = SPNG_COLOR_TYPE_TRUECOLOR_ALPHA };
    spng_ctx *png = spng_ctx_new(SPNG_CTX_ENCODER);
    int rc = SPNG_EMEM;

    if (png && !spng_set_option(png, SPNG_ENCODE_TO_BUFFER, 1) &&
        !spng_set_option(png, SPNG_IMG_COMPRESSION_LEVEL, QUICKLY) && !spng_set_ihdr(png, &header))
        rc = spng_encode_image(png, image->pixels, (size_t)PIXEL_BYTES * image->width * image->height, SPNG_FMT_PNG,
                               SPNG_ENCODE_FINALIZE);
    if (!rc)
        *ret = spng_get_png_buffer(png, ret_len, &rc);
    spng_ctx_free(png);
    return rc ? hutch_err_set(err, rc == SPNG_EMEM ? ENOMEM : 0, "encode an image: %s", spng_strerror(rc)) : 0;
}
