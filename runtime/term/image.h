/* image.h - images on terminals: kitty's protocol takes PNG, others sixels, and the rest blocks of colour. */
#ifndef HUTCH_TERM_IMAGE_H
#define HUTCH_TERM_IMAGE_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

enum term_images { TERM_IMAGES_NONE, TERM_IMAGES_KITTY, TERM_IMAGES_SIXEL, TERM_IMAGES_BLOCKS };

/* What the terminal of this process says of itself in its environment: TERM, KITTY_WINDOW_ID, TERM_PROGRAM, COLORTERM.
 * Nothing is asked of the terminal. Within a multiplexer (screen, tmux) there are blocks at most, which take 256
 * colours. */
enum term_images hutch_term_images_detect(void);
/* "kitty", "sixel", "blocks", "none". */
int hutch_term_images_parse(const char *text, enum term_images *ret, struct hutch_err *err);

/* A PNG image that hutch_png_encode() has made, as what is written to the terminal. NULL: ENOMEM. */
char *hutch_term_image_kitty(const unsigned char *png, size_t len, size_t *ret_len);

#endif
