#include "runtime/term/blocks.h"

#include "runtime/term/picture.h"
#include "runtime/term/terminal.h"
#include "runtime/text/buffer.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#define UPPER_HALF "\xe2\x96\x80"
#define IN_FRONT   38
#define BEHIND     48
#define NO_COLOUR  -1 /* none was chosen in this line yet */

struct blocks_screen hutch_blocks_screen(int fd)
{
    struct winsize window = { .ws_col = 0 };
    struct blocks_screen screen = { 80, 24, hutch_term_has_all_colours() };

    if (ioctl(fd, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 && window.ws_row > 0) {
        screen.columns = window.ws_col;
        screen.rows = window.ws_row;
    }
    screen.rows -= screen.rows > 1;
    return screen;
}

/* 0 to 5: which of the cube's shades, 0 95 135 175 215 255, is the nearest. */
static int nearest_shade(unsigned char value)
{
    return value < 48 ? 0 : value < 115 ? 1 : (value - 35) / 40;
}

/* One number for each colour that is told apart. */
static int colour_of(const unsigned char rgb[3], bool has_all_colours)
{
    if (has_all_colours)
        return rgb[0] << 16 | rgb[1] << 8 | rgb[2];
    return 16 + 36 * nearest_shade(rgb[0]) + 6 * nearest_shade(rgb[1]) + nearest_shade(rgb[2]);
}

static void choose_colour(struct text_buffer *to, int place, int colour, bool has_all_colours, int *present)
{
    if (*present == colour)
        return;
    *present = colour;
    if (has_all_colours)
        hutch_text_addf(to, "\x1b[%d;2;%d;%d;%dm", place, colour >> 16, colour >> 8 & 255, colour & 255);
    else
        hutch_text_addf(to, "\x1b[%d;5;%dm", place, colour);
}

/* Two rows of pixels, of which the second may be missing: what is behind stays the terminal's then. */
static void add_line(struct text_buffer *to, const struct picture *picture, uint32_t top, bool has_all_colours)
{
    const unsigned char *upper = picture->rgb + (size_t)3 * top * picture->width, *lower = upper + 3 * picture->width;
    int front = NO_COLOUR, behind = NO_COLOUR;

    for (uint32_t x = 0; x < picture->width; x++) {
        choose_colour(to, IN_FRONT, colour_of(upper + 3 * x, has_all_colours), has_all_colours, &front);
        if (top + 1 < picture->height)
            choose_colour(to, BEHIND, colour_of(lower + 3 * x, has_all_colours), has_all_colours, &behind);
        hutch_text_add_string(to, UPPER_HALF);
    }
    hutch_text_add_string(to, "\x1b[0m");
}

char *hutch_blocks_encode(const struct png_image *image, const struct blocks_screen *screen, size_t *ret_len)
{
    uint32_t columns = screen->columns < BLOCKS_MAX_COLUMNS ? screen->columns : BLOCKS_MAX_COLUMNS,
             rows = screen->rows < BLOCKS_MAX_ROWS ? screen->rows : BLOCKS_MAX_ROWS;
    struct text_buffer text = TEXT_BUFFER_INIT;
    struct picture picture;

    if (!hutch_picture_make(image, columns, 2 * rows, &picture))
        return NULL;
    for (uint32_t top = 0; top < picture.height; top += 2) {
        if (top > 0)
            hutch_text_add(&text, "\n", 1);
        add_line(&text, &picture, top, screen->has_all_colours);
    }
    hutch_picture_done(&picture);
    return hutch_text_take(&text, ret_len);
}
