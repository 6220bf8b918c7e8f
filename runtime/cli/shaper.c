#include "runtime/cli/shaper.h"

#include "runtime/term/terminal.h"

#include <string.h>

static void append(void *user, const char *text, size_t len)
{
    struct shaper *shaper = user;

    memcpy(shaper->to + shaper->n, text, len);
    shaper->n += len;
}

/* The longest text that one byte can become is the three of U+FFFD. A letter of two becomes six ("\u202e"), one of four
 * ten ("\U0001f600"), and a sequence that is held back adds less than what STREAM_SHAPED() has beyond. */
_Static_assert(STREAM_SHAPED(0) > 3 * TERM_SEQUENCE_MAX + 4, "what is held back fits");

static size_t shape(struct stream_shaper *base, const char *data, size_t len, char *to)
{
    struct shaper *shaper = (struct shaper *)base;

    shaper->to = to;
    shaper->n = 0;
    hutch_term_filter(&shaper->filter, data, len, append, shaper);
    return shaper->n;
}

static size_t end(struct stream_shaper *base, char *to)
{
    struct shaper *shaper = (struct shaper *)base;

    shaper->to = to;
    shaper->n = 0;
    hutch_term_filter_end(&shaper->filter, append, shaper);
    return shaper->n;
}

struct stream_shaper *hutch_shaper_init(struct shaper *shaper, int fd, bool is_raw)
{
    *shaper = (struct shaper){ .base = { .shape = shape, .end = end } };
    return hutch_term_describe(fd, &shaper->filter) && !is_raw ? &shaper->base : NULL;
}
