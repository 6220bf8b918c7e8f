/* terminal.h - what the environment says of a terminal: whether it has colours, and whether it takes UTF-8. */
#ifndef HUTCH_TERM_TERMINAL_H
#define HUTCH_TERM_TERMINAL_H

#include "runtime/term/filter.h"

#include <stdbool.h>

/* Sets @ret, a fresh filter, up for what goes to @fd: without colours where NO_COLOR or TERM forbid them, and letter by
 * letter where the locale is not UTF-8. False: @fd is no terminal; the filter would drop colours then. Sets LC_CTYPE to
 * that of the environment when it is called first. */
bool hutch_term_describe(int fd, struct term_filter *ret);

/* COLORTERM says that colours of 24 bits are shown. */
bool hutch_term_has_all_colours(void);

#endif
