/* base64.h - bytes as text and back: RFC 4648, section 4. */
#ifndef HUTCH_TEXT_BASE64_H
#define HUTCH_TEXT_BASE64_H

#include <stddef.h>

/* NUL-terminated, for the caller to free; NULL on ENOMEM. */
char *hutch_base64_encode(const void *data, size_t len, size_t *ret_len);

/* Strict, but for line ends (\n, \r\n), which notebooks have. The block is the caller's. NULL with errno EINVAL (not
 * base64) or ENOMEM. */
unsigned char *hutch_base64_decode(const char *text, size_t len, size_t *ret_len);

#endif
