/* ansi.h - text without what only a terminal would obey. */
#ifndef HUTCH_TEXT_ANSI_H
#define HUTCH_TEXT_ANSI_H

#include <stddef.h>

/* How many of the @len bytes at @text, the first of which is ESC, are one escape sequence: CSI (colours), OSC and
 * its like up to their end, or two characters; only ESC when it is none, all when the text ends within one. */
size_t hutch_ansi_len(const char *text, size_t len);

/* Takes the sequences out of the @len bytes at @text in place. The new length. */
size_t hutch_ansi_strip(char *text, size_t len);

#endif
