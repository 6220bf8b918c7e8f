/* frames.h - frames from an interpreter's socket: uint32 little endian length, then so many bytes. It never blocks, and
 * never believes a length: the buffer grows with what has come. */
#ifndef HUTCH_CELL_FRAMES_H
#define HUTCH_CELL_FRAMES_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CELL_MAX_FRAME (32u << 20) /* bytes after the length */

struct cell_frames {
    int fd;           /* not owned; non-blocking */
    char *data;       /* owned */
    size_t start, len; /* what is in it: from here, so much */
    size_t room;
};
#define CELL_FRAMES_INIT { .fd = -1 }

enum cell_frames_state {
    CELL_FRAME_NONE,  /* nothing more for now */
    CELL_FRAME_READY, /* one frame, valid until the next call */
    CELL_FRAME_END    /* the other end is closed */
};
/* The next frame, without its length and not NUL-terminated. Reads only when there is no whole one. -1: a length
 * that is too large, an end within a frame; an errno of read(2); ENOMEM. */
int hutch_cell_frames_next(struct cell_frames *f, const char **ret_frame, size_t *ret_len, struct hutch_err *err);
/* A whole frame was read already: the descriptor need not become readable for the next call to give one. */
bool hutch_cell_frames_has_one(const struct cell_frames *f);
void hutch_cell_frames_done(struct cell_frames *f); /* the descriptor stays open */

#endif
