/* mark.h - the end of what a shell says for one code: bytes that the server has chosen for it, and its exit status.
 * Who knows them can write them, and by that ends its own code early. */
#ifndef HUTCH_E2B_MARK_H
#define HUTCH_E2B_MARK_H

#include "runtime/text/ids.h"

#include <stdbool.h>
#include <stddef.h>

struct text_buffer;

/* What the shell is to write: MARK_EDGE, the id, a blank, the status in at most three digits, MARK_EDGE. */
#define MARK_EDGE '\036'
#define MARK_EDGE_OCTAL "\\036" /* for printf(1) */
#define MARK_MAX (ID_LEN + 6)

/* One stream's. All zeros but for the id at first. */
struct mark {
    char id[ID_LEN + 1];
    char held[MARK_MAX]; /* what has come and may be its beginning */
    size_t n_held;
    bool is_found;
    int status;
};

/* Adds to @ret what is not the mark. What comes behind the mark is dropped. */
void hutch_e2b_mark_take(struct mark *m, const char *data, size_t len, struct text_buffer *ret);
/* Nothing more comes: adds what was held. */
void hutch_e2b_mark_flush(struct mark *m, struct text_buffer *ret);

#endif
