#include "runtime/batch/fields_priv.h"
#include "runtime/batch/format_priv.h"

int hutch_batch_read_humaneval(const struct batch_fields *f, const struct batch_task_options *options,
                               struct batch_task *t)
{
    (void)options;
    t->judging = BATCH_BY_TESTS;
    t->is_checked = true;
    if (hutch_batch_read_text(f, "prompt", BATCH_PROGRAM_MAX, REQUIRED, &t->prompt) < 0 ||
        hutch_batch_read_text(f, "entry_point", BATCH_ID_MAX, REQUIRED, &t->entry) < 0 ||
        hutch_batch_read_text(f, "canonical_solution", BATCH_PROGRAM_MAX, OPTIONAL, &t->program) < 0 ||
        hutch_batch_read_text(f, "test", BATCH_PROGRAM_MAX, REQUIRED, &t->tests) < 0)
        return -1;
    return 0;
}
