/* ansi.h - text without what only a terminal would obey. */
#ifndef HUTCH_TEXT_ANSI_H
#define HUTCH_TEXT_ANSI_H

#include <stdbool.h>
#include <stddef.h>

/* Whether a terminal does something else with the character than to show it: control characters of C0 and C1, DEL, and
 * those that turn the direction of writing, so that what is written is not what is read. */
bool hutch_ansi_obeys(unsigned code);

/* How many of the @len bytes at @text, the first of which is ESC, are one escape sequence: CSI (colours), OSC and
 * its like up to their end, or two characters; only ESC when it is none, all when the text ends within one. */
size_t hutch_ansi_len(const char *text, size_t len);

/* Takes the sequences out of the @len bytes at @text in place. The new length. */
size_t hutch_ansi_strip(char *text, size_t len);

#endif
