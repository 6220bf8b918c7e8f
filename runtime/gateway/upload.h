/* upload.h - a file of a session that is written as its bytes come, and is gone again if they do not all come. */
#ifndef HUTCH_GATEWAY_UPLOAD_H
#define HUTCH_GATEWAY_UPLOAD_H

#include "runtime/text/ids.h"

#include <stddef.h>
#include <stdint.h>

struct exchange;
struct gateway_session;

struct upload {
    char session[ID_LEN + 1]; /* it may end while this goes on */
    char *path;               /* owned; NULL: there is no file */
    int fd;                   /* owned; -1: it is complete, or was given up */
    uint64_t n;
};
#define UPLOAD_INIT { .path = NULL, .fd = -1 }

/* -1: the exchange is refused. @path: below /mnt/data. */
int hutch_upload_begin(struct upload *u, struct exchange *x, const struct gateway_session *session, const char *path);
/* The same, and the file is given up. */
int hutch_upload_write(struct upload *u, struct exchange *x, const char *data, size_t len);
/* The file is whole. */
void hutch_upload_end(struct upload *u);
/* What was not completed is not left behind as if it were a whole file. Fine at any time. */
void hutch_upload_give_up(struct upload *u, const struct exchange *x);

#endif
