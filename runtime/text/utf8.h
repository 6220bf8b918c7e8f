/* utf8.h - the characters of UTF-8, in text that need not be UTF-8 at all. */
#ifndef HUTCH_TEXT_UTF8_H
#define HUTCH_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

enum utf8_kind {
    UTF8_CHAR,
    UTF8_BROKEN, /* ill-formed: together one U+FFFD, as Python's errors="replace" has it */
    UTF8_CUT     /* the text ends within a character that was well-formed so far */
};

/* How many of the @len bytes (at least one) at @text belong together, and what they are. Overlong forms, surrogates and
 * what is above U+10FFFF are ill-formed: table 3-7 of the Unicode standard. */
size_t hutch_utf8_next(const char *text, size_t len, enum utf8_kind *ret_kind);

/* Writes the 1 to 4 bytes of a character, which may be a surrogate. Returns how many. */
size_t hutch_utf8_encode(unsigned code, char to[4]);

/* The other way: the character whose @len bytes hutch_utf8_next() has found. */
unsigned hutch_utf8_decode(const char *bytes, size_t len);

/* How many of the @len bytes of valid UTF-8 make whole characters within @max bytes. */
size_t hutch_utf8_cut(const char *text, size_t len, size_t max);

/* How many bytes at the end of the @len ones, which are any, begin a character whose rest is not there. */
size_t hutch_utf8_unfinished(const char *text, size_t len);

bool hutch_utf8_is_valid(const char *text, size_t len);

#endif
