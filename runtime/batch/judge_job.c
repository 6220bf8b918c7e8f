#include "runtime/batch/judge_job.h"

#include "runtime/batch/prelude.h"
#include "runtime/batch/sample.h"
#include "runtime/batch/task.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_view.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <string.h>

/* Tests of a function that has values for arguments; a tuple counts as a list, for JSON has no tuples. */
static const char function_tests[] =
    "def check(candidate):\n"
    "    for arguments, want in DATA:\n"
    "        got = candidate(*arguments)\n"
    "        if isinstance(got, tuple):\n"
    "            got = list(got)\n"
    "        assert got == want, 'case %d' % [a is arguments for a, _ in DATA].index(True)\n";

static void add_key(struct text_buffer *t, const char *key)
{
    hutch_text_addf(t, ",\"%s\":", key);
}

static void add_json(struct text_buffer *t, struct json_view value, const char *otherwise)
{
    if (value.text)
        hutch_text_add(t, value.text, value.len);
    else
        hutch_text_add_string(t, otherwise);
}

static void add_flag(struct text_buffer *t, const char *key, bool value)
{
    hutch_text_addf(t, ",\"%s\":%s", key, value ? "true" : "false");
}

/* The items of a text or an array of texts, without brackets; @is_first says whether a comma goes before. */
static void add_items(struct text_buffer *t, struct json_view value, bool *is_first)
{
    bool is_array = hutch_json_view_is_array(value);

    if (!value.text || (is_array && hutch_json_view_count(value) == 0))
        return;
    if (!*is_first)
        hutch_text_add_string(t, ",");
    *is_first = false;
    hutch_text_add(t, value.text + is_array, value.len - 2 * is_array);
}

static void add_list(struct text_buffer *t, const char *key, struct json_view first, struct json_view second)
{
    bool is_first = true;

    add_key(t, key);
    hutch_text_add_string(t, "[");
    add_items(t, first, &is_first);
    add_items(t, second, &is_first);
    hutch_text_add_string(t, "]");
}

/* One JSON value a line, each an argument; or an array of them. */
static int add_arguments(struct text_buffer *t, struct json_view input, struct hutch_err *err)
{
    auto_free char *text = NULL;
    bool is_first = true;

    if (!hutch_json_view_is_string(input)) {
        add_json(t, input, "[]");
        return 0;
    }
    if (hutch_json_view_text(input, &text, NULL, err) < 0)
        return -1;
    hutch_text_add_string(t, "[");
    for (char *save = NULL, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        struct json_view value;

        if (line[strspn(line, " \t\r")] == '\0')
            continue;
        if (hutch_json_view_check("an argument in a test case", 1, 1, line, strlen(line), &value, err) < 0)
            return -1;
        hutch_text_add_string(t, is_first ? "" : ",");
        hutch_text_add(t, value.text, value.len);
        is_first = false;
    }
    hutch_text_add_string(t, "]");
    return 0;
}

static int add_expected(struct text_buffer *t, struct json_view output, struct hutch_err *err)
{
    auto_free char *text = NULL;
    struct json_view value;

    if (!hutch_json_view_is_string(output)) {
        add_json(t, output, "null");
        return 0;
    }
    if (hutch_json_view_text(output, &text, NULL, err) < 0)
        return -1;
    if (hutch_json_view_check("the output of a test case", 1, 1, text, strlen(text), &value, err) < 0)
        return -1;
    hutch_text_add(t, value.text, value.len);
    return 0;
}

static int add_data(struct text_buffer *t, const struct batch_task *task, struct hutch_err *err)
{
    hutch_text_add_string(t, ",\"data\":[");
    for (size_t i = 0; i < task->n_cases; i++) {
        hutch_text_add_string(t, i ? ",[" : "[");
        if (add_arguments(t, task->cases[i].input, err) < 0)
            return hutch_err_wrap(err, "task '%s', case %zu", task->id, i);
        hutch_text_add_string(t, ",");
        if (add_expected(t, task->cases[i].output, err) < 0)
            return hutch_err_wrap(err, "task '%s', case %zu", task->id, i);
        hutch_text_add_string(t, "]");
    }
    hutch_text_add_string(t, "]");
    return 0;
}

/* The name of the function; of a method, where the program has the class that LeetCode asks for. */
static void add_entry(struct text_buffer *t, const struct batch_task *task, const struct batch_sample *sample)
{
    static const char leetcode[] = "class Solution";

    add_key(t, "entry");
    if (task->is_function && memmem(sample->program.text, sample->program.len, leetcode, strlen(leetcode))) {
        hutch_text_add_string(t, "\"Solution().");
        hutch_text_add(t, task->entry.text + 1, task->entry.len - 1);
        return;
    }
    add_json(t, task->entry, "\"\"");
}

static void add_program(struct text_buffer *t, const struct batch_task *task, const struct batch_sample *sample)
{
    const char *prelude = hutch_batch_prelude(task, sample);

    add_key(t, "program");
    hutch_text_add_string(t, "[");
    if (*prelude) {
        hutch_json_quote(t, prelude, strlen(prelude));
        hutch_text_add_string(t, ",");
    }
    if (sample->is_completion) {
        add_json(t, task->prompt, "\"\"");
        hutch_text_add_string(t, ",");
    }
    add_json(t, sample->program, "\"\"");
    hutch_text_add_string(t, "]");
}

int hutch_batch_judge_job_add(struct text_buffer *t, const struct batch_task *task, const struct batch_sample *sample,
                              const char *token, bool is_together, struct hutch_err *err)
{
    bool is_humaneval = task->format == BATCH_HUMANEVAL;
    struct json_view none = JSON_VIEW_NONE;

    hutch_text_addf(t, "{\"token\":\"%s\"", token);
    add_program(t, task, sample);
    add_list(t, "before", is_humaneval ? none : task->before, is_humaneval ? none : task->before_more);
    /* What the tests may use besides the program: HumanEval's prompt defines helpers, and may be no program at all. */
    add_list(t, "trusted", is_humaneval ? task->prompt : task->before, is_humaneval ? none : task->before_more);
    add_flag(t, "trusted_may_fail", is_humaneval);
    add_flag(t, "before_may_fail", task->before_more.text || task->format == BATCH_GENERIC);
    add_key(t, "reference");
    add_json(t, is_humaneval ? none : task->program, "\"\"");
    if (task->is_function) {
        add_key(t, "tests");
        hutch_text_add_string(t, "[");
        hutch_json_quote(t, function_tests, strlen(function_tests));
        hutch_text_add_string(t, "]");
        if (add_data(t, task, err) < 0)
            return -1;
    } else {
        add_list(t, "tests", task->tests, task->more_tests);
    }
    add_entry(t, task, sample);
    add_flag(t, "check", task->is_checked || task->is_function);
    add_flag(t, "call_tests", task->calls_tests);
    add_flag(t, "no_input", true);
    add_flag(t, "asks_objects", task->format == BATCH_GENERIC);
    add_flag(t, "together", is_together);
    hutch_text_add_string(t, "}");
    return 0;
}
