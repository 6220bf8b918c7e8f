#include "runtime/batch/sample.h"

#include "runtime/batch/fields_priv.h"
#include "runtime/batch/task.h"
#include "sandbox/fd.h"

int hutch_batch_sample_id(const char *where, enum batch_format format, struct json_view record, char **ret,
                          struct hutch_err *err)
{
    struct batch_fields f = { .where = where, .record = record, .err = err };
    struct json_view id;

    return hutch_batch_read_id(&f, format, &id, ret);
}

int hutch_batch_sample_read(const char *where, struct json_view record, bool has_prompt, struct batch_sample *ret,
                            struct hutch_err *err)
{
    static const struct {
        const char *key;
        bool is_completion;
    } rows[] = { { "solution", false }, { "completion", true }, { "code", false }, { "program", false } };
    struct batch_fields f = { .where = where, .record = record, .err = err };
    struct batch_sample sample = { .program = JSON_VIEW_NONE };

    for (size_t i = 0; i < ARRAY_SIZE(rows) && !sample.program.text; i++) {
        if (hutch_batch_read_text(&f, rows[i].key, BATCH_PROGRAM_MAX, OPTIONAL, &sample.program) < 0)
            return -1;
        sample.is_completion = rows[i].is_completion && has_prompt;
    }
    if (!sample.program.text)
        return hutch_batch_refuse(&f, "the key \"completion\" (or \"solution\") is missing");
    *ret = sample;
    return 0;
}

int hutch_batch_sample_own(const char *where, const struct batch_task *task, struct batch_sample *ret,
                           struct hutch_err *err)
{
    if (!task->program.text)
        return hutch_err_set(err, 0, "%s: the task '%s' has no program of its own (--samples FILE gives programs)",
                             where, task->id);
    *ret = (struct batch_sample){ .program = task->program,
                                  .is_completion = task->prompt.text && task->format == BATCH_HUMANEVAL };
    return 0;
}
