/* moment.h - times as E2B writes them: RFC 3339, in UTC. */
#ifndef HUTCH_E2B_MOMENT_H
#define HUTCH_E2B_MOMENT_H

struct text_buffer;

/* Seconds since 1970. */
double hutch_e2b_moment_now(void);
/* With its quotes, to the microsecond. */
void hutch_e2b_moment_add(struct text_buffer *t, double seconds);

#endif
