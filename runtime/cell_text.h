/* cell_text.h - the result of a cell as text for a language model: hutch_cell_result_to_text() of hutch.h.
 *
 * Plain UTF-8 without control characters (but newline and tab) and escape sequences, never over the budget. Tokens are estimated, for no
 * model in particular: a quarter for each ASCII character, one for each other character, two from U+10000 on. Of what is too long the
 * middle is left out, at line ends where there are any, and "[… 1234 lines left out …]" stands there. */
#ifndef HUTCH_CELL_TEXT_H
#define HUTCH_CELL_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct cJSON;

#define CELL_TEXT_DEFAULT_BUDGET 2000

/* The image of an output, if it has one: its MIME type (static) and its data, which stays the output's: base64, or text for SVG. The first of
 * png, jpeg, gif, webp, svg. NULL: none. */
const char *hutch_cell_image(const struct cJSON *output, const char **ret_data);
/* "figure-3.png": what texts call the @n-th output with an image, from 1, and what front ends shall save it as. */
#define CELL_IMAGE_NAME_SIZE 40
void hutch_cell_image_name(char name[CELL_IMAGE_NAME_SIZE], unsigned n, const char *mime);

/* In quarters of a token. */
uint64_t hutch_cell_text_cost(const char *text, size_t len);

#endif
