#include "runtime/term/picture.h"

#include "runtime/term/png.h"

#include <stddef.h>
#include <stdlib.h>

/* The mean of the pixels that become one. */
static void average_pixels(const struct png_image *image, const uint32_t from[2], const uint32_t to[2],
                           unsigned char rgb[3])
{
    uint64_t sum[3] = { 0 }, n = (uint64_t)(to[0] - from[0]) * (to[1] - from[1]);

    for (uint32_t y = from[1]; y < to[1]; y++)
        for (uint32_t x = from[0]; x < to[0]; x++) {
            const unsigned char *p = image->pixels + 4 * ((size_t)y * image->width + x);

            for (int i = 0; i < 3; i++)
                sum[i] += (p[i] * (uint32_t)p[3] + 255u * (255u - p[3])) / 255u;
        }
    for (int i = 0; i < 3; i++)
        rgb[i] = (unsigned char)(sum[i] / n);
}

bool hutch_picture_make(const struct png_image *image, uint32_t max_width, uint32_t max_height, struct picture *ret)
{
    struct picture p = { .width = image->width, .height = image->height };

    if (p.width > max_width) {
        p.height = (uint32_t)((uint64_t)p.height * max_width / p.width);
        p.width = max_width;
    }
    if (p.height > max_height) {
        p.width = (uint32_t)((uint64_t)p.width * max_height / p.height);
        p.height = max_height;
    }
    p.width += p.width == 0;
    p.height += p.height == 0;
    p.rgb = malloc((size_t)3 * p.width * p.height);
    if (!p.rgb)
        return false;
    for (uint32_t y = 0; y < p.height; y++)
        for (uint32_t x = 0; x < p.width; x++) {
            const uint32_t from[2] = { (uint32_t)((uint64_t)x * image->width / p.width),
                                       (uint32_t)((uint64_t)y * image->height / p.height) };
            const uint32_t to[2] = { (uint32_t)((x + 1ull) * image->width / p.width),
                                     (uint32_t)((y + 1ull) * image->height / p.height) };

            average_pixels(image, from, to, p.rgb + 3 * ((size_t)y * p.width + x));
        }
    *ret = p;
    return true;
}

void hutch_picture_done(struct picture *picture)
{
    free(picture->rgb);
    picture->rgb = NULL;
}
