#include "runtime/batch/progress.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#define REDRAW_MS 100
#define BAR_MIN 4
#define BAR_MAX 40
#define COLUMNS_UNKNOWN 80
/* Brackets, and the last column, where some terminals go on to the next line. */
#define COLUMNS_BESIDE_BAR 3

#define LINE_START "\r"
#define ERASE_TO_LINE_END "\033[K"

void hutch_batch_progress_start(struct batch_progress *p, int fd, bool is_wanted)
{
    *p = (struct batch_progress){
        .fd = fd, .is_terminal = is_wanted && isatty(fd) == 1, .started_ms = hutch_clock_ms(),
    };
}

static void format_left(const struct batch_progress_state *state, uint64_t elapsed_ms, char *text, size_t size)
{
    uint64_t seconds;

    if (state->done == 0) {
        snprintf(text, size, "--:--");
        return;
    }
    seconds = (uint64_t)((double)elapsed_ms / 1000 / (double)state->done * (double)(state->total - state->done) + 0.5);
    if (seconds >= 3600)
        snprintf(text, size, "%" PRIu64 ":%02u:%02u", seconds / 3600, (unsigned)(seconds / 60 % 60),
                 (unsigned)(seconds % 60));
    else
        snprintf(text, size, "%02u:%02u", (unsigned)(seconds / 60), (unsigned)(seconds % 60));
}

int hutch_batch_progress_format(const struct batch_progress_state *state, uint64_t elapsed_ms, int columns, char *line,
                                size_t size)
{
    static const char full[BAR_MAX + 1] = "########################################";
    char numbers[160], left[32];
    int width, filled, n;

    format_left(state, elapsed_ms, left, sizeof(left));
    n = snprintf(numbers, sizeof(numbers), " %zu/%zu  %.1f/s  %zu failed  ETA %s", state->done, state->total,
                 elapsed_ms ? (double)state->runs * 1000 / (double)elapsed_ms : 0.0, state->failed, left);
    width = columns - n - COLUMNS_BESIDE_BAR;
    if (width > BAR_MAX)
        width = BAR_MAX;
    if (width < BAR_MIN)
        return snprintf(line, size, "%.*s", columns > 1 ? columns - 1 : 1, numbers + 1);
    filled = state->total ? (int)((double)state->done / (double)state->total * width) : width;
    return snprintf(line, size, "[%.*s%*s]%s", filled, full, width - filled, "", numbers);
}

void hutch_batch_progress_update(struct batch_progress *p, const struct batch_progress_state *state)
{
    char line[256], text[300];
    struct winsize size;
    int columns = COLUMNS_UNKNOWN, n;
    double now;

    if (!p->is_terminal)
        return;
    now = hutch_clock_ms();
    if (p->is_drawn && now - p->drawn_ms < REDRAW_MS)
        return;
    if (ioctl(p->fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        columns = size.ws_col;
    hutch_batch_progress_format(state, (uint64_t)(now - p->started_ms), columns, line, sizeof(line));
    n = snprintf(text, sizeof(text), LINE_START "%s" ERASE_TO_LINE_END, line);
    if (hutch_fd_write_all(p->fd, text, (size_t)n) == 0)
        p->is_drawn = true;
    p->drawn_ms = now;
}

void hutch_batch_progress_end(struct batch_progress *p)
{
    static const char erase[] = LINE_START ERASE_TO_LINE_END;

    if (p->is_drawn && hutch_fd_write_all(p->fd, erase, strlen(erase)) < 0)
        p->is_terminal = false;
    p->is_drawn = false;
}
