/* moment.h - a point in time as RFC 3339 writes it, in UTC. */
#ifndef HUTCH_TEXT_MOMENT_H
#define HUTCH_TEXT_MOMENT_H

struct text_buffer;

#define MOMENT_MAX_DIGITS 6

/* Adds "2001-02-03T04:05:06.789Z", with its quotes and so many @digits of the second, cut and not rounded. @seconds
 * since 1970 may be anything, as programs set the times of their files: what is not within the years 1 to 9999, which
 * is what clients can read, is told as the nearest that is; no number at all as the first. */
void hutch_moment_add(struct text_buffer *t, double seconds, unsigned digits);

#endif
