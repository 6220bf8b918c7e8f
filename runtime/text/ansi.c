#include "runtime/text/ansi.h"

#include <stdbool.h>
#include <string.h>

#define ESC '\x1b'

bool hutch_ansi_obeys(unsigned code)
{
    /* Marks, embeddings, overrides and isolates. */
    bool turns_direction = code == 0x061c || code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
                           (code >= 0x2066 && code <= 0x2069);

    return code < 0x20 || (code >= 0x7f && code < 0xa0) || turns_direction;
}

static bool is_within(char c, char first, char last)
{
    return c >= first && c <= last;
}

/* ECMA-48: the strings that a terminal takes up to BEL or ESC \. A newline ends a broken one, or it would take
 * everything. */
static size_t string_len(const char *text, size_t len)
{
    for (size_t i = 2; i < len; i++) {
        if (text[i] == '\a')
            return i + 1;
        if (text[i] == ESC)
            return i + 1 < len && text[i + 1] == '\\' ? i + 2 : i;
        if (text[i] == '\n')
            return i;
    }
    return len;
}

size_t hutch_ansi_len(const char *text, size_t len)
{
    size_t i = 2;

    if (len < 2)
        return len;
    if (text[1] == '[') {
        while (i < len && is_within(text[i], 0x20, 0x3f))
            i++;
        return i < len && is_within(text[i], 0x40, 0x7e) ? i + 1 : i;
    }
    if (text[1] == ']' || text[1] == 'P' || text[1] == 'X' || text[1] == '^' || text[1] == '_')
        return string_len(text, len);
    i = 1;
    while (i < len && is_within(text[i], 0x20, 0x2f)) /* character sets: ESC ( B */
        i++;
    return i < len && is_within(text[i], 0x30, 0x7e) ? i + 1 : 1;
}

size_t hutch_ansi_strip(char *text, size_t len)
{
    char *to = text;

    for (size_t i = 0; i < len;) {
        const char *esc = memchr(text + i, ESC, len - i);
        size_t plain = esc != NULL ? (size_t)(esc - (text + i)) : len - i;

        memmove(to, text + i, plain);
        to += plain;
        i += plain;
        if (i < len)
            i += hutch_ansi_len(text + i, len - i);
    }
    return (size_t)(to - text);
}
