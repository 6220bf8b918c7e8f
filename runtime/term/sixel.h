/* sixel.h - pictures as sixels, the graphics of DEC's VT340 and of terminals today: six rows of pixels at a time,
 * colour by colour. */
#ifndef HUTCH_TERM_SIXEL_H
#define HUTCH_TERM_SIXEL_H

#include <stddef.h>

struct png_image;

#define SIXEL_MAX_SIDE 1000 /* a larger picture is made smaller: windows are not wider */
#define SIXEL_COLOURS  64

/* On white paper, as what is written to the terminal: its start and end with it. The caller's to free. NULL:
 * ENOMEM. */
char *hutch_sixel_encode(const struct png_image *image, size_t *ret_len);

#endif
