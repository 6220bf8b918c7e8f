/* result_text.h - the result of a cell as text for a language model: hutch_cell_result_to_text() of hutch.h.
 *
 * Outputs in their order, each as the most telling text it has; images as the names of files; then what went wrong,
 * and what became of files:
 *     line 3: df['x'] -> KeyError: 'x'
 *     [files: added figure.png (23 kB); deleted old.csv]
 * Plain UTF-8 without escape sequences and control characters (but newline and tab; also none that turn or hide
 * text), and never over the budget. Tokens are estimated, for no model in particular: a quarter for each ASCII
 * character, one for each other, two from U+10000 on. Of what is too long the middle is left out, at line ends where
 * there are any: "[… 1234 lines left out …]", or "[…]" where room is short. One output gets at most half of the room
 * (of more than 250 tokens), so that it leaves some to the others; error and files get theirs first. */
#ifndef HUTCH_CELL_RESULT_TEXT_H
#define HUTCH_CELL_RESULT_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct cJSON;

#define CELL_TEXT_DEFAULT_BUDGET 2000

/* The image of an output, if it has one: its MIME type (static) and its data, which stays the output's: base64, or
 * text for SVG. The first of png, jpeg, gif, webp, svg. NULL: none. */
const char *hutch_cell_image(const struct cJSON *output, const char **ret_data);
/* "figure-3.png": what texts call the @n-th output with an image, from 1, and what front ends save it as. */
#define CELL_IMAGE_NAME_SIZE 40
void hutch_cell_image_name(char name[CELL_IMAGE_NAME_SIZE], unsigned n, const char *mime);

/* What valid UTF-8 costs, in quarters of a token. */
uint64_t hutch_cell_text_cost(const char *text, size_t len);

#endif
