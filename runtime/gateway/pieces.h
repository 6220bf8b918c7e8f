/* pieces.h - text that comes in pieces of any bytes, so that no character is cut in two. */
#ifndef HUTCH_GATEWAY_PIECES_H
#define HUTCH_GATEWAY_PIECES_H

#include "runtime/text/buffer.h"

#include <stddef.h>

struct pieces {
    char cut[4]; /* the beginning of a character whose rest has not come */
    size_t n_cut;
};

/* Adds what was cut before and of @data what is complete. */
void hutch_pieces_join(struct pieces *p, const char *data, size_t len, struct text_buffer *t);
/* Adds what was cut and has no rest. */
void hutch_pieces_flush(struct pieces *p, struct text_buffer *t);

#endif
