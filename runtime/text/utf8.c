#include "runtime/text/utf8.h"

#include <stdint.h>

size_t hutch_utf8_next(const char *text, size_t len, enum utf8_kind *ret_kind)
{
    const uint8_t *p = (const uint8_t *)text;
    uint8_t low = 0x80, high = 0xbf;
    size_t need, i;

    *ret_kind = UTF8_CHAR;
    if (p[0] < 0x80)
        return 1;
    *ret_kind = UTF8_BROKEN;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 1;
    need = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (p[0] == 0xe0)
        low = 0xa0;
    else if (p[0] == 0xed)
        high = 0x9f;
    else if (p[0] == 0xf0)
        low = 0x90;
    else if (p[0] == 0xf4)
        high = 0x8f;
    for (i = 1; i < need && i < len; i++) {
        if (p[i] < low || p[i] > high)
            return i;
        low = 0x80;
        high = 0xbf;
    }
    *ret_kind = i == need ? UTF8_CHAR : UTF8_CUT;
    return i;
}

size_t hutch_utf8_encode(unsigned code, char to[4])
{
    size_t len = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

    for (size_t i = len - 1; i > 0; i--, code >>= 6)
        to[i] = (char)(0x80 | (code & 0x3f));
    to[0] = (char)(len == 1 ? code : (0xf00u >> len & 0xf0) | code);
    return len;
}

unsigned hutch_utf8_decode(const char *bytes, size_t len)
{
    const unsigned char *p = (const unsigned char *)bytes;
    unsigned code = len == 1 ? p[0] : p[0] & (0x7fu >> len);

    for (size_t i = 1; i < len; i++)
        code = code << 6 | (p[i] & 0x3f);
    return code;
}

size_t hutch_utf8_cut(const char *text, size_t len, size_t max)
{
    if (len <= max)
        return len;
    while (max > 0 && ((uint8_t)text[max] & 0xc0) == 0x80)
        max--;
    return max;
}

size_t hutch_utf8_unfinished(const char *text, size_t len)
{
    enum utf8_kind kind;

    for (size_t n = 1; n <= 3 && n <= len; n++) {
        if (((unsigned char)text[len - n] & 0xc0) == 0x80)
            continue; /* not the first byte of one */
        hutch_utf8_next(text + len - n, n, &kind);
        return kind == UTF8_CUT ? n : 0;
    }
    return 0;
}

bool hutch_utf8_is_valid(const char *text, size_t len)
{
    enum utf8_kind kind;

    for (size_t i = 0; i < len;) {
        i += hutch_utf8_next(text + i, len - i, &kind);
        if (kind != UTF8_CHAR)
            return false;
    }
    return true;
}
