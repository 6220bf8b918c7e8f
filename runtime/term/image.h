/* image.h - images on terminals that can show them: kitty's protocol takes the PNG itself, sixel an encoding of its own. */
#ifndef HUTCH_TERM_IMAGE_H
#define HUTCH_TERM_IMAGE_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

enum term_images { TERM_IMAGES_NONE, TERM_IMAGES_KITTY, TERM_IMAGES_SIXEL };

/* What the terminal of this process says of itself in its environment: TERM, KITTY_WINDOW_ID, TERM_PROGRAM. Nothing is asked of the
 * terminal. Within a multiplexer (screen, tmux) there are no images. */
enum term_images hutch_term_images_detect(void);
/* "kitty", "sixel", "none". */
int hutch_term_images_parse(const char *text, enum term_images *ret, struct hutch_err *err);

/* A PNG image that hutch_png_clean() has made, as what is written to the terminal. NULL: ENOMEM. */
char *hutch_term_image_kitty(const unsigned char *png, size_t len, size_t *ret_len);

/* The Python text of a cell that prints the image file @name of /mnt/data as sixels, for the caller to free; needs Pillow. @name is one of
 * hutch_cell_image_name(). NULL: ENOMEM. */
char *hutch_term_image_sixel_code(const char *name);
/* Whether what that cell has printed is nothing but sixels of a bounded size. It comes from hostile code. */
bool hutch_term_image_is_sixel(const char *text, size_t len);
/* Around them, on the terminal. */
#define TERM_SIXEL_START "\x1bP0;1q"
#define TERM_SIXEL_END   "\x1b\\"

#endif
