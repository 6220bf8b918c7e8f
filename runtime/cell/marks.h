/* marks.h - finds an interpreter's marks in what comes out of a pipe, however the reads cut them, and takes them out:
 * runtime/cell/feed.h says what they are. */
#ifndef HUTCH_CELL_MARKS_H
#define HUTCH_CELL_MARKS_H

#include <stddef.h>
#include <stdint.h>

#define CELL_TOKEN_LEN 32
#define CELL_MARK_LEN (1 + CELL_TOKEN_LEN + 8 + 1)

struct cell_marks {
    char token[CELL_TOKEN_LEN];
    char held[CELL_MARK_LEN]; /* what may become a mark */
    size_t n_held;
};

/* Either function comes as often as it takes, in the order of the bytes. */
struct cell_marks_sink {
    void (*on_text)(void *user, const char *data, size_t len);
    void (*on_mark)(void *user, uint32_t n);
    void *user;
};

void hutch_cell_marks_init(struct cell_marks *m, const char token[CELL_TOKEN_LEN]);
/* Hands out all but at most CELL_MARK_LEN - 1 bytes at the end, which may be the beginning of a mark. */
void hutch_cell_marks_put(struct cell_marks *m, const char *data, size_t len, const struct cell_marks_sink *sink);
/* No more will come: what was held back is text. */
void hutch_cell_marks_finish(struct cell_marks *m, const struct cell_marks_sink *sink);

#endif
