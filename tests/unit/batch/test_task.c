/* Tasks of every format: what is read from them, and which ones are refused with which words. Samples, and the plan of
 * both. */
#include "runtime/batch/plan.h"
#include "runtime/batch/task.h"
#include "runtime/text/buffer.h"
#include "sandbox/fd.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int read_task(enum batch_format format, const char *text, struct batch_task *ret, struct hutch_err *err)
{
    struct batch_task_options options = { .format = format };
    struct json_view record;
    char *copy;

    if (hutch_json_view_check("'f'", 1, 1, text, strlen(text), &record, err) < 0)
        fail_msg("%s: %s", text, err->msg);
    if (format == BATCH_AUTO)
        options.format = hutch_batch_format_guess(record);
    copy = strdup(text);
    assert_int_equal(hutch_json_view_check("'f'", 1, 1, copy, strlen(copy), &record, err), 0);
    return hutch_batch_task_read(&options, "'f': line 1", copy, record, ret, err);
}

static void assert_spelled(struct json_view value, const char *text)
{
    if (value.len != strlen(text) || memcmp(value.text, text, value.len) != 0)
        fail_msg("got '%.*s', wanted '%s'", (int)value.len, value.text, text);
}

#define HUMANEVAL                                                                                           \
    "{\"task_id\":\"H/0\",\"prompt\":\"def f(x):\\n\",\"entry_point\":\"f\",\"canonical_solution\":\" return x\"," \
    "\"test\":\"def check(c): pass\"}"
#define MBPP                                                                                                \
    "{\"task_id\":11,\"text\":\"t\",\"code\":\"def f():\\r\\n  return 1\",\"test_setup_code\":\"x = 1\"," \
    "\"test_list\":[\"assert f() == 1\",\"assert f() != 2\"],\"challenge_test_list\":[\"assert f() > 0\"]}"

static void test_guess(void **state)
{
    static const struct {
        const char *text;
        enum batch_format format;
    } cases[] = {
        { HUMANEVAL, BATCH_HUMANEVAL },
        { MBPP, BATCH_MBPP },
        { "{\"id\":1,\"inputs\":[],\"outputs\":[]}", BATCH_STDIO },
        { "{\"id\":1,\"input_output\":\"{}\"}", BATCH_STDIO },
        { "{\"id\":1,\"verification_info\":{}}", BATCH_STDIO },
        { "{\"id\":1,\"content\":\"\",\"test\":\"[]\"}", BATCH_STDIO },
        { "{\"id\":1,\"code\":\"\"}", BATCH_GENERIC },
        { "{}", BATCH_GENERIC },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct json_view record;
        struct hutch_err err;

        assert_int_equal(hutch_json_view_check("x", 1, 1, cases[i].text, strlen(cases[i].text), &record, &err), 0);
        assert_int_equal(hutch_batch_format_guess(record), cases[i].format);
    }
    for (int i = 0; i < BATCH_FORMAT_COUNT; i++) {
        enum batch_format format;
        struct hutch_err err;

        assert_int_equal(hutch_batch_format_parse(hutch_batch_format_name((enum batch_format)i), &format, &err), 0);
        assert_int_equal(format, i);
    }
}

static void test_humaneval(void **state)
{
    struct batch_sample sample;
    struct batch_task task;
    struct hutch_err err;

    (void)state;
    assert_int_equal(read_task(BATCH_AUTO, HUMANEVAL, &task, &err), 0);
    assert_string_equal(task.id, "H/0");
    assert_int_equal(task.judging, BATCH_BY_TESTS);
    assert_true(task.is_checked);
    assert_spelled(task.entry, "\"f\"");
    assert_string_equal(task.language, "python");
    assert_int_equal(hutch_batch_sample_own("x", &task, &sample, &err), 0);
    assert_true(sample.is_completion);
    assert_spelled(sample.program, "\" return x\"");
    hutch_batch_task_done(&task);
    hutch_batch_task_done(&task);
}

