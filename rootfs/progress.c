#include "rootfs/progress.h"

#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <stdio.h>
#include <sys/ioctl.h>

#define QUIET_MS 500
#define REDRAW_MS 100

static void write_text(int fd, const char *text, int len)
{
    if (len > 0 && hutch_fd_write_all(fd, text, (size_t)len) < 0)
        return; /* a bar that cannot be drawn is no reason to stop the work */
}

void hutch_progress_start(struct progress *p, int fd, const char *what)
{
    *p = (struct progress){
        .fd = fd, .is_terminal = isatty(fd) == 1, .started_ms = (uint64_t)hutch_clock_ms(), .what = what
    };
}

void hutch_progress_update(struct progress *p, uint64_t done, uint64_t total)
{
    static const char full[] = "########################################";
    static const char empty[] = "                                        ";
    char line[256];
    struct winsize size;
    uint64_t now;
    int columns = 80, width, filled, n;

    if (!p->is_terminal || total == 0)
        return;
    now = (uint64_t)hutch_clock_ms();
    if (now - p->started_ms < QUIET_MS || (p->is_drawn && now - p->drawn_ms < REDRAW_MS))
        return;
    if (ioctl(p->fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        columns = size.ws_col;
    if (done > total)
        done = total;
    width = columns - 40;
    if (width > 40)
        width = 40;
    if (width < 0)
        width = 0;
    filled = (int)((double)done / (double)total * width);
    n = snprintf(line, sizeof(line), "\r%-24.24s [%.*s%.*s] %3d%%\033[K", p->what, filled, full, width - filled, empty,
                 (int)((double)done / (double)total * 100));
    write_text(p->fd, line, n < (int)sizeof(line) ? n : (int)sizeof(line) - 1);
    p->is_drawn = true;
    p->drawn_ms = now;
}

void hutch_progress_end(struct progress *p)
{
    if (p->is_drawn)
        write_text(p->fd, "\r\033[K", 4);
    p->is_drawn = false;
}
