/* quantity.h - sizes, durations, CPU counts and numbers as people type them.
 *
 * All of them take the whole text or refuse it: no sign, no surrounding blanks, no rest, no overflow. A zero is
 * a number like any other; what it means is the caller's business. @ret is untouched on failure, errnum is
 * EINVAL (not understood) or ERANGE (understood, too large). */
#ifndef HUTCH_TEXT_QUANTITY_H
#define HUTCH_TEXT_QUANTITY_H

#include "sandbox/err.h"

#include <stdint.h>

/* Bytes: "1073741824", "512m", "64M", "1.5g", "1GiB", "20kb". K, M, G, T are powers of 1024, upper or lower case. */
int hutch_parse_bytes(const char *text, uint64_t *ret, struct hutch_err *err);

/* Milliseconds: "500ms", "30s", "2m", "1.5h", "1d"; a plain number is seconds. What is left of a millisecond counts
 * as a whole one, so that only zero becomes zero. */
int hutch_parse_duration_ms(const char *text, uint64_t *ret, struct hutch_err *err);

/* Thousandths of a CPU: "1", "0.5", "2.25". What is left of a thousandth counts as a whole one. */
int hutch_parse_cpus(const char *text, uint64_t *ret, struct hutch_err *err);

/* A whole decimal number. */
int hutch_parse_u64(const char *text, uint64_t *ret, struct hutch_err *err);

#endif
