#include "runtime/batch/tally.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static void count_sample(struct batch_tally *tally, const struct batch_item *item, enum batch_verdict verdict)
{
    tally->verdicts[verdict]++;
    if (verdict == BATCH_INTERNAL)
        return;
    tally->judged[item->group]++;
    tally->passed[item->group] += verdict == BATCH_PASS;
}

int hutch_batch_tally_begin(const struct batch_plan *plan, struct batch_tally *ret, struct hutch_err *err)
{
    struct batch_tally tally = { .n_done = 0 };

    tally.judged = calloc(plan->n_groups + 1, sizeof(*tally.judged));
    tally.passed = calloc(plan->n_groups + 1, sizeof(*tally.passed));
    if (!tally.judged || !tally.passed) {
        hutch_batch_tally_done(&tally);
        return hutch_err_set(err, ENOMEM, "count the results of %zu tasks", plan->n_groups);
    }
    for (size_t i = 0; i < plan->n_items; i++) {
        const struct batch_item *item = &plan->items[i];

        if (item->is_done)
            count_sample(&tally, item, (enum batch_verdict)item->verdict);
        else
            tally.n_left++;
    }
    *ret = tally;
    return 0;
}

void hutch_batch_tally_add(struct batch_tally *tally, const struct batch_item *item, const struct batch_task *task,
                           const struct batch_outcome *outcome)
{
    tally->n_done++;
    count_sample(tally, item, outcome->verdict);
    if (outcome->verdict == BATCH_INTERNAL && !tally->internal[0])
        snprintf(tally->internal, sizeof(tally->internal), "task '%.100s': %.380s", task->id, outcome->text);
}

void hutch_batch_tally_done(struct batch_tally *tally)
{
    free(tally->judged);
    free(tally->passed);
    tally->judged = tally->passed = NULL;
}
