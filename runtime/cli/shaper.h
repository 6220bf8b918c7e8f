/* shaper.h - what a program writes to a terminal, made fit for it as it comes: runtime/term/filter.h for a run's
 * streams. */
#ifndef HUTCH_CLI_SHAPER_H
#define HUTCH_CLI_SHAPER_H

#include "runtime/run/stream.h"
#include "runtime/term/filter.h"

#include <stdbool.h>

struct shaper {
    struct stream_shaper base; /* first */
    struct term_filter filter;
    char *to; /* while it is at work */
    size_t n;
};

/* NULL: @fd is no terminal, or @is_raw, and the bytes go there as they are. Else @shaper's base. */
struct stream_shaper *hutch_shaper_init(struct shaper *shaper, int fd, bool is_raw);

#endif
