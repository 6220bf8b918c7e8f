/* multipart.h - multipart/form-data (RFC 7578) as it comes, piece by piece, without being gathered.
 *
 *     open -> [ feed -> (on_part, on_data*, on_end)* ]* -> finish
 *
 * Strict: lines end in CR LF, each part has one Content-Disposition with a name, and the last boundary has to come.
 * What is before the first and after the last boundary is passed over, as RFC 2046 has it. Headers of a part, their
 * texts and the number of parts are bounded; the length of a part is for the caller to bound. An event may have the
 * parser stop behind it, to go on later. */
#ifndef HUTCH_GATEWAY_MULTIPART_H
#define HUTCH_GATEWAY_MULTIPART_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define MULTIPART_MAX_BOUNDARY 70 /* RFC 2046, 5.1.1 */
#define MULTIPART_MAX_HEADERS  8192
#define MULTIPART_MAX_PARTS    1100

/* What is called for each part. Less than 0, with *err: nothing more is read. */
struct multipart_events {
    /* @filename: NULL when there is none. Both are any bytes but NUL, and end with the call. The part's data begin
     * behind @n_taken bytes of the body. */
    int (*on_part)(void *user, const char *name, const char *filename, struct hutch_err *err);
    int (*on_data)(void *user, const char *data, size_t len, struct hutch_err *err);
    int (*on_end)(void *user, struct hutch_err *err);
};

struct multipart {
    const struct multipart_events *events;
    void *user;
    enum { MULTIPART_PREAMBLE, MULTIPART_BOUNDARY, MULTIPART_HEADERS, MULTIPART_DATA, MULTIPART_OVER } state;
    char delimiter[4 + MULTIPART_MAX_BOUNDARY + 1]; /* "\r\n--" and the boundary */
    size_t delimiter_len;
    size_t n_matched;                 /* of the delimiter, at the end of what has come */
    char head[MULTIPART_MAX_HEADERS]; /* the two bytes behind a boundary, or headers */
    size_t head_len;
    size_t n_parts;
    size_t n_taken;                   /* bytes of the body so far */
    bool stops;                       /* for events to set: nothing more is read, for now */
};

/* @type: the header Content-Type. -1: its boundary is missing or none. */
int hutch_multipart_open(struct multipart *m, const char *type, const struct multipart_events *events, void *user,
                         struct hutch_err *err);
/* How many bytes were taken: all of them, unless an event has had it stop. */
ssize_t hutch_multipart_feed(struct multipart *m, const char *data, size_t len, struct hutch_err *err);
/* -1: the last boundary has not come. */
int hutch_multipart_finish(const struct multipart *m, struct hutch_err *err);

#endif
