#include "runtime/gateway/range.h"

#include <stdbool.h>
#include <string.h>

/* Digits at *text, at least one; false when there are none or too many. */
static bool read_number(const char **text, uint64_t *ret)
{
    const char *p = *text;
    uint64_t n = 0;

    for (; *p >= '0' && *p <= '9'; p++) {
        if (n > (UINT64_MAX - 9) / 10)
            return false;
        n = n * 10 + (uint64_t)(*p - '0');
    }
    *ret = n;
    return p != *text && (*text = p);
}

struct range hutch_range_parse(const char *header, uint64_t size)
{
    struct range whole = { RANGE_WHOLE, 0, size }, none = { RANGE_UNSATISFIABLE, 0, 0 };
    uint64_t first, last;

    if (!header || strncmp(header, "bytes=", 6) != 0)
        return whole;
    header += 6;
    if (*header == '-') { /* the last bytes */
        header++;
        if (!read_number(&header, &last) || *header)
            return whole;
        if (last == 0 || size == 0)
            return none;
        last = last < size ? last : size;
        return (struct range){ RANGE_PART, size - last, last };
    }
    if (!read_number(&header, &first) || *header++ != '-')
        return whole;
    if (*header == '\0')
        last = UINT64_MAX;
    else if (!read_number(&header, &last) || *header || last < first)
        return whole;
    if (first >= size)
        return none;
    last = last < size ? last : size - 1;
    return (struct range){ RANGE_PART, first, last - first + 1 };
}
