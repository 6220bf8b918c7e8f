/* backlog.h - what is to be written to a descriptor that may block, kept for a loop that must not: it has clocks. */
#ifndef HUTCH_TERM_BACKLOG_H
#define HUTCH_TERM_BACKLOG_H

#include <stdbool.h>
#include <stddef.h>

struct backlog {
    int fd;          /* not owned; blocking or not */
    int write_errno; /* of the write that failed: what is added from then on is dropped; 0: none */
    char *data;      /* owned */
    size_t start, end, room;
};

/* False: ENOMEM. */
bool hutch_backlog_add(struct backlog *b, const char *data, size_t len);
bool hutch_backlog_is_empty(const struct backlog *b);
/* Its reader is slow. The source of more should be read seldom, but every BACKLOG_PAUSE_MS, as its clocks are due. */
bool hutch_backlog_is_long(const struct backlog *b);
#define BACKLOG_LONG     (16u << 20)
#define BACKLOG_PAUSE_MS 100
/* After poll(2) said POLLOUT: one piece, which it takes for certain. */
void hutch_backlog_pass_on(struct backlog *b);
void hutch_backlog_done(struct backlog *b);

#endif
