/* result_text.h - the result of a cell as text for a language model: hutch_cell_result_to_text() of hutch.h.
 *
 * Outputs in their order, each as the most telling text it has; images as the names of files; then what went wrong,
 * and what became of files:
 *     line 3: df['x'] -> KeyError: 'x'
 *     [files: added figure.png (23 kB); deleted old.csv]
 * Plain text as model_text.h makes it, and never over the budget. One output gets at most half of the room (of more
 * than 250 tokens), so that it leaves some to the others; error and files get theirs first. */
#ifndef HUTCH_CELL_RESULT_TEXT_H
#define HUTCH_CELL_RESULT_TEXT_H

#define CELL_TEXT_DEFAULT_BUDGET 2000

#endif
