/* filter.h - makes bytes that hostile code has written fit for a terminal.
 *
 * A terminal obeys what it is shown: escape sequences retitle its window, report its contents back as if they were
 * typed, write its clipboard, or repaint what was on it before. Of all that only colours pass: text in UTF-8, newline,
 * tab, carriage return (progress bars; it gets no further than the beginning of the program's own line), and the
 * sequences ESC [ numbers m. Any other control character is shown as a text: "^[" for ESC, "\x9b" for one of C1's,
 * "\u202e" for one that turns the direction of writing around. Ill-formed UTF-8 becomes U+FFFD. */
#ifndef HUTCH_TERM_FILTER_H
#define HUTCH_TERM_FILTER_H

#include <stdbool.h>
#include <stddef.h>

#define TERM_SEQUENCE_MAX 64 /* bytes of a colour sequence; a longer one is none */

struct term_filter {
    bool has_colours; /* false: sequences for colours are dropped */
    bool has_utf8;    /* false: a terminal that may take each byte of a letter for a character of its own; a letter with
                       * a byte that is a control character then is shown as a text, such as "\u011b" */
    /* private: all zero at the start */
    char pending[TERM_SEQUENCE_MAX]; /* of a sequence or letter that is not complete yet */
    size_t n_pending;
    bool is_coloured;
};

/* Where the text goes, in pieces that are not empty; a sequence for colours is one. */
typedef void term_sink_fn(void *user, const char *text, size_t len);

/* Passes on what is complete so far. */
void hutch_term_filter(struct term_filter *filter, const char *text, size_t len, term_sink_fn *sink, void *user);
/* The end of a text: what was not completed is shown as what it is, and colours are as they were before. */
void hutch_term_filter_end(struct term_filter *filter, term_sink_fn *sink, void *user);

#endif
