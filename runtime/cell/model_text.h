/* model_text.h - text for a language model: what it costs, without what is not seen, and shortened to a budget.
 *
 * Costs are in quarters of a token, estimated for no model in particular: one for each ASCII character, four for each
 * other, eight from U+10000 on. */
#ifndef HUTCH_CELL_MODEL_TEXT_H
#define HUTCH_CELL_MODEL_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct text_buffer;

/* Of valid UTF-8. */
uint64_t hutch_cell_text_cost(const char *text, size_t len);

/* Any bytes as valid UTF-8, without escape sequences, control characters (but newline and tab), and characters that
 * turn or hide text. */
void hutch_cell_text_add_clean(struct text_buffer *to, const char *text, size_t len);

/* Valid UTF-8, or its beginning and end, at the cost of at most @budget. The middle is left out at line ends where
 * there are any: "[… 1234 lines left out …]", or "[…]" where room is short. */
void hutch_cell_text_add_shortened(struct text_buffer *to, const char *text, size_t len, uint64_t budget);

#endif
