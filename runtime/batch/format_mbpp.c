#include "runtime/batch/fields_priv.h"
#include "runtime/batch/format_priv.h"

int hutch_batch_read_mbpp(const struct batch_fields *f, const struct batch_task_options *options, struct batch_task *t)
{
    t->judging = BATCH_BY_TESTS;
    if (hutch_batch_read_text(f, "code", BATCH_PROGRAM_MAX, OPTIONAL, &t->program) < 0 ||
        hutch_batch_read_texts(f, "test_imports", BATCH_PROGRAM_MAX, &t->before) < 0 ||
        hutch_batch_read_text(f, "test_setup_code", BATCH_PROGRAM_MAX, OPTIONAL, &t->before_more) < 0)
        return -1;
    if (hutch_batch_has(f->record, "test")) /* MBPP+: a program instead of the list */
        return hutch_batch_read_text(f, "test", BATCH_PROGRAM_MAX, REQUIRED, &t->tests);
    if (hutch_batch_read_texts(f, "test_list", BATCH_PROGRAM_MAX, &t->tests) < 0)
        return -1;
    if (!hutch_json_view_is_array(t->tests) || hutch_json_view_count(t->tests) == 0)
        return hutch_batch_refuse(f, "the key \"test_list\" is missing, or lists nothing");
    if (!options->with_challenge)
        return 0;
    return hutch_batch_read_texts(f, "challenge_test_list", BATCH_PROGRAM_MAX, &t->more_tests);
}