static void test_mbpp(void **state)
{
    struct batch_task_options options = { .format = BATCH_MBPP, .with_challenge = true };
    struct json_view record;
    struct batch_sample sample;
    struct batch_task task;
    struct hutch_err err;
    char *text;

    (void)state;
    assert_int_equal(read_task(BATCH_AUTO, MBPP, &task, &err), 0);
    assert_string_equal(task.id, "11");
    assert_int_equal(hutch_json_view_count(task.tests), 2);
    assert_null(task.more_tests.text);
    assert_spelled(task.before_more, "\"x = 1\"");
    assert_int_equal(hutch_batch_sample_own("x", &task, &sample, &err), 0);
    assert_false(sample.is_completion);
    assert_spelled(sample.program, "\"def f():\\r\\n  return 1\""); /* line ends as they came */
    hutch_batch_task_done(&task);

    text = strdup(MBPP);
    assert_int_equal(hutch_json_view_check("x", 1, 1, text, strlen(text), &record, &err), 0);
    assert_int_equal(hutch_batch_task_read(&options, "x", text, record, &task, &err), 0);
    assert_spelled(task.more_tests, "[\"assert f() > 0\"]");
    hutch_batch_task_done(&task);

    assert_int_equal(read_task(BATCH_MBPP, "{\"task_id\":\"Mbpp/7\",\"test_list\":[\"a\"]}", &task, &err), 0);
    assert_string_equal(task.id, "7");
    hutch_batch_task_done(&task);
}

