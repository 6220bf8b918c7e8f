#include "runtime/e2b/mark.h"

#include "runtime/text/buffer.h"

#include <string.h>

#define BEFORE_STATUS (1 + ID_LEN + 1)

/* Whether @c may stand at this place of a mark, behind @m->held. */
static bool fits(const struct mark *m, char c)
{
    size_t at = m->n_held;

    if (at == 0)
        return c == MARK_EDGE;
    if (at <= ID_LEN)
        return c == m->id[at - 1];
    if (at < BEFORE_STATUS)
        return c == ' ';
    if (c >= '0' && c <= '9')
        return at < BEFORE_STATUS + 3;
    return c == MARK_EDGE && at > BEFORE_STATUS;
}

static void read_status(struct mark *m)
{
    m->is_found = true;
    for (size_t i = BEFORE_STATUS; i < m->n_held; i++)
        m->status = m->status * 10 + (m->held[i] - '0');
    m->n_held = 0;
}

void hutch_e2b_mark_take(struct mark *m, const char *data, size_t len, struct text_buffer *ret)
{
    while (len > 0 && !m->is_found) {
        const char *edge = m->n_held ? data : memchr(data, MARK_EDGE, len);
        size_t n = edge ? (size_t)(edge - data) : len;

        hutch_text_add(ret, data, n);
        data += n;
        len -= n;
        if (len == 0)
            break;
        if (!fits(m, *data)) { /* an edge stands only at a mark's ends, so none begins within what was held */
            hutch_e2b_mark_flush(m, ret);
            continue;
        }
        if (*data == MARK_EDGE && m->n_held > 0)
            read_status(m);
        else
            m->held[m->n_held++] = *data;
        data++;
        len--;
    }
}

void hutch_e2b_mark_flush(struct mark *m, struct text_buffer *ret)
{
    hutch_text_add(ret, m->held, m->n_held);
    m->n_held = 0;
}
