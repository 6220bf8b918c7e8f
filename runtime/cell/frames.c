#include "runtime/cell/frames.h"

#include "sandbox/fd.h"

#include <string.h>

#define HEADER_LEN 4
#define LEAST_ROOM 4096
#define KEPT_ROOM 65536 /* a larger buffer is given back after the frame that needed it */

static uint32_t frame_len(const struct cell_frames *f)
{
    const uint8_t *p = (const uint8_t *)f->data + f->start;

    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static int set_room(struct cell_frames *f, size_t room, struct hutch_err *err)
{
    char *data = realloc(f->data, room);

    if (data == NULL)
        return hutch_err_set(err, ENOMEM, "read a frame of %zu bytes", room);
    f->data = data;
    f->room = room;
    return 0;
}

/* Makes place behind what is in the buffer, which is not a whole frame. */
static int make_place(struct cell_frames *f, struct hutch_err *err)
{
    if (f->start > 0) {
        memmove(f->data, f->data + f->start, f->len);
        f->start = 0;
        if (f->room > KEPT_ROOM && f->len < LEAST_ROOM && set_room(f, LEAST_ROOM, err) < 0)
            return -1;
    }
    return f->len < f->room ? 0 : set_room(f, f->room != 0 ? 2 * f->room : LEAST_ROOM, err);
}

int hutch_cell_frames_next(struct cell_frames *f, const char **ret_frame, size_t *ret_len, struct hutch_err *err)
{
    for (;;) {
        ssize_t n;

        if (f->len >= HEADER_LEN) {
            size_t len = frame_len(f);

            if (len > CELL_MAX_FRAME)
                return hutch_err_set(err, 0, "a frame of %zu bytes is more than %u", len, CELL_MAX_FRAME);
            if (f->len - HEADER_LEN >= len) {
                *ret_frame = f->data + f->start + HEADER_LEN;
                *ret_len = len;
                f->start += HEADER_LEN + len;
                f->len -= HEADER_LEN + len;
                return CELL_FRAME_READY;
            }
        }
        if (make_place(f, err) < 0)
            return -1;
        n = TEMP_FAILURE_RETRY(read(f->fd, f->data + f->len, f->room - f->len));
        if (n < 0)
            return errno == EAGAIN ? CELL_FRAME_NONE : hutch_err_set(err, errno, "read a frame");
        if (n == 0)
            return f->len == 0 ? CELL_FRAME_END : hutch_err_set(err, 0, "the end came within a frame");
        f->len += (size_t)n;
    }
}

bool hutch_cell_frames_has_one(const struct cell_frames *f)
{
    return f->len >= HEADER_LEN && f->len - HEADER_LEN >= frame_len(f);
}

void hutch_cell_frames_done(struct cell_frames *f)
{
    const struct cell_frames fresh = CELL_FRAMES_INIT;

    free(f->data);
    *f = fresh;
}
