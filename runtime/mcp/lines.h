/* lines.h - bytes that come in pieces, as lines of bounded length. */
#ifndef HUTCH_MCP_LINES_H
#define HUTCH_MCP_LINES_H

#include <stdbool.h>
#include <stddef.h>

struct line_events {
    /* A line without its end ("\n", or "\r\n"); not empty, not NUL-terminated. */
    void (*on_line)(void *owner, const char *line, size_t len);
    /* A line has become longer than the most; the rest of it is skipped. */
    void (*on_long)(void *owner);
};

struct lines {
    const struct line_events *events;
    void *owner;
    size_t max;       /* bytes of a line */
    char *data;       /* owned; the line that has not ended */
    size_t len, room;
    bool is_skipping; /* up to the end of a line that was too long */
};

void hutch_lines_init(struct lines *l, const struct line_events *events, void *owner, size_t max);
void hutch_lines_done(struct lines *l);

/* Takes the next piece, and tells of each line that ends in it. -1 with errno: memory was short. */
int hutch_lines_feed(struct lines *l, const char *data, size_t len);

#endif
