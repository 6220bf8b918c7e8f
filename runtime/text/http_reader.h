/* http_reader.h - one answer of HTTP/1.1 as it comes, from a server of hutch's own: to the command line, and to another
 * worker of that server. Strict and bounded; there is no library among hutch's that does it, and one that does all of
 * HTTP would cost each start more than this. */
#ifndef HUTCH_TEXT_HTTP_READER_H
#define HUTCH_TEXT_HTTP_READER_H

#include "runtime/text/buffer.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_READER_MAX_HEAD (16u << 10)
#define HTTP_READER_MAX_BODY (256u << 20) /* that is not taken */
#define HTTP_READER_ENDLESS UINT64_MAX    /* a length that the head does not say */

struct http_reader {
    enum {
        HTTP_HEAD, HTTP_LENGTH, HTTP_CHUNK_SIZE, HTTP_CHUNK, HTTP_CHUNK_END, HTTP_TRAILER, HTTP_OVER,
        HTTP_OTHER /* protocol */
    } state;
    bool has_no_body;        /* the caller sets it: the request was HEAD */
    bool keeps_head;         /* the caller sets it */
    unsigned status;         /* once the head is there; 0: not yet */
    uint64_t length;         /* of the body, as the head says */
    struct text_buffer head; /* that was kept: lines that end with CR LF, and a NUL */
    uint64_t left;           /* of the body, or of its chunk */
    struct text_buffer line; /* of the head, or around a chunk */
    struct text_buffer body; /* that came, for the caller to take off */
};
#define HTTP_READER_INIT { .status = 0 }

/* -1: it is no such answer, or too large. What follows the head of status 101 is another protocol's, and goes to the
 * body as it is. */
int hutch_http_reader_feed(struct http_reader *r, const char *data, size_t len, struct hutch_err *err);
/* The body is whole. */
bool hutch_http_reader_is_over(const struct http_reader *r);
/* The length of the line of the body that begins at @from, with its end; 0: it is not whole. */
size_t hutch_http_reader_line(const struct http_reader *r, size_t from);
/* The next line of a head that was kept, from *@at on, 0 at first: its name and value, which are @r's, with their
 * lengths. False: there is none. */
bool hutch_http_reader_next_header(const struct http_reader *r, size_t *at, const char **ret_name, size_t *ret_name_len,
                                   const char **ret_value, size_t *ret_value_len);
void hutch_http_reader_done(struct http_reader *r);

#endif
