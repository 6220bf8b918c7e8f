/* Lengths and frames from descriptor 3, in pieces as a pipe gives them. */
#include "runtime/cell/frames.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cell_frames frames = CELL_FRAMES_INIT;
    struct hutch_err err = { .msg = "" };
    const char *frame;
    size_t len, said = 0, total = size;
    int fds[2], rc = CELL_FRAME_NONE;

    fuzz_check(pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0);
    frames.fd = fds[0];
    while (rc == CELL_FRAME_NONE || rc == CELL_FRAME_READY) {
        if (rc == CELL_FRAME_READY) {
            said += len;
            fuzz_check(said <= total);
            if (len)
                fuzz_check(frame[0] == frame[0] && frame[len - 1] == frame[len - 1]); /* can be read */
        } else if (size > 0) {
            char *piece = fuzz_piece(&data, &size, &len);

            fuzz_check(write(fds[1], piece, len) == (ssize_t)len);
            free(piece);
        } else {
            hutch_fd_closep(&fds[1]);
        }
        rc = hutch_cell_frames_next(&frames, &frame, &len, &err);
    }
    fuzz_check_err(rc, &err);
    hutch_cell_frames_done(&frames);
    hutch_fd_closep(&fds[0]);
    hutch_fd_closep(&fds[1]);
    return 0;
}
