/* stream.h - the text of one of an interpreter's two pipes: made UTF-8, and kept with the places of its marks until it
 * is told.
 *
 * Places count bytes from the pipe's beginning. The marks are those of runtime/cell/feed.h, which
 * runtime/cell/marks.h finds. */
#ifndef HUTCH_CELL_STREAM_H
#define HUTCH_CELL_STREAM_H

#include "runtime/text/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cell_stream_mark {
    uint32_t n;
    uint64_t end; /* of the text before it */
};

struct cell_stream {
    char cut[4]; /* a character whose end has not come */
    size_t n_cut;
    struct text_buffer text; /* what waits, from byte @start on */
    size_t start;
    uint64_t begin;    /* the place of text.data[0] */
    uint64_t since_ms; /* when the first byte came of what waits for the next mark */
    struct cell_stream_mark *marks; /* owned; in the order of the text */
    size_t n_marks, marks_room;
    bool has_lost; /* text, for lack of memory, since the owner last looked */
};
#define CELL_STREAM_INIT { .text = TEXT_BUFFER_INIT }

void hutch_cell_stream_done(struct cell_stream *s);
/* Forgets what waits; its place counts as passed. */
void hutch_cell_stream_forget(struct cell_stream *s);
/* Gives back memory that is not in use: for an interpreter that waits long. */
void hutch_cell_stream_shrink(struct cell_stream *s);

/* Any bytes: what is not UTF-8 becomes U+FFFD, and the beginning of a character at the end is put aside. */
void hutch_cell_stream_add(struct cell_stream *s, const char *data, size_t len, uint64_t now_ms);
/* The rest of a character that was begun will not come: U+FFFD instead. False: none was begun. */
bool hutch_cell_stream_end_character(struct cell_stream *s, uint64_t now_ms);

/* A mark after the text so far. */
void hutch_cell_stream_add_mark(struct cell_stream *s, uint32_t n, uint64_t now_ms);
/* @ret_index: in the list. */
bool hutch_cell_stream_find_mark(const struct cell_stream *s, uint32_t n, size_t *ret_index);
/* Takes the first @n marks off the list; text after them goes on waiting since it did. */
void hutch_cell_stream_drop_marks(struct cell_stream *s, size_t n);
/* The same, and text after them waits from @now_ms on. */
void hutch_cell_stream_pass_marks(struct cell_stream *s, size_t n, uint64_t now_ms);

size_t hutch_cell_stream_waiting(const struct cell_stream *s); /* bytes */
uint64_t hutch_cell_stream_end(const struct cell_stream *s);
/* The head is the text that waits for the first mark, or for any when there is none: where it ends, and whether
 * there is some. */
uint64_t hutch_cell_stream_head_end(const struct cell_stream *s);
bool hutch_cell_stream_has_head(const struct cell_stream *s);

/* What waits before the place @end, for as long as nothing is added. */
const char *hutch_cell_stream_text(const struct cell_stream *s, uint64_t end, size_t *ret_len);
/* So many bytes were told. */
void hutch_cell_stream_consume(struct cell_stream *s, size_t len);

#endif
