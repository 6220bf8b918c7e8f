/* multipart.h - multipart/form-data, part by part as it comes: RFC 7578. Nothing is gathered but the head of a part. */
#ifndef HUTCH_GATEWAY_MULTIPART_H
#define HUTCH_GATEWAY_MULTIPART_H

#include "sandbox/err.h"

#include <stddef.h>

#define MULTIPART_MAX_BOUNDARY 70 /* RFC 2046, 5.1.1 */
#define MULTIPART_MAX_HEAD 8192   /* bytes */
#define MULTIPART_MAX_PARTS 1000

/* Each is called in this order for each part. -1 ends the parsing, and *err has not to be set. */
struct multipart_events {
    /* @name, @filename: of Content-Disposition, NUL-terminated; NULL: there is none. */
    int (*on_begin)(void *owner, const char *name, const char *filename);
    int (*on_data)(void *owner, const char *data, size_t len);
    int (*on_end)(void *owner);
};

struct multipart {
    const struct multipart_events *events;
    void *owner;
    char delimiter[MULTIPART_MAX_BOUNDARY + 5]; /* with the line end and the dashes before it */
    size_t delimiter_len, n_matched;            /* … so much of it may have begun */
    enum { MULTIPART_PREAMBLE, MULTIPART_DATA, MULTIPART_DELIMITER, MULTIPART_HEAD, MULTIPART_END } state;
    char head[MULTIPART_MAX_HEAD + 1];
    size_t n_head;
    unsigned n_parts;
};

/* @type: the header Content-Type. Errors: it is something else, or has no boundary. */
int hutch_multipart_begin(struct multipart *m, const char *type, const struct multipart_events *events, void *owner,
                          struct hutch_err *err);
/* Errors: what is not as the RFC has it; bounds. With errnum ECANCELED: an event has said so. */
int hutch_multipart_take(struct multipart *m, const char *data, size_t len, struct hutch_err *err);
/* Errors: the last part is not there. */
int hutch_multipart_finish(const struct multipart *m, struct hutch_err *err);

#endif
