/* http_reader.h - one answer of HTTP/1.1 as it comes, for the one client that hutch is: of its own server, over a unix
 * socket. Strict and bounded; there is no library among hutch's that does it, and one that does all of HTTP would cost
 * each start more than this. */
#ifndef HUTCH_CLI_HTTP_READER_H
#define HUTCH_CLI_HTTP_READER_H

#include "runtime/text/buffer.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_READER_MAX_HEAD (16u << 10)
#define HTTP_READER_MAX_BODY (256u << 20) /* that is not taken */

struct http_reader {
    enum { HTTP_HEAD, HTTP_LENGTH, HTTP_CHUNK_SIZE, HTTP_CHUNK, HTTP_CHUNK_END, HTTP_TRAILER, HTTP_OVER } state;
    unsigned status;         /* once the head is there; 0: not yet */
    uint64_t left;           /* of the body, or of its chunk */
    struct text_buffer line; /* of the head, or around a chunk */
    struct text_buffer body; /* that came, for the caller to take off */
};
#define HTTP_READER_INIT { .status = 0 }

/* -1: it is no such answer, or too large. */
int hutch_http_reader_feed(struct http_reader *r, const char *data, size_t len, struct hutch_err *err);
/* The body is whole. */
bool hutch_http_reader_is_over(const struct http_reader *r);
/* The length of the line of the body that begins at @from, with its end; 0: it is not whole. */
size_t hutch_http_reader_line(const struct http_reader *r, size_t from);
void hutch_http_reader_done(struct http_reader *r);

#endif
