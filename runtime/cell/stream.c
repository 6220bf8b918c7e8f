#include "runtime/cell/stream.h"

#include "runtime/text/utf8.h"

#include <stdlib.h>
#include <string.h>

/* Marks that wait for their frames. More are there only when code inside makes them. */
#define MAX_MARKS 4096

/* A larger buffer is given back when it is empty. */
#define KEPT_ROOM 65536

void hutch_cell_stream_forget(struct cell_stream *s)
{
    s->begin += s->text.len;
    hutch_text_done(&s->text);
    s->start = 0;
    s->n_marks = 0;
    s->n_cut = 0;
}

void hutch_cell_stream_shrink(struct cell_stream *s)
{
    if (s->text.len == 0)
        hutch_text_done(&s->text);
    if (s->n_marks == 0) {
        free(s->marks);
        s->marks = NULL;
        s->marks_room = 0;
    }
}

void hutch_cell_stream_done(struct cell_stream *s)
{
    hutch_cell_stream_forget(s);
    hutch_cell_stream_shrink(s);
}

/* ---- text ---- */

uint64_t hutch_cell_stream_end(const struct cell_stream *s)
{
    return s->begin + s->text.len;
}

uint64_t hutch_cell_stream_head_end(const struct cell_stream *s)
{
    return s->n_marks > 0 ? s->marks[0].end : hutch_cell_stream_end(s);
}

bool hutch_cell_stream_has_head(const struct cell_stream *s)
{
    return hutch_cell_stream_head_end(s) > s->begin + s->start;
}

size_t hutch_cell_stream_waiting(const struct cell_stream *s)
{
    return s->text.len - s->start;
}

const char *hutch_cell_stream_text(const struct cell_stream *s, uint64_t end, size_t *ret_len)
{
    uint64_t from = s->begin + s->start;

    *ret_len = end > from ? (size_t)(end - from) : 0;
    return *ret_len > 0 ? s->text.data + s->start : "";
}

void hutch_cell_stream_consume(struct cell_stream *s, size_t len)
{
    s->start += len;
    if (s->start == s->text.len) {
        s->begin += s->text.len;
        s->start = 0;
        if (s->text.room > KEPT_ROOM)
            hutch_text_done(&s->text);
        s->text.len = 0;
    } else if (s->start > s->text.len / 2) { /* at least as much was told as is moved */
        s->text.len -= s->start;
        memmove(s->text.data, s->text.data + s->start, s->text.len);
        s->begin += s->start;
        s->start = 0;
    }
}

static void add_text(struct cell_stream *s, const char *text, size_t len, uint64_t now_ms)
{
    if (!hutch_cell_stream_has_head(s))
        s->since_ms = now_ms;
    hutch_text_add(&s->text, text, len);
    s->has_lost = s->has_lost || s->text.is_broken;
    s->text.is_broken = false;
}

static void add_replacement(struct cell_stream *s, uint64_t now_ms)
{
    add_text(s, UTF8_REPLACEMENT, strlen(UTF8_REPLACEMENT), now_ms);
}

static void add_decoded(struct cell_stream *s, const char *data, size_t len, uint64_t now_ms)
{
    size_t from = 0;

    for (size_t i = 0; i < len;) {
        enum utf8_kind kind;
        size_t step;

        if ((unsigned char)data[i] < 0x80) {
            i++;
            continue;
        }
        step = hutch_utf8_next(data + i, len - i, &kind);
        if (kind != UTF8_CHAR) {
            add_text(s, data + from, i - from, now_ms);
            from = i + step;
        }
        if (kind == UTF8_BROKEN)
            add_replacement(s, now_ms);
        if (kind == UTF8_CUT) {
            memcpy(s->cut, data + i, step);
            s->n_cut = step;
        }
        i += step;
    }
    if (from < len)
        add_text(s, data + from, len - from, now_ms);
}

void hutch_cell_stream_add(struct cell_stream *s, const char *data, size_t len, uint64_t now_ms)
{
    while (s->n_cut > 0 && len > 0) { /* byte by byte until it is clear what the beginning was */
        char both[sizeof(s->cut) + 1];
        enum utf8_kind kind;
        size_t n = s->n_cut, step;

        memcpy(both, s->cut, n);
        both[n] = data[0];
        step = hutch_utf8_next(both, n + 1, &kind);
        s->n_cut = 0;
        if (step == n + 1) { /* it took the byte: whole, or still not */
            add_decoded(s, both, step, now_ms);
            data++;
            len--;
        } else { /* the byte belongs to another character */
            add_replacement(s, now_ms);
        }
    }
    if (len > 0)
        add_decoded(s, data, len, now_ms);
}

bool hutch_cell_stream_end_character(struct cell_stream *s, uint64_t now_ms)
{
    if (s->n_cut == 0)
        return false;
    s->n_cut = 0;
    add_replacement(s, now_ms);
    return true;
}

/* ---- marks ---- */

void hutch_cell_stream_drop_marks(struct cell_stream *s, size_t n)
{
    if (n == 0)
        return;
    s->n_marks -= n;
    memmove(s->marks, s->marks + n, s->n_marks * sizeof(*s->marks));
}

void hutch_cell_stream_pass_marks(struct cell_stream *s, size_t n, uint64_t now_ms)
{
    hutch_cell_stream_drop_marks(s, n);
    if (n > 0)
        s->since_ms = now_ms;
}

bool hutch_cell_stream_find_mark(const struct cell_stream *s, uint32_t n, size_t *ret_index)
{
    for (size_t i = 0; i < s->n_marks; i++)
        if (s->marks[i].n == n) {
            *ret_index = i;
            return true;
        }
    return false;
}

void hutch_cell_stream_add_mark(struct cell_stream *s, uint32_t n, uint64_t now_ms)
{
    if (s->n_marks == MAX_MARKS)
        hutch_cell_stream_pass_marks(s, MAX_MARKS / 2, now_ms);
    if (s->n_marks == s->marks_room) {
        size_t room = s->marks_room != 0 ? 2 * s->marks_room : 8;
        struct cell_stream_mark *marks = realloc(s->marks, room * sizeof(*marks));

        if (marks == NULL)
            return; /* its frame will find the pipe empty */
        s->marks = marks;
        s->marks_room = room;
    }
    s->marks[s->n_marks++] = (struct cell_stream_mark){ .n = n, .end = hutch_cell_stream_end(s) };
}
