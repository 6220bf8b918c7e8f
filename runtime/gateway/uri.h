/* uri.h - the path of a request: percent-decoding that fails closed. RFC 3986, section 2.1. */
#ifndef HUTCH_GATEWAY_URI_H
#define HUTCH_GATEWAY_URI_H

#include "sandbox/err.h"

#include <stddef.h>

/* The @len bytes at @text with each %XX as its byte, NUL-terminated, for the caller to free; NULL on failure. Errors:
 * EINVAL for a '%' without two hexadecimal digits, and for a NUL byte; ENOMEM. */
char *hutch_uri_decode(const char *text, size_t len, struct hutch_err *err);

#endif
