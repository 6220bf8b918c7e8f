#include "runtime/gateway/output_tail.h"

#include <string.h>

#define PIECE_MAX 4096

/* What stands before each piece. */
struct piece {
    uint16_t stream, len;
};

static struct piece piece_at(const struct output_tail *tail, size_t at)
{
    struct piece piece;

    memcpy(&piece, tail->pieces.data + at, sizeof(piece));
    return piece;
}

size_t hutch_output_tail_size(const struct output_tail *tail)
{
    return tail->pieces.room;
}

bool hutch_output_tail_first(const struct output_tail *tail, int *ret_stream, const char **ret_data, size_t *ret_len)
{
    struct piece piece;

    if (tail->start == tail->pieces.len)
        return false;
    piece = piece_at(tail, tail->start);
    *ret_stream = piece.stream;
    *ret_data = tail->pieces.data + tail->start + sizeof(piece);
    *ret_len = piece.len;
    return true;
}

void hutch_output_tail_pop(struct output_tail *tail)
{
    tail->start += sizeof(struct piece) + piece_at(tail, tail->start).len;
    if (tail->start == tail->pieces.len) {
        hutch_text_done(&tail->pieces);
        tail->start = tail->last = 0;
    }
}

static void drop_first(struct output_tail *tail)
{
    tail->n_dropped += piece_at(tail, tail->start).len;
    hutch_output_tail_pop(tail);
}

/* What was dropped makes room. */
static void compact(struct output_tail *tail)
{
    memmove(tail->pieces.data, tail->pieces.data + tail->start, tail->pieces.len - tail->start);
    tail->pieces.len -= tail->start;
    tail->last -= tail->start;
    tail->start = 0;
}

/* At most PIECE_MAX bytes, for which there is room. */
static void append(struct output_tail *tail, int stream, const char *data, size_t len)
{
    struct piece piece = { .stream = (uint16_t)stream, .len = (uint16_t)len };
    bool is_empty = tail->start == tail->pieces.len;
    struct piece last = is_empty ? piece : piece_at(tail, tail->last);

    if (!is_empty && last.stream == stream && last.len + len <= PIECE_MAX) {
        last.len = (uint16_t)(last.len + len);
        memcpy(tail->pieces.data + tail->last, &last, sizeof(last));
        hutch_text_add(&tail->pieces, data, len);
        return;
    }
    tail->last = tail->pieces.len;
    hutch_text_add(&tail->pieces, (const char *)&piece, sizeof(piece));
    hutch_text_add(&tail->pieces, data, len);
}

void hutch_output_tail_add(struct output_tail *tail, int stream, const char *data, size_t len)
{
    while (len > 0 && !tail->pieces.is_broken) {
        size_t n = len < PIECE_MAX ? len : PIECE_MAX;

        while (tail->pieces.len - tail->start + sizeof(struct piece) + n > OUTPUT_TAIL_MAX)
            drop_first(tail);
        if (tail->start > OUTPUT_TAIL_MAX / 2)
            compact(tail);
        append(tail, stream, data, n);
        data += n;
        len -= n;
    }
    if (tail->pieces.is_broken) { /* its last piece may be cut */
        hutch_text_done(&tail->pieces);
        tail->start = tail->last = 0;
        tail->n_dropped += len;
    }
}

void hutch_output_tail_done(struct output_tail *tail)
{
    hutch_text_done(&tail->pieces);
    *tail = (struct output_tail)OUTPUT_TAIL_INIT;
}
