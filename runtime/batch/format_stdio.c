#include "runtime/batch/fields_priv.h"
#include "runtime/batch/format_priv.h"
#include "runtime/batch/source.h"
#include "sandbox/fd.h"

#include <stdio.h>
#include <string.h>

/* Texts that a record holds as text, by their index in task->inner. */
enum { CASES, MORE_CASES, FUNCTION_NAME };

/* JSON, or text that holds JSON, which is then text @slot of the task. */
static int open_inner(const struct batch_fields *f, const char *key, int slot, struct batch_task *t,
                      struct json_view *ret)
{
    struct json_view value = hutch_json_view_get(f->record, key);
    char what[BATCH_WHERE_MAX];

    if (!hutch_json_view_is_string(value)) {
        *ret = value;
        return 0;
    }
    if (hutch_batch_read_string(f, key, value, &t->inner[slot]) < 0)
        return -1;
    snprintf(what, sizeof(what), "%s: the text of \"%s\" (test cases that are packed must be unpacked first)", f->where,
             key);
    return hutch_json_view_check(what, 1, 1, t->inner[slot], strlen(t->inner[slot]), ret, f->err);
}

/* {"inputs": […], "outputs": […], "fn_name": …} */
static int read_pairs(const struct batch_fields *f, struct json_view object, struct batch_task *t)
{
    struct json_view inputs = hutch_json_view_get(object, "inputs");
    struct json_view outputs = hutch_json_view_get(object, "outputs");
    struct json_walk in = hutch_json_view_walk(inputs), out = hutch_json_view_walk(outputs);
    struct json_view name = hutch_json_view_get(object, "fn_name");
    struct batch_case c;

    if (!hutch_json_view_is_array(inputs) || !hutch_json_view_is_array(outputs))
        return hutch_batch_refuse(f, "expected \"inputs\" and \"outputs\", an array each");
    if (hutch_json_view_count(inputs) != hutch_json_view_count(outputs))
        return hutch_batch_refuse(f, "there are %zu inputs and %zu outputs", hutch_json_view_count(inputs),
                                  hutch_json_view_count(outputs));
    if (hutch_batch_task_reserve_cases(f, hutch_json_view_count(inputs), t) < 0)
        return -1;
    while (hutch_json_view_next(&in, NULL, &c.input) && hutch_json_view_next(&out, NULL, &c.output))
        t->cases[t->n_cases++] = c;
    if (hutch_json_view_is_string(name) && !hutch_json_view_is(name, "")) {
        t->is_function = true;
        t->entry = name;
    }
    return 0;
}

/* [{"input": …, "output": …, "type": …}, …], or {"input": {"stdin": …}, "output": {"stdout": …}} */
static int read_case_list(const struct batch_fields *f, const char *key, struct json_view list, struct batch_task *t)
{
    struct json_walk walk = hutch_json_view_walk(list);
    struct json_view item;
    struct batch_case c;

    if (!hutch_json_view_is_array(list))
        return hutch_batch_refuse(f, "the value of \"%s\" is not an array of test cases", key);
    if (hutch_batch_task_reserve_cases(f, hutch_json_view_count(list), t) < 0)
        return -1;
    while (hutch_json_view_next(&walk, NULL, &item)) {
        c.input = hutch_json_view_get(item, "input");
        c.output = hutch_json_view_get(item, "output");
        if (hutch_json_view_is_object(c.input))
            c.input = hutch_json_view_get(c.input, "stdin");
        if (hutch_json_view_is_object(c.output))
            c.output = hutch_json_view_get(c.output, "stdout");
        if (!c.output.text)
            return hutch_batch_refuse(f, "test case %zu of \"%s\" has no \"output\"", t->n_cases, key);
        if (hutch_json_view_is(hutch_json_view_get(item, "testtype"), "functional"))
            t->is_function = true;
        t->cases[t->n_cases++] = c;
    }
    return 0;
}

/* The name of the function, of metadata that is text within text. It is looked up in the record's own spelling, where
 * quotes have a backslash. */
static void find_function_name(struct json_view metadata, struct batch_task *t)
{
    static const char key[] = "\\\"func_name\\\"", quote[] = "\\\"";
    const char *end = metadata.text + metadata.len, *from = memmem(metadata.text, metadata.len, key, strlen(key)), *to;
    char *text;

    from = from ? memmem(from + strlen(key), (size_t)(end - from) - strlen(key), quote, strlen(quote)) : NULL;
    if (!from)
        return;
    from += strlen(quote);
    to = memmem(from, (size_t)(end - from), quote, strlen(quote));
    if (!to || asprintf(&text, "\"%.*s\"", (int)(to - from), from) < 0)
        return;
    t->inner[FUNCTION_NAME] = text;
    t->entry = (struct json_view){ text, strlen(text) };
}

