#include "runtime/batch/score.h"

double hutch_batch_pass_at_k(uint64_t n, uint64_t correct, uint64_t k)
{
    double all_wrong = 1;

    if (n - correct < k)
        return 1;
    for (uint64_t i = n - correct + 1; i <= n; i++)
        all_wrong *= 1 - (double)k / (double)i;
    return 1 - all_wrong;
}
