/* silence.h - what a stream says when nothing was said for a while, so that no proxy or client takes it for dead. */
#ifndef HUTCH_GATEWAY_SILENCE_H
#define HUTCH_GATEWAY_SILENCE_H

#include <stddef.h>
#include <sys/queue.h>

struct exchange;

/* Of one exchange, which it is a part of. All zeros: it keeps silent. */
struct silence {
    LIST_ENTRY(silence) in_list;
    struct exchange *x;
    const char *sign;  /* what is said; static */
    size_t len;
    double every_ms;   /* 0: never */
    double spoke_ms;   /* when something was said last */
};

/* Of a server. */
struct silences {
    LIST_HEAD(, silence) list;
    double next_ms;    /* none is due before */
};

/* From here on @x says @sign after each @every_ms without another word; not before its client has taken all that there
 * was. @x has begun a stream. */
void hutch_silence_begin(struct silences *all, struct silence *s, struct exchange *x, const char *sign, size_t len,
                         double every_ms);
void hutch_silence_end(struct silence *s);
/* Something was said. */
void hutch_silence_break(struct silence *s);

/* When the next one may be due, in milliseconds of the clock; negative: there is none. */
double hutch_silences_deadline(const struct silences *all);
void hutch_silences_tick(struct silences *all, double now_ms);

#endif
