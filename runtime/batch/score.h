/* score.h - pass@k: how likely is it that of k samples of a task at least one is right? */
#ifndef HUTCH_BATCH_SCORE_H
#define HUTCH_BATCH_SCORE_H

#include <stdint.h>

/* The unbiased estimator from @n samples of which @correct are right: 1 - C(n - correct, k) / C(n, k), by a product
 * that neither overflows nor cancels (Chen et al. 2021). @k is at most @n. */
double hutch_batch_pass_at_k(uint64_t n, uint64_t correct, uint64_t k);

#endif
