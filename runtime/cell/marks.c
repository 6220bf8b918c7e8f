#include "runtime/cell/marks.h"

#include <stdbool.h>
#include <string.h>

void hutch_cell_marks_init(struct cell_marks *m, const char token[CELL_TOKEN_LEN])
{
    memset(m, 0, sizeof(*m));
    memcpy(m->token, token, CELL_TOKEN_LEN);
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* May the byte number @at of a mark be @c? */
static bool fits(const struct cell_marks *m, size_t at, char c)
{
    if (at == 0)
        return c == '\0';
    if (at <= CELL_TOKEN_LEN)
        return c == m->token[at - 1];
    return at == CELL_MARK_LEN - 1 ? c == '\n' : hex_value(c) >= 0;
}

static uint32_t mark_number(const struct cell_marks *m)
{
    uint32_t n = 0;

    for (size_t i = 1 + CELL_TOKEN_LEN; i < CELL_MARK_LEN - 1; i++)
        n = n << 4 | (uint32_t)hex_value(m->held[i]);
    return n;
}

void hutch_cell_marks_finish(struct cell_marks *m, const struct cell_marks_sink *sink)
{
    char held[CELL_MARK_LEN];
    size_t n = m->n_held;

    memcpy(held, m->held, n);
    m->n_held = 0; /* before the call, which may lead back here */
    if (n > 0)
        sink->on_text(sink->user, held, n);
}

void hutch_cell_marks_put(struct cell_marks *m, const char *data, size_t len, const struct cell_marks_sink *sink)
{
    for (size_t i = 0; i < len;) {
        if (m->n_held == 0) {
            const char *nul = memchr(data + i, '\0', len - i);
            size_t plain = nul != NULL ? (size_t)(nul - (data + i)) : len - i;

            if (plain > 0)
                sink->on_text(sink->user, data + i, plain);
            i += plain;
            if (i == len)
                return;
        }
        if (!fits(m, m->n_held, data[i])) { /* the NUL was just a NUL; nothing behind it can have been another mark's */
            hutch_cell_marks_finish(m, sink);
            continue;
        }
        m->held[m->n_held++] = data[i++];
        if (m->n_held == CELL_MARK_LEN) {
            m->n_held = 0;
            sink->on_mark(sink->user, mark_number(m));
        }
    }
}
