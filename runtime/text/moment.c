#include "runtime/text/moment.h"

#include "runtime/text/buffer.h"

#include <assert.h>
#include <math.h>
#include <time.h>

#define FIRST (-62135596800.0) /* 0001-01-01T00:00:00Z */
#define LAST  253402300799.0   /* 9999-12-31T23:59:59Z */

static void add_fraction(struct text_buffer *t, double fraction, unsigned digits)
{
    double scale = 1;

    for (unsigned i = 0; i < digits; i++)
        scale *= 10;
    if (digits)
        hutch_text_addf(t, ".%0*u", (int)digits, (unsigned)(fraction * scale));
}

void hutch_moment_add(struct text_buffer *t, double seconds, unsigned digits)
{
    struct tm tm = { .tm_mday = 1 };
    double whole;
    time_t time;

    assert(digits <= MOMENT_MAX_DIGITS);
    seconds = seconds >= FIRST ? seconds : FIRST; /* so that NaN is that, too */
    seconds = seconds <= LAST ? seconds : LAST;
    whole = floor(seconds);
    time = (time_t)whole;
    gmtime_r(&time, &tm); /* fails only for years that are no int */
    hutch_text_addf(t, "\"%04d-%02d-%02dT%02d:%02d:%02d", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
                    tm.tm_min, tm.tm_sec); /* strftime's %Y has no zeros before it */
    add_fraction(t, seconds - whole, digits);
    hutch_text_add_string(t, "Z\"");
}
