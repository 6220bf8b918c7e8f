/* progress.h - a bar on a terminal for work that takes long enough to wonder about. Elsewhere it draws nothing. */
#ifndef HUTCH_PROGRESS_H
#define HUTCH_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    int fd;
    bool is_terminal, is_drawn;
    uint64_t started_ms, drawn_ms; /* CLOCK_MONOTONIC */
    const char *what;
};

/* Draws on @fd when that is a terminal. @what stays the caller's until hutch_progress_end(). */
void hutch_progress_start(struct progress *p, int fd, const char *what);
/* Draws at most ten times a second, and nothing in the first half second. */
void hutch_progress_update(struct progress *p, uint64_t done, uint64_t total);
/* Takes the bar away. */
void hutch_progress_end(struct progress *p);

#endif
