/* progress.h - one line on a terminal about a batch that runs. Elsewhere it draws nothing. */
#ifndef HUTCH_BATCH_PROGRESS_H
#define HUTCH_BATCH_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct batch_progress {
    int fd;
    bool is_terminal, is_drawn;
    double started_ms, drawn_ms;
};

struct batch_progress_state {
    size_t done, total, failed; /* samples; @done without those of an earlier run */
    uint64_t runs;
};

/* @is_wanted false: never draws. */
void hutch_batch_progress_start(struct batch_progress *p, int fd, bool is_wanted);
/* At most ten times a second. */
void hutch_batch_progress_update(struct batch_progress *p, const struct batch_progress_state *state);
/* Takes the line away. */
void hutch_batch_progress_end(struct batch_progress *p);

/* The line for a terminal of @columns after @elapsed_ms; exported for its test. Returns its length. */
int hutch_batch_progress_format(const struct batch_progress_state *state, uint64_t elapsed_ms, int columns, char *line,
                                size_t size);

#endif
