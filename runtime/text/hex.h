/* hex.h - one hexadecimal digit. */
#ifndef HUTCH_TEXT_HEX_H
#define HUTCH_TEXT_HEX_H

/* Its value, -1 when it is none. */
static inline int hutch_hex_digit(int c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        return (c | 0x20) - 'a' + 10;
    return -1;
}

#endif
