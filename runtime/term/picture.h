/* picture.h - a decoded image as a terminal is to have it: no larger than the window, on white paper. */
#ifndef HUTCH_TERM_PICTURE_H
#define HUTCH_TERM_PICTURE_H

#include <stdbool.h>
#include <stdint.h>

struct png_image;

struct picture {
    uint32_t width, height;
    unsigned char *rgb; /* owned */
};

/* In its proportions, at most @max_width wide and @max_height high, at least one pixel each. False: ENOMEM. */
bool hutch_picture_make(const struct png_image *image, uint32_t max_width, uint32_t max_height, struct picture *ret);
void hutch_picture_done(struct picture *picture);

#endif
