/* merge.h - one answer of what several workers have answered, each for itself. */
#ifndef HUTCH_GATEWAY_MERGE_H
#define HUTCH_GATEWAY_MERGE_H

#include "sandbox/err.h"

#include <stddef.h>

/* @texts: @n of them, one at least, NUL-terminated. The result is the caller's to free. NULL: memory was short, or one
 * is not of the kind. */
typedef char *merge_function(const char *const *texts, size_t n, size_t *ret_len);

/* JSON: an array, or an object with arrays, which get the elements of all; all else is the first one's. */
merge_function hutch_merge_lists;
/* JSON: numbers are added, true is what all say; elements of arrays that have the same "name" are one; other text is
 * the first one's. */
merge_function hutch_merge_sums;
/* Prometheus' text: numbers of the same sample are added. What is 0 or 1, hutch_ready, is the lowest. What only one
 * has stands with the others of its metric, of which the first text has at least the comments. */
merge_function hutch_merge_metrics;

#endif