/* LiveCodeBench's own form: cases in two lists, the function's name in the metadata. */
static int read_livecodebench(const struct batch_fields *f, struct batch_task *t)
{
    static const char *const keys[] = { "public_test_cases", "private_test_cases" };
    struct json_view list, metadata = hutch_json_view_get(f->record, "metadata");

    for (int i = 0; i < (int)ARRAY_SIZE(keys); i++) {
        if (!hutch_batch_has(f->record, keys[i]))
            continue;
        if (open_inner(f, keys[i], i, t, &list) < 0 || read_case_list(f, keys[i], list, t) < 0)
            return -1;
    }
    if (!t->is_function)
        return 0;
    if (hutch_json_view_is_object(metadata))
        t->entry = hutch_json_view_get(metadata, "func_name");
    else if (hutch_json_view_is_string(metadata))
        find_function_name(metadata, t);
    return 0;
}

/* The first of the keys under which solutions are found. */
static int read_solution(const struct batch_fields *f, struct batch_task *t)
{
    static const char *const keys[] = { "code", "solution", "program", "canonical_solution" };
    struct json_view list = hutch_json_view_get(f->record, "solutions");
    struct json_walk walk = hutch_json_view_walk(list);
    struct json_view first;

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        if (hutch_batch_has(f->record, keys[i]))
            return hutch_batch_read_text(f, keys[i], BATCH_PROGRAM_MAX, REQUIRED, &t->program);
    if (hutch_json_view_is_array(list) && hutch_json_view_next(&walk, NULL, &first) &&
        hutch_json_view_is_string(first))
        t->program = first;
    return 0;
}

/* The test cases, wherever the record has them. */
static int read_cases(const struct batch_fields *f, struct batch_task *t)
{
    struct json_view value;

    if (hutch_batch_has(f->record, "input_output")) {
        t->compare = COMPARE_DECIMAL;
        t->with_prelude = true;
        return open_inner(f, "input_output", CASES, t, &value) < 0 ? -1 : read_pairs(f, value, t);
    }
    if (hutch_batch_has(f->record, "verification_info")) {
        if (open_inner(f, "verification_info", CASES, t, &value) < 0 || hutch_batch_task_read_language(f, value, t) < 0)
            return -1;
        return read_case_list(f, "test_cases", hutch_json_view_get(value, "test_cases"), t);
    }
    if (hutch_batch_has(f->record, "public_test_cases")) {
        t->compare = COMPARE_DECIMAL;
        t->with_prelude = true;
        return read_livecodebench(f, t);
    }
    if (hutch_batch_has(f->record, "test_cases"))
        return open_inner(f, "test_cases", CASES, t, &value) < 0 ? -1 : read_case_list(f, "test_cases", value, t);
    if (hutch_batch_has(f->record, "test"))
        return open_inner(f, "test", CASES, t, &value) < 0 ? -1 : read_case_list(f, "test", value, t);
    return read_pairs(f, f->record, t);
}

static int read_compare(const struct batch_fields *f, struct batch_task *t)
{
    auto_free char *name = NULL;
    struct json_view value;

    if (!hutch_batch_has(f->record, "compare"))
        return 0;
    if (hutch_batch_read_text(f, "compare", BATCH_NAME_MAX, REQUIRED, &value) < 0 ||
        hutch_batch_read_string(f, "compare", value, &name) < 0)
        return -1;
    if (hutch_batch_compare_parse(name, &t->compare, f->err) < 0)
        return hutch_err_wrap(f->err, "%s", f->where);
    return 0;
}

int hutch_batch_read_stdio(const struct batch_fields *f, const struct batch_task_options *options, struct batch_task *t)
{
    t->judging = BATCH_BY_OUTPUT;
    t->compare = COMPARE_LINES;
    if (read_solution(f, t) < 0 || hutch_batch_task_read_language(f, f->record, t) < 0 || read_cases(f, t) < 0)
        return -1;
    if (t->n_cases == 0)
        return hutch_batch_refuse(f, "it has no test cases");
    if (read_compare(f, t) < 0)
        return -1;
    if (options->has_compare)
        t->compare = options->compare;
    if (t->is_function) {
        if (!hutch_json_view_is_string(t->entry) || hutch_json_view_is(t->entry, "") || t->entry.len > BATCH_ID_MAX)
            return hutch_batch_refuse(f, "its test cases call a function, whose name is missing (\"fn_name\", "
                                         "\"func_name\" in \"metadata\")");
        t->judging = BATCH_BY_TESTS;
    }
    if (strcmp(t->language, "python") != 0) {
        if (t->is_function)
            return hutch_batch_refuse(f, "its test cases call a function, which only Python programs have; the "
                                         "language is '%s'", t->language);
        t->with_prelude = false;
    }
    return 0;
}
