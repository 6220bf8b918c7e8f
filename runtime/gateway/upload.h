/* upload.h - a file of a session that is written as its bytes come, and is gone again if they do not all come. */
#ifndef HUTCH_GATEWAY_UPLOAD_H
#define HUTCH_GATEWAY_UPLOAD_H

#include "runtime/text/ids.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct exchange;
struct gateway_session;

struct upload {
    char session[ID_LEN + 1]; /* it may end while this goes on */
    char *path;               /* owned; NULL: there is no file */
    bool is_inside;           /* the path is the sandbox's, not one below /mnt/data */
    bool is_partial;          /* it is there, and not whole */
    int fd;                   /* owned; -1: closed */
    uint64_t n;
    struct exchange *x;       /* while it is being opened */
    struct gateway_session *opened_in; /* likewise */
    bool was_left;            /* likewise: nobody sends what is to be in it */
};
#define UPLOAD_INIT { .path = NULL, .fd = -1 }

/* -1: the exchange is refused. @path: below /mnt/data. In a session that has no files yet the rest of the body is held
 * back until it has, and what cannot be opened refuses the exchange later. @u is of the exchange's work, whose first
 * member it is. */
int hutch_upload_begin(struct upload *u, struct exchange *x, struct gateway_session *session, const char *path);
/* The same for @path inside, always later; directories on the way are made. */
int hutch_upload_begin_inside(struct upload *u, struct exchange *x, struct gateway_session *session, const char *path,
                              unsigned mode);
/* -1: the exchange is refused, and the file is given up. */
int hutch_upload_write(struct upload *u, struct exchange *x, const char *data, size_t len);
/* The file is whole. */
void hutch_upload_end(struct upload *u);
/* What was not completed is not left behind as if it were a whole file. Fine at any time. */
void hutch_upload_give_up(struct upload *u, const struct exchange *x);

#endif
