/* json_plain.h - how much of a text stands in a JSON string as it is: nearly all of nearly every text, so that it is
 * looked at eight bytes at a time. */
#ifndef HUTCH_TEXT_JSON_PLAIN_H
#define HUTCH_TEXT_JSON_PLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Printable ASCII, but for the quote and the backslash. */
static inline bool hutch_json_is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

#define JSON_PLAIN_EACH(byte) (UINT64_C(0x0101010101010101) * (byte))

/* Whether all eight bytes of @word are. A byte that is zero, or below 0x20, borrows its highest bit; no other one can
 * have that bit, as a byte above 0x7f is not plain either. */
static inline bool hutch_json_are_plain(uint64_t word)
{
    const uint64_t one = JSON_PLAIN_EACH(1);
    uint64_t quote = word ^ JSON_PLAIN_EACH('"'), slash = word ^ JSON_PLAIN_EACH('\\');
    uint64_t del = word ^ JSON_PLAIN_EACH(0x7f);
    uint64_t found = word | (word - JSON_PLAIN_EACH(0x20)) | (quote - one) | (slash - one) | (del - one);

    return (found & JSON_PLAIN_EACH(0x80)) == 0;
}

/* How many of the @len bytes at @text are plain before the first that is not. */
static inline size_t hutch_json_plain_len(const char *text, size_t len)
{
    size_t i = 0;
    uint64_t word;

    if (len > 0 && !hutch_json_is_plain((unsigned char)text[0]))
        return 0;
    for (; len - i >= sizeof(word); i += sizeof(word)) {
        memcpy(&word, text + i, sizeof(word));
        if (!hutch_json_are_plain(word))
            break;
    }
    while (i < len && hutch_json_is_plain((unsigned char)text[i]))
        i++;
    return i;
}

#endif
