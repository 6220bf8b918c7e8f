#include "runtime/term/backlog.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SINK_CHUNK 4096 /* as in stream.c: what a writable pipe takes for certain */

bool hutch_backlog_add(struct backlog *b, const char *data, size_t len)
{
    if (b->write_errno)
        return true;
    if (b->end + len > b->room && b->start > b->room / 2) { /* half of it was written: the move is worth it */
        memmove(b->data, b->data + b->start, b->end - b->start);
        b->end -= b->start;
        b->start = 0;
    }
    if (b->end + len > b->room) {
        size_t room = 2 * (b->end + len);
        char *bigger = realloc(b->data, room);

        if (!bigger)
            return false;
        b->data = bigger;
        b->room = room;
    }
    memcpy(b->data + b->end, data, len);
    b->end += len;
    return true;
}

bool hutch_backlog_is_empty(const struct backlog *b)
{
    return b->start == b->end;
}

bool hutch_backlog_is_long(const struct backlog *b)
{
    return b->end - b->start > BACKLOG_LONG;
}

void hutch_backlog_pass_on(struct backlog *b)
{
    size_t len = b->end - b->start;
    ssize_t n = write(b->fd, b->data + b->start, len > SINK_CHUNK ? SINK_CHUNK : len);

    if (n > 0)
        b->start += (size_t)n;
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        b->write_errno = errno;
    if (hutch_backlog_is_empty(b) || b->write_errno)
        b->start = b->end = 0;
}

void hutch_backlog_done(struct backlog *b)
{
    free(b->data);
    *b = (struct backlog){ .fd = -1 };
}
