#include "runtime/text/base64.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *hutch_base64_encode(const void *data, size_t len, size_t *ret_len)
{
    const unsigned char *p = data;
    char *text = len < SIZE_MAX / 2 ? malloc((len + 2) / 3 * 4 + 1) : NULL, *to = text;

    if (!text)
        return NULL;
    for (; len >= 3; p += 3, len -= 3) {
        *to++ = digits[p[0] >> 2];
        *to++ = digits[(p[0] & 3) << 4 | p[1] >> 4];
        *to++ = digits[(p[1] & 15) << 2 | p[2] >> 6];
        *to++ = digits[p[2] & 63];
    }
    if (len > 0) {
        *to++ = digits[p[0] >> 2];
        *to++ = digits[(p[0] & 3) << 4 | (len == 2 ? p[1] >> 4 : 0)];
        *to++ = len == 2 ? digits[(p[1] & 15) << 2] : '=';
        *to++ = '=';
    }
    *to = '\0';
    *ret_len = (size_t)(to - text);
    return text;
}

static int value_of(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+' ? 62 : c == '/' ? 63 : -1;
}

unsigned char *hutch_base64_decode(const char *text, size_t len, size_t *ret_len)
{
    unsigned char *data = malloc(len / 4 * 3 + 3), *to = data;
    uint32_t bits = 0;
    unsigned n = 0, n_pads = 0;

    if (!data)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        int value = value_of(text[i]);

        if (text[i] == '\n' || (text[i] == '\r' && i + 1 < len && text[i + 1] == '\n'))
            continue;
        if (text[i] == '=' && n % 4 >= 2)
            n_pads++;
        else if (value < 0 || n_pads > 0)
            goto refuse;
        bits = bits << 6 | (uint32_t)(value < 0 ? 0 : value);
        if (++n % 4 == 0) {
            *to++ = (unsigned char)(bits >> 16);
            *to++ = (unsigned char)(bits >> 8);
            *to++ = (unsigned char)bits;
        }
    }
    /* Bits that stand for nothing have to be 0, so that bytes have one text only. */
    if (n % 4 != 0 || (n_pads == 1 && (bits & 0xff)) || (n_pads == 2 && (bits & 0xffff)))
        goto refuse;
    *ret_len = (size_t)(to - data) - n_pads;
    return data;
refuse:
    free(data);
    errno = EINVAL;
    return NULL;
}
