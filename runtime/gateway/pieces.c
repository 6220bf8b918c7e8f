#include "runtime/gateway/pieces.h"

#include "runtime/text/utf8.h"

#include <string.h>

void hutch_pieces_join(struct pieces *p, const char *data, size_t len, struct text_buffer *t)
{
    size_t n;

    hutch_text_add(t, p->cut, p->n_cut);
    hutch_text_add(t, data, len);
    if (t->is_broken)
        return;
    n = hutch_utf8_unfinished(t->data, t->len);
    memcpy(p->cut, t->data + t->len - n, n);
    p->n_cut = n;
    t->len -= n;
}

void hutch_pieces_flush(struct pieces *p, struct text_buffer *t)
{
    hutch_text_add(t, p->cut, p->n_cut);
    p->n_cut = 0;
}
