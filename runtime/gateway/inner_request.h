/* inner_request.h - a client's request, as it is given to another worker. */
#ifndef HUTCH_GATEWAY_INNER_REQUEST_H
#define HUTCH_GATEWAY_INNER_REQUEST_H

#include "runtime/text/buffer.h"

struct exchange;

/* Its line and headers, without those that are of one connection only. @name: of what it makes; NULL: nothing. */
void hutch_inner_request_write(struct text_buffer *t, const struct exchange *x, const char *name);
/* A piece of its body: as it is, or as a chunk where nobody knows how long the body is. @len 0: its end. */
void hutch_inner_request_write_body(struct text_buffer *t, const struct exchange *x, const char *data, size_t len);

#endif
