/* range.h - the header Range: RFC 9110, section 14. */
#ifndef HUTCH_GATEWAY_RANGE_H
#define HUTCH_GATEWAY_RANGE_H

#include <stdint.h>

enum range_kind {
    RANGE_WHOLE,        /* none was asked for, or what may be ignored: other units, several ranges, no syntax */
    RANGE_PART,
    RANGE_UNSATISFIABLE /* it begins behind the end */
};

struct range {
    enum range_kind kind;
    uint64_t first, len;
};

/* @header may be NULL. The part lies within the @size bytes. */
struct range hutch_range_parse(const char *header, uint64_t size);

#endif
