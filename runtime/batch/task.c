#include "runtime/batch/task.h"

#include "runtime/batch/fields_priv.h"
#include "runtime/batch/format_priv.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define CASES_MAX 100000

int hutch_batch_task_reserve_cases(const struct batch_fields *f, size_t n, struct batch_task *t)
{
    struct batch_case *cases;

    if (n > CASES_MAX || t->n_cases + n > CASES_MAX)
        return hutch_batch_refuse(f, "more than %d test cases", CASES_MAX);
    cases = realloc(t->cases, (t->n_cases + n) * sizeof(*cases) + 1);
    if (!cases)
        return hutch_err_set(f->err, ENOMEM, "%s", f->where);
    t->cases = cases;
    return 0;
}

int hutch_batch_task_read_language(const struct batch_fields *f, struct json_view object, struct batch_task *t)
{
    static const char *const python_names[] = { "python", "python3", "py" };
    struct json_view value = hutch_json_view_get(object, "language");
    char *text = NULL;

    if (value.len > BATCH_NAME_MAX && hutch_json_view_is_string(value))
        return hutch_batch_refuse(f, "the value of \"language\" is too long");
    if (hutch_json_view_is_string(value) && hutch_batch_read_string(f, "language", value, &text) < 0)
        return -1;
    for (size_t i = 0; text && i < ARRAY_SIZE(python_names); i++)
        if (strcasecmp(text, python_names[i]) == 0) {
            free(text);
            text = NULL;
        }
    if (!text)
        text = strdup("python");
    if (!text)
        return hutch_err_set(f->err, ENOMEM, "%s", f->where);
    free(t->language);
    t->language = text;
    return 0;
}

int hutch_batch_task_read(const struct batch_task_options *options, const char *where, char *text,
                          struct json_view record, struct batch_task *ret, struct hutch_err *err)
{
    static int (*const read_format[])(const struct batch_fields *, const struct batch_task_options *,
                                      struct batch_task *) = {
        [BATCH_GENERIC] = hutch_batch_read_generic,
        [BATCH_HUMANEVAL] = hutch_batch_read_humaneval,
        [BATCH_MBPP] = hutch_batch_read_mbpp,
        [BATCH_STDIO] = hutch_batch_read_stdio,
    };
    _Static_assert(ARRAY_SIZE(read_format) == BATCH_FORMAT_COUNT, "every format has a reader");
    struct batch_fields f = { .where = where, .record = record, .err = err };
    struct batch_task task = { .text = text, .format = options->format };
    int rc = hutch_batch_read_id(&f, options->format, &task.id_json, &task.id);

    if (rc == 0)
        rc = read_format[options->format](&f, options, &task);
    if (rc == 0 && !task.language) {
        task.language = strdup("python");
        rc = task.language ? 0 : hutch_err_set(err, ENOMEM, "%s", where);
    }
    if (rc < 0) {
        hutch_batch_task_done(&task);
        return -1;
    }
    *ret = task;
    return 0;
}

void hutch_batch_task_done(struct batch_task *task)
{
    free(task->text);
    for (size_t i = 0; i < ARRAY_SIZE(task->inner); i++)
        free(task->inner[i]);
    free(task->id);
    free(task->language);
    free(task->cases);
    *task = (struct batch_task)BATCH_TASK_INIT;
}
