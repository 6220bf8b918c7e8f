#include "sandbox/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static void write_line(const char *line, size_t len)
{
    if (write(STDERR_FILENO, line, len) < 0)
        return; /* stderr is closed */
}

static bool verbose;
static void (*write_debug)(const char *line, size_t len) = write_line;

void hutch_log_set_verbose(bool is_verbose)
{
    verbose = is_verbose;
}

void hutch_log_set_writer(void (*writer)(const char *line, size_t len))
{
    write_debug = writer;
}

void hutch_log_debug(const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    int head, n;

    if (!verbose)
        return;
    head = snprintf(line, sizeof(line), "hutch: debug: ");
    va_start(ap, fmt);
    n = vsnprintf(line + head, sizeof(line) - (size_t)head - 1, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    n += head;
    if (n > (int)sizeof(line) - 2)
        n = (int)sizeof(line) - 2;
    line[n++] = '\n';
    write_debug(line, (size_t)n);
}