static void test_stdio_forms(void **state)
{
    static const struct {
        const char *text, *input, *output; /* of the last case */
        size_t n_cases;
        enum batch_compare compare;
        bool with_prelude;
        const char *entry;
    } cases[] = {
        { "{\"id\":1,\"inputs\":[\"1\",\"2\"],\"outputs\":[\"3\",\"4\"],\"code\":\"c\"}", "\"2\"", "\"4\"", 2,
          COMPARE_LINES, false, NULL },
        { "{\"id\":1,\"inputs\":[\"1\"],\"outputs\":[\"3\"],\"compare\":\"exact\"}", "\"1\"", "\"3\"", 1, COMPARE_EXACT,
          false, NULL },
        { "{\"id\":1,\"input_output\":\"{\\\"inputs\\\":[\\\"1\\\"],\\\"outputs\\\":[\\\"3\\\"],\\\"fn_name\\\":null}"
          "\"}",
          "\"1\"", "\"3\"", 1, COMPARE_DECIMAL, true, NULL },
        { "{\"id\":1,\"input_output\":{\"inputs\":[\"[1]\\n2\"],\"outputs\":[\"3\"],\"fn_name\":\"f\"}}", "\"[1]\\n2\"",
          "\"3\"", 1, COMPARE_DECIMAL, true, "\"f\"" },
        { "{\"id\":1,\"verification_info\":{\"language\":\"python\",\"test_cases\":[{\"input\":\"1\","
          "\"output\":\"2\",\"type\":\"stdin_stdout\"}]}}",
          "\"1\"", "\"2\"", 1, COMPARE_LINES, false, NULL },
        { "{\"id\":1,\"content\":\"\",\"test\":[{\"input\":{\"stdin\":\"1\"},\"output\":{\"stdout\":\"2\"}}]}", "\"1\"",
          "\"2\"", 1, COMPARE_LINES, false, NULL },
        { "{\"question_id\":\"q\",\"public_test_cases\":\"[{\\\"input\\\":\\\"1\\\",\\\"output\\\":\\\"2\\\","
          "\\\"testtype\\\":\\\"stdin\\\"}]\","
          "\"private_test_cases\":\"[{\\\"input\\\":\\\"3\\\",\\\"output\\\":\\\"4\\\","
          "\\\"testtype\\\":\\\"stdin\\\"}]\"}",
          "\"3\"", "\"4\"", 2, COMPARE_DECIMAL, true, NULL },
        { "{\"question_id\":\"q\",\"metadata\":\"{\\\"func_name\\\": \\\"twoSum\\\"}\","
          "\"public_test_cases\":\"[{\\\"input\\\":\\\"1\\\",\\\"output\\\":\\\"2\\\","
          "\\\"testtype\\\":\\\"functional\\\"}]\"}",
          "\"1\"", "\"2\"", 1, COMPARE_DECIMAL, true, "\"twoSum\"" },
        { "{\"question_id\":\"q\",\"metadata\":\"{\\\"func_name\\\": \\\"twoSum\\\"}\","
          "\"public_test_cases\":\"[{\\\"input\\\":\\\"1\\\",\\\"output\\\":\\\"2\\\","
          "\\\"testtype\\\":\\\"functional\\\"}]\","
          "\"private_test_cases\":\"[{\\\"input\\\":\\\"3\\\",\\\"output\\\":\\\"4\\\","
          "\\\"testtype\\\":\\\"functional\\\"}]\"}",
          "\"3\"", "\"4\"", 2, COMPARE_DECIMAL, true, "\"twoSum\"" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct batch_task task;
        struct hutch_err err;

        if (read_task(BATCH_AUTO, cases[i].text, &task, &err) < 0)
            fail_msg("%s: %s", cases[i].text, err.msg);
        assert_int_equal(task.n_cases, cases[i].n_cases);
        assert_spelled(task.cases[task.n_cases - 1].input, cases[i].input);
        assert_spelled(task.cases[task.n_cases - 1].output, cases[i].output);
        assert_int_equal(task.compare, cases[i].compare);
        assert_int_equal(task.with_prelude, cases[i].with_prelude);
        assert_int_equal(task.judging, cases[i].entry ? BATCH_BY_TESTS : BATCH_BY_OUTPUT);
        if (cases[i].entry)
            assert_spelled(task.entry, cases[i].entry);
        hutch_batch_task_done(&task);
    }
}

static void test_generic(void **state)
{
    struct batch_task task;
    struct hutch_err err;

    (void)state;
    assert_int_equal(read_task(BATCH_GENERIC,
                               "{\"id\":\"a\",\"language\":\"sh\",\"code\":\"cat\",\"stdin\":\"x\",\"args\":[\"1\"],"
                               "\"env\":{\"A\":\"b\"},"
                               "\"files\":{\"d/e\":\"f\"},\"expected\":{\"stdout\":\"x\",\"exit_code\":3},"
                               "\"compare\":\"exact\","
                               "\"limits\":{\"cpu_time\":2,\"wall\":\"1500ms\",\"memory\":\"64m\",\"pids\":3,"
                               "\"output\":1000},\"metadata\":{}}",
                               &task, &err), 0);
    assert_int_equal(task.judging, BATCH_BY_EXIT);
    assert_string_equal(task.language, "sh");
    assert_int_equal(task.exit_code, 3);
    assert_int_equal(task.compare, COMPARE_EXACT);
    assert_int_equal(task.limits.cpu_ms, 2000);
    assert_int_equal(task.limits.wall_ms, 1500);
    assert_int_equal(task.limits.memory_bytes, 64 << 20);
    assert_int_equal(task.limits.pids, 3);
    assert_int_equal(task.limits.output_bytes, 1000);
    assert_spelled(task.cases[0].input, "\"x\"");
    hutch_batch_task_done(&task);

    assert_int_equal(read_task(BATCH_GENERIC, "{\"id\":1,\"code\":\"c\",\"tests\":\"assert 1\"}", &task, &err), 0);
    assert_int_equal(task.judging, BATCH_BY_TESTS);
    assert_true(task.calls_tests);
    hutch_batch_task_done(&task);
    assert_int_equal(read_task(BATCH_GENERIC, "{\"id\":1,\"code\":\"c\",\"language\":\"Py\"}", &task, &err), 0);
    assert_string_equal(task.language, "python"); /* longer than the name that it is for */
    hutch_batch_task_done(&task);
    assert_int_equal(read_task(BATCH_GENERIC, "{\"id\":1,\"code\":\"c\",\"language\":\"js\",\"tests\":\"x\"}", &task,
                               &err),
                     0);
    assert_int_equal(task.judging, BATCH_BY_EXIT);
    hutch_batch_task_done(&task);
    assert_int_equal(read_task(BATCH_GENERIC, "{\"id\":1,\"code\":\"c\"}", &task, &err), 0);
    assert_int_equal(task.compare, COMPARE_EXIT0);
    hutch_batch_task_done(&task);
}

static void test_refused_tasks(void **state)
{
    static const struct {
        enum batch_format format;
        const char *text, *message; /* after "'f': line 1: " */
    } cases[] = {
        { BATCH_GENERIC, "{}", "the key \"task_id\" (or \"id\") is missing" },
        { BATCH_GENERIC, "{\"id\":\"\"}", "\"id\" is not a name of 1 to 256 bytes" },
        { BATCH_GENERIC, "{\"id\":1.5}", "\"id\" is neither a text nor a whole number" },
        { BATCH_GENERIC, "{\"id\":\"a\\u0000b\"}", "the text of \"id\" has a NUL byte in it" },
        { BATCH_HUMANEVAL, "{\"task_id\":\"a\",\"prompt\":\"p\",\"entry_point\":\"f\"}",
          "the key \"test\" is missing" },
        { BATCH_HUMANEVAL, "{\"task_id\":\"a\",\"prompt\":null}", "the key \"prompt\" is null" },
        { BATCH_HUMANEVAL, "{\"task_id\":\"a\",\"prompt\":1}", "the value of \"prompt\" is not a text" },
        { BATCH_MBPP, "{\"task_id\":1,\"code\":\"c\"}", "the key \"test_list\" is missing, or lists nothing" },
        { BATCH_MBPP, "{\"task_id\":1,\"test_list\":[]}", "the key \"test_list\" is missing, or lists nothing" },
        { BATCH_MBPP, "{\"task_id\":1,\"test_list\":[1]}", "what \"test_list\" lists is not all text" },
        { BATCH_STDIO, "{\"id\":1}", "expected \"inputs\" and \"outputs\", an array each" },
        { BATCH_STDIO, "{\"id\":1,\"inputs\":[\"\"],\"outputs\":[]}", "there are 1 inputs and 0 outputs" },
        { BATCH_STDIO, "{\"id\":1,\"inputs\":[],\"outputs\":[]}", "it has no test cases" },
        { BATCH_STDIO, "{\"id\":1,\"input_output\":\"{\"}",
          "the text of \"input_output\" (test cases that are packed must be unpacked first): "
          "line 1, column 2: the text ends within an object" },
        { BATCH_STDIO, "{\"id\":1,\"test_cases\":[{\"input\":\"\"}]}",
          "test case 0 of \"test_cases\" has no \"output\"" },
        { BATCH_STDIO,
          "{\"id\":1,\"language\":\"cpp\",\"input_output\":{\"inputs\":[\"\"],\"outputs\":[\"\"],\"fn_name\":\"f\"}}",
          "its test cases call a function, which only Python programs have; the language is 'cpp'" },
        { BATCH_STDIO, "{\"id\":1,\"inputs\":[\"\"],\"outputs\":[\"\"],\"compare\":\"x\"}",
          "'x' is not a way to compare: exact, rstrip-newlines, lines, words, decimal or exit0" },
        { BATCH_GENERIC, "{\"id\":1,\"expeced\":\"x\"}",
          "unknown key \"expeced\"; known here: id, language, code, prompt, stdin, files, args, "
          "env, expected, tests, setup, entry_point, judge, compare, limits, metadata" },
        { BATCH_GENERIC, "{\"id\":1,\"expected\":{\"stdout\":1}}",
          "\"expected\" takes \"stdout\", a text, and \"exit_code\", 0 to 255" },
        { BATCH_GENERIC, "{\"id\":1,\"expected\":{\"exit_code\":256}}",
          "\"expected\" takes \"stdout\", a text, and \"exit_code\", 0 to 255" },
        { BATCH_GENERIC, "{\"id\":1,\"expected\":\"x\",\"tests\":\"y\"}",
          "\"tests\" and \"expected\" exclude each other" },
        { BATCH_GENERIC, "{\"id\":1,\"judge\":\"apart\"}",
          "\"judge\", \"setup\" and \"entry_point\" mean nothing without \"tests\"" },
        { BATCH_GENERIC, "{\"id\":1,\"tests\":\"x\",\"judge\":\"a\"}",
          "the value of \"judge\" is neither \"apart\" nor \"together\"" },
        { BATCH_GENERIC, "{\"id\":1,\"tests\":\"x\",\"stdin\":\"a\"}",
          "\"stdin\" and \"args\" mean nothing to tests that call functions" },
        { BATCH_GENERIC, "{\"id\":1,\"tests\":\"x\",\"compare\":\"exact\"}",
          "with \"tests\", \"compare\" is \"token\" or \"exit0\"" },
        { BATCH_GENERIC, "{\"id\":1,\"limits\":{\"cpu\":1}}",
          "there is no limit \"cpu\"; known here: cpu_time, wall, memory, pids, output" },
        { BATCH_GENERIC, "{\"id\":1,\"limits\":{\"wall\":0}}", "the limit \"wall\" leaves room for nothing" },
        { BATCH_GENERIC, "{\"id\":1,\"args\":\"x\"}", "the value of \"args\" is not an array" },
        { BATCH_GENERIC, "{\"id\":1,\"files\":{\"a\":1}}", "what \"files\" holds is not all text" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct batch_task task;
        struct hutch_err err;
        char want[600];

        if (read_task(cases[i].format, cases[i].text, &task, &err) == 0)
            fail_msg("%s was taken", cases[i].text);
        snprintf(want, sizeof(want), "'f': line 1: %s", cases[i].message);
        assert_string_equal(err.msg, want);
    }
}

/* ---- plans ---- */

static char directory[] = "/tmp/hutch-test-batch.XXXXXX";

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    char command[100];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", directory);
    return system(command);
}

static char *write_file(const char *name, const char *text)
{
    char *path;
    int fd;

    assert_true(asprintf(&path, "%s/%s", directory, name) > 0);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(hutch_fd_write_all(fd, text, strlen(text)), 0);
    close(fd);
    return path;
}

static int make_plan(const char *tasks, const char *samples, bool is_partial, struct batch_plan *ret,
                     struct hutch_err *err)
{
    struct batch_task_options options = { .format = BATCH_AUTO };
    auto_free char *tasks_path = write_file("tasks", tasks);
    auto_free char *samples_path = samples ? write_file("samples", samples) : NULL;

    return hutch_batch_plan_make(tasks_path, samples_path, &options, 7, is_partial, ret, err);
}

#define TASK(id)                                                                                            \
    "{\"task_id\":\"" id "\",\"prompt\":\"def f(x):\\n\",\"entry_point\":\"f\",\"canonical_solution\":\" return x\"," \
    "\"test\":\"def check(c): pass\"}\n"

static void test_plan_of_samples(void **state)
{
    struct batch_loaded loaded;
    struct batch_plan plan;
    struct hutch_err err;

    (void)state;
    assert_int_equal(make_plan(TASK("a") TASK("b"),
                               "{\"task_id\":\"b\",\"completion\":\" return 1\",\"extra\":[1]}\n{\"task_id\":\"a\","
                               "\"solution\":\"import numpy\"}\n"
                               "{\"task_id\":\"b\",\"completion\":\" return 1\"}\n", false, &plan, &err), 0);
    assert_int_equal(plan.options.format, BATCH_HUMANEVAL);
    assert_int_equal(plan.n_groups, 2);
    assert_int_equal(plan.n_items, 3);
    assert_int_equal(plan.groups[1].n_samples, 2);
    assert_int_equal(plan.items[2].sample, 1);
    assert_int_equal(plan.items[2].group, 1);
    assert_true(plan.wants_data);
    assert_int_equal(plan.items[0].hash.low, plan.items[2].hash.low); /* the same program */
    assert_true(plan.items[0].hash.low != plan.items[1].hash.low);
    assert_int_equal(hutch_batch_plan_find(&plan, "b"), 1);
    assert_true(hutch_batch_plan_find(&plan, "c") == SIZE_MAX);
    assert_int_equal(hutch_batch_plan_load(&plan, &plan.items[0], &loaded, &err), 0);
    assert_true(loaded.sample.is_completion);
    assert_spelled(loaded.sample.program, "\" return 1\"");
    assert_spelled(hutch_json_view_get(loaded.record, "extra"), "[1]");
    hutch_batch_plan_release(&plan, &plan.items[0], &loaded);
    assert_int_equal(hutch_batch_plan_load(&plan, &plan.items[1], &loaded, &err), 0);
    assert_false(loaded.sample.is_completion); /* a whole program */
    hutch_batch_plan_release(&plan, &plan.items[1], &loaded);
    hutch_batch_plan_done(&plan);
}

static void test_plan_of_own_programs(void **state)
{
    struct batch_loaded loaded;
    struct batch_plan plan;
    struct hutch_err err;

    (void)state;
    assert_int_equal(
        make_plan("{\"id\":\"a\",\"code\":\"1\"}\n{\"id\":\"b\",\"code\":\"2\"}\n{\"id\":\"a\",\"code\":\"3\"}\n", NULL,
                  false, &plan, &err),
        0);
    assert_int_equal(plan.n_groups, 2);
    assert_int_equal(plan.groups[0].n_samples, 2);
    assert_int_equal(hutch_batch_plan_load(&plan, &plan.items[2], &loaded, &err), 0);
    assert_spelled(loaded.sample.program, "\"3\"");
    hutch_batch_plan_release(&plan, &plan.items[2], &loaded);
    hutch_batch_plan_done(&plan);
}

static void test_plan_of_many_tasks(void **state)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    auto_free char *text = NULL;
    struct batch_plan plan;
    struct hutch_err err;

    (void)state;
    for (int i = 0; i < 3000; i++)
        hutch_text_addf(&t, "{\"id\":\"task %d\",\"code\":\"%d\"}\n", i, i);
    text = hutch_text_take(&t, NULL);
    assert_int_equal(make_plan(text, NULL, false, &plan, &err), 0);
    for (size_t i = 0; i < 3000; i++)
        assert_int_equal(hutch_batch_plan_find(&plan, plan.groups[i].id), i);
    hutch_batch_plan_done(&plan);
}

