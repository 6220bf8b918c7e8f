#include "runtime/e2b/moment.h"

#include "runtime/text/buffer.h"

#include <time.h>

double hutch_e2b_moment_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void hutch_e2b_moment_add(struct text_buffer *t, double seconds)
{
    time_t whole = (time_t)seconds;
    char text[32] = "";
    struct tm tm;

    if (gmtime_r(&whole, &tm))
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
    hutch_text_addf(t, "\"%s.%06uZ\"", text, (unsigned)((seconds - (double)whole) * 1e6) % 1000000u);
}
