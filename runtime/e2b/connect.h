/* connect.h - the messages of Connect's streams: a byte of flags, four of length, the most significant first, JSON. */
#ifndef HUTCH_E2B_CONNECT_H
#define HUTCH_E2B_CONNECT_H

#include "runtime/text/json_view.h"
#include "sandbox/err.h"

#include <stddef.h>

struct text_buffer;

#define CONNECT_HEAD 5
#define CONNECT_END  0x02u /* the last message of a stream */

/* The JSON of the one message that the body of a request is. Errors: less or more than one, flags, a length that is
 * not the rest. */
int hutch_connect_read(const char *body, size_t len, struct json_view *ret, struct hutch_err *err);

/* Adds a message. */
void hutch_connect_add(struct text_buffer *t, unsigned flags, const char *json, size_t len);

/* The word for a status of HTTP. */
const char *hutch_connect_code(unsigned status);

/* {"code", "message"}. @message: any bytes. */
void hutch_connect_add_error(struct text_buffer *t, const char *code, const char *message);

/* The last message of a stream: that it is whole, where @code is NULL, or an error. */
void hutch_connect_add_last(struct text_buffer *t, const char *code, const char *message);

#endif