static void test_refused_plans(void **state)
{
    static const struct {
        const char *tasks, *samples, *message; /* a part of it */
    } cases[] = {
        { "", NULL, "/tasks' holds no tasks" },
        { TASK("a") TASK("a"), NULL, "/tasks': line 2: the task 'a' is there twice" },
        { TASK("a"), "", "/samples' has no sample for 1 of the 1 tasks, 'a' among them (--partial" },
        { TASK("a") TASK("b") TASK("c"), "{\"task_id\":\"b\",\"completion\":\"\"}\n",
          "has no sample for 2 of the 3 tasks, 'a' among them" },
        { TASK("a"), "{\"task_id\":\"x\",\"completion\":\"\"}\n", "/samples': line 1: there is no task 'x' in '" },
        { TASK("a"), "\n{\"task_id\":\"a\"}\n",
          "/samples': line 2: the key \"completion\" (or \"solution\") is missing" },
        { TASK("a"), "{\"task_id\":\"a\",\"completion\":7}\n",
          "/samples': line 1: the value of \"completion\" is not a text" },
        { TASK("a") "{\"task_id\":\n", NULL, "/tasks': line 2, column 12: the text ends" },
        { "{\"id\":1}\n", NULL,
          "/tasks': line 1: the task '1' has no program of its own (--samples FILE gives programs)" },
    };
    struct batch_plan plan;
    struct hutch_err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        if (make_plan(cases[i].tasks, cases[i].samples, false, &plan, &err) == 0)
            fail_msg("case %zu was taken", i);
        if (!strstr(err.msg, cases[i].message))
            fail_msg("got '%s', wanted '%s'", err.msg, cases[i].message);
    }
    assert_int_equal(make_plan(TASK("a") TASK("b"), "{\"task_id\":\"b\",\"completion\":\"\"}\n", true, &plan, &err), 0);
    hutch_batch_plan_done(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guess),
        cmocka_unit_test(test_humaneval),
        cmocka_unit_test(test_mbpp),
        cmocka_unit_test(test_stdio_forms),
        cmocka_unit_test(test_generic),
        cmocka_unit_test(test_refused_tasks),
        cmocka_unit_test(test_plan_of_samples),
        cmocka_unit_test(test_plan_of_own_programs),
        cmocka_unit_test(test_plan_of_many_tasks),
        cmocka_unit_test(test_refused_plans),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
