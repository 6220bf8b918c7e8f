#include "runtime/gateway/pieces.h"

#include "runtime/text/utf8.h"

#include <string.h>

/* How many bytes at the end of @data begin a character that is not complete. */
static size_t cut_length(const char *data, size_t len)
{
    enum utf8_kind kind;

    for (size_t n = 1; n <= 3 && n <= len; n++) {
        unsigned char c = (unsigned char)data[len - n];

        if (c >= 0xc0) /* what begins one */
            return hutch_utf8_next(data + len - n, n, &kind) == n && kind == UTF8_CUT ? n : 0;
        if (c < 0x80)
            return 0;
    }
    return 0;
}

void hutch_pieces_join(struct pieces *p, const char *data, size_t len, struct text_buffer *t)
{
    size_t n;

    hutch_text_add(t, p->cut, p->n_cut);
    hutch_text_add(t, data, len);
    if (t->is_broken)
        return;
    n = cut_length(t->data, t->len);
    memcpy(p->cut, t->data + t->len - n, n);
    p->n_cut = n;
    t->len -= n;
}

void hutch_pieces_flush(struct pieces *p, struct text_buffer *t)
{
    hutch_text_add(t, p->cut, p->n_cut);
    p->n_cut = 0;
}
