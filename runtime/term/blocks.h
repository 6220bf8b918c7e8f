/* blocks.h - pictures of text, for terminals without any other: each character is the upper half of a block, and has a
 * colour of its own and one behind it, so it is two pixels. */
#ifndef HUTCH_TERM_BLOCKS_H
#define HUTCH_TERM_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>

struct png_image;

#define BLOCKS_MAX_COLUMNS 240
#define BLOCKS_MAX_ROWS    120

struct blocks_screen {
    unsigned columns, rows; /* that the picture may have; more than the maxima is as these */
    bool has_all_colours;   /* 24 bits of them; false: the 216 of the cube that xterm has */
};

/* The window of the terminal @fd, and what COLORTERM says. Leaves a row for what is written below. */
struct blocks_screen hutch_blocks_screen(int fd);
/* On white paper, as what is written to the terminal: lines, without a newline after the last. The caller's to free.
 * NULL: ENOMEM. */
char *hutch_blocks_encode(const struct png_image *image, const struct blocks_screen *screen, size_t *ret_len);

#endif
