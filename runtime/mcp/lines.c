#include "runtime/mcp/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void hutch_lines_init(struct lines *l, const struct line_events *events, void *owner, size_t max)
{
    *l = (struct lines){ .events = events, .owner = owner, .max = max };
}

void hutch_lines_done(struct lines *l)
{
    free(l->data);
    l->data = NULL;
    l->len = l->room = 0;
}

static int keep(struct lines *l, const char *data, size_t len)
{
    if (l->len + len > l->room) {
        size_t room = 2 * (l->len + len);
        char *bigger = realloc(l->data, room);

        if (!bigger) {
            errno = ENOMEM;
            return -1;
        }
        l->data = bigger;
        l->room = room;
    }
    memcpy(l->data + l->len, data, len);
    l->len += len;
    return 0;
}

static void tell_line(struct lines *l, const char *line, size_t len)
{
    if (len > 0 && line[len - 1] == '\r')
        len--;
    if (len > 0)
        l->events->on_line(l->owner, line, len);
}

/* @len bytes more of the line; none of them ends it. */
static int extend(struct lines *l, const char *data, size_t len)
{
    if (l->is_skipping || len == 0)
        return 0;
    if (l->len + len <= l->max)
        return keep(l, data, len);
    l->is_skipping = true;
    hutch_lines_done(l);
    l->events->on_long(l->owner);
    return 0;
}

int hutch_lines_feed(struct lines *l, const char *data, size_t len)
{
    const char *end = data + len, *newline;

    while (data < end && (newline = memchr(data, '\n', (size_t)(end - data)))) {
        if (!l->is_skipping && l->len == 0 && (size_t)(newline - data) <= l->max) {
            tell_line(l, data, (size_t)(newline - data)); /* all of it came at once, as nearly always */
        } else {
            if (extend(l, data, (size_t)(newline - data)) < 0)
                return -1;
            if (!l->is_skipping)
                tell_line(l, l->data, l->len);
            l->is_skipping = false;
            l->len = 0;
        }
        data = newline + 1;
    }
    if (l->len == 0 && l->room > 65536)
        hutch_lines_done(l); /* a long line leaves no memory behind */
    return extend(l, data, (size_t)(end - data));
}
