/* decimal.h - numbers as text, of any length and without rounding. */
#ifndef HUTCH_BATCH_DECIMAL_H
#define HUTCH_BATCH_DECIMAL_H

#include <stdbool.h>

/* A part of a text. */
struct batch_span {
    const char *p, *end;
};

/* Are both numbers, and of equal value? "1.0" is "1"; nothing is "nan". */
bool hutch_batch_decimal_is_same(struct batch_span a, struct batch_span b);

#endif
