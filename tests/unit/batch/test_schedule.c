/* A batch from its files to its results, on an engine that is none: judging, order, repetition, resuming,
 * interruption. */
#include "runtime/batch/output.h"
#include "runtime/batch/plan.h"
#include "runtime/batch/schedule.h"
#include "sandbox/fd.h"
#include "tests/unit/fake_engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char directory[] = "/tmp/hutch-test-batch.XXXXXX";
static char tasks_path[100], samples_path[100], out_path[100];

static int make_directory(void **state)
{
    (void)state;
    if (!mkdtemp(directory))
        return -1;
    snprintf(tasks_path, sizeof(tasks_path), "%s/tasks", directory);
    snprintf(samples_path, sizeof(samples_path), "%s/samples", directory);
    snprintf(out_path, sizeof(out_path), "%s/out", directory);
    return 0;
}

static int remove_directory(void **state)
{
    char command[100];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", directory);
    return system(command);
}

static void write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(hutch_fd_write_all(fd, text, strlen(text)), 0);
    close(fd);
}

static char *read_text(const char *path)
{
    struct hutch_err err;
    char *text;
    size_t len;

    if (hutch_fd_slurp_path(path, 1 << 24, &text, &len, &err) < 0)
        fail_msg("%s", err.msg);
    return text;
}

/* What a test sets before it runs a batch. */
struct setup {
    struct hutch_engine engine;
    struct batch_settings settings;
    struct batch_task_options options;
    struct batch_progress progress;
    bool by_finish, resume, has_samples;
    struct hutch_err err;
    struct batch_tally tally;
    size_t n_kept, n_dropped;
    bool is_torn;
};

static void prepare(struct setup *s)
{
    *s = (struct setup){ .settings = { .jobs = 2, .stop_fd = -1, .proc = "/nonexistent" } };
    fake_init(&s->engine);
    s->settings.manner.limits.cpu_ms = 5000;
    s->settings.manner.files_fd = -1;
    s->settings.manner.carries_judge = true;
    unlink(out_path);
}

/* Runs it; what stands in the file afterwards, for the caller to free. */
static char *run(struct setup *s, int want_rc)
{
    struct batch_engine engine = { &s->engine, fake_submit, fake_cancel, fake_fd, fake_dispatch };
    struct batch_output output = BATCH_OUTPUT_INIT;
    struct batch_plan plan;
    int rc;

    s->settings.progress = &s->progress;
    rc = hutch_batch_plan_make(tasks_path, s->has_samples ? samples_path : NULL, &s->options, 7, false, &plan, &s->err);
    if (rc < 0)
        fail_msg("%s", s->err.msg);
    rc = hutch_batch_output_open(out_path, s->resume, !s->by_finish, &plan, &output, &s->err);
    s->tally = (struct batch_tally){ .n_done = 0 };
    if (rc == 0) {
        s->n_kept = output.n_kept;
        s->n_dropped = output.n_dropped;
        s->is_torn = output.is_torn;
        rc = hutch_batch_schedule(&plan, &output, &engine, &s->settings, &s->tally, &s->err);
    }
    if (rc != want_rc)
        fail_msg("got %d (%s), wanted %d", rc, s->err.msg, want_rc);
    hutch_batch_tally_done(&s->tally);
    hutch_batch_output_done(&output);
    hutch_batch_plan_done(&plan);
    close(s->engine.fd);
    return read_text(out_path);
}

/* "id:verdict id:verdict" of the lines. */
static void summarize(const char *text, char *ret, size_t size)
{
    ret[0] = '\0';
    for (const char *p = text, *end; (end = strchr(p, '\n')); p = end + 1) {
        struct json_view line, id, verdict;
        struct hutch_err err;

        if (hutch_json_view_check("line", 1, 1, p, (size_t)(end - p), &line, &err) < 0)
            fail_msg("%s: %.*s", err.msg, (int)(end - p), p);
        id = hutch_json_view_get(line, "task_id");
        if (!id.text)
            id = hutch_json_view_get(line, "id");
        verdict = hutch_json_view_get(line, "verdict");
        snprintf(ret + strlen(ret), size - strlen(ret), "%s%.*s:%.*s", ret[0] ? " " : "", (int)id.len - 2, id.text + 1,
                 (int)verdict.len - 2, verdict.text + 1);
    }
}

static void expect(struct setup *s, int rc, const char *want)
{
    auto_free char *text = run(s, rc);
    char got[4000];

    summarize(text, got, sizeof(got));
    assert_string_equal(got, want);
}

static bool has_python(void)
{
    return system("python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null") == 0;
}

static void need_python(void)
{
    if (!has_python()) {
        print_message("no Python 3.9 on this machine\n");
        skip();
    }
}

/* ---- judging ---- */

static void test_function_samples(void **state)
{
    struct setup s;
    auto_free char *text = NULL;
    char got[1000];

    (void)state;
    need_python();
    prepare(&s);
    s.has_samples = true;
    write_text(tasks_path, "{\"task_id\":\"a\",\"prompt\":\"def f(x):\\n\",\"entry_point\":\"f\","
                           "\"test\":\"def check(c):\\n    assert c(1) == 2\\n    assert c([1]) == [1, 1]\\n\"}\n");
    write_text(samples_path,
               "{\"task_id\":\"a\",\"completion\":\"    return x + x\\n\",\"note\":[1, {\"passed\": 0}], "
               "\"passed\": 7}\n"
               "{\"task_id\":\"a\",\"completion\":\"    return x + 1\\n\"}\n"
               "{\"task_id\":\"a\",\"completion\":\"    return 2\\n\"}\n"
               "{\"task_id\":\"a\",\"completion\":\"    return x +\\n\"}\n"
               "{\"task_id\":\"a\",\"completion\":\"    import os; os._exit(0)\\n\"}\n"
               "{\"task_id\":\"a\",\"completion\":\"    raise SystemExit(0)\\n\"}\n"
               "{\"task_id\":\"a\",\"completion\":\"    return x + x\\n\\u0000\"}\n"
               "{\"task_id\":\"a\",\"solution\":\"class E:\\n    def __eq__(self, other):\\n        return True\\n"
               "def f(x):\\n    return E()\\n\"}\n"
               "{\"task_id\":\"a\",\"completion\":\"    while True:\\n        pass\\n\"}\n");
    s.settings.manner.limits.cpu_ms = 1000;
    text = run(&s, 0);
    summarize(text, got, sizeof(got));
    /* A NUL byte is a ValueError to some versions of Python and a SyntaxError to others. */
    if (strcmp(got, "a:pass a:runtime_error a:wrong_answer a:compile_error a:runtime_error a:runtime_error "
                    "a:compile_error a:wrong_answer a:timeout") != 0)
        assert_string_equal(got, "a:pass a:runtime_error a:wrong_answer a:compile_error a:runtime_error "
                                 "a:runtime_error a:runtime_error a:wrong_answer a:timeout");
    assert_int_equal(strncmp(text, "{\"task_id\": \"a\", \"completion\": \"    return x + x\\n\", \"note\": "
                                   "[1, {\"passed\": 0}], \"result\": \"passed\", \"passed\": true, "
                                   "\"completion_id\": 0, \"verdict\": \"pass\"", 100), 0);
    assert_non_null(
        strstr(text, "\"result\": \"failed: can only concatenate list (not \\\"int\\\") to list\", \"passed\": false"));
    assert_non_null(strstr(text, "\"result\": \"failed: \", \"passed\": false")); /* a failed assert has no text */
    assert_non_null(strstr(text, "\"result\": \"timed out\", \"passed\": false"));
    assert_non_null(strstr(text, "\"result\": \"failed: source code string cannot contain null bytes\""));
    assert_non_null(strstr(text, "(exit code 0) before the tests were over"));
}

/* A test that passes a function of its own cannot keep the program in another process. */
static void test_tests_that_must_run_together(void **state)
{
    struct setup s;
    auto_free char *text = NULL;

    (void)state;
    need_python();
    prepare(&s);
    write_text(
        tasks_path,
        "{\"id\":\"a\",\"code\":\"def f(g):\\n    return g(1)\\n\",\"tests\":\"assert f(lambda x: x + 1) == 2\"}\n"
        "{\"id\":\"b\",\"code\":\"def f(g):\\n    return g(1)\\n\",\"tests\":\"assert f(lambda x: x + 1) == 3\"}\n"
        "{\"id\":\"c\",\"code\":\"def f(g):\\n    return 2\\n\",\"tests\":\"def test_f():\\n    assert f(abs) == "
        "3\\n\"}\n");
    text = run(&s, 0);
    assert_non_null(strstr(text, "{\"id\": \"a\", \"result\": \"passed\""));
    assert_non_null(strstr(text, "\"judge\": \"together\""));
    assert_non_null(strstr(text, "{\"id\": \"b\", \"result\": \"failed: \""));
    assert_non_null(strstr(text, "{\"id\": \"c\", \"result\": \"failed: \""));
    assert_non_null(strstr(text, "\"judge\": \"apart\""));
}

static void test_cases(void **state)
{
    static const char task[] =
        "{\"id\":\"a\",\"inputs\":[\"1\",\"2\",\"3\",[\"4\",\"5\"]],\"outputs\":[\"1\",\"2\",\"4\",\"4\"],"
        "\"code\":\"print(input())\"}\n";
    auto_free char *text = NULL, *all = NULL;
    struct setup s;

    (void)state;
    need_python();
    prepare(&s);
    write_text(tasks_path, task);
    text = run(&s, 0);
    assert_non_null(strstr(text, "\"score\": 0.500000, \"cases\": [\"pass\", \"pass\", \"wrong_answer\"]"));
    assert_non_null(strstr(text, "\"result\": \"failed: case 2: wrong answer\""));
    prepare(&s);
    s.settings.all_cases = true;
    all = run(&s, 0);
    assert_non_null(strstr(all, "\"score\": 0.750000, \"cases\": [\"pass\", \"pass\", \"wrong_answer\", \"pass\"]"));
}

static void test_function_cases(void **state)
{
    struct setup s;

    (void)state;
    need_python();
    prepare(&s);
    write_text(tasks_path,
               "{\"id\":\"a\",\"input_output\":{\"inputs\":[\"[1, 2]\\n3\"],\"outputs\":[\"[1, 2, 3]\"],"
               "\"fn_name\":\"f\"},"
               "\"code\":\"def f(a, b):\\n    return tuple(a + [b])\"}\n"
               "{\"id\":\"b\",\"input_output\":{\"inputs\":[\"4\"],\"outputs\":[\"2.0\"],\"fn_name\":\"f\"},"
               "\"code\":\"class Solution:\\n    def f(self, a):\\n        return sqrt(a)\"}\n"
               "{\"id\":\"c\",\"input_output\":{\"inputs\":[\"4\", \"5\"],\"outputs\":[\"4\", \"6\"],"
               "\"fn_name\":\"f\"},"
               "\"code\":\"def f(a):\\n    return a\"}\n");
    expect(&s, 0, "a:pass b:pass c:wrong_answer");
}

static void test_exit_codes_and_output(void **state)
{
    auto_free char *text = NULL;
    struct setup s;
    char got[400];

    (void)state;
    need_python();
    prepare(&s);
    write_text(tasks_path, "{\"id\":\"a\",\"code\":\"print(1)\",\"expected\":\"1\"}\n"
                           "{\"id\":\"b\",\"code\":\"print(1)\",\"expected\":\"2\"}\n"
                           "{\"id\":\"c\",\"code\":\"raise SystemExit(3)\",\"expected\":{\"exit_code\":3}}\n"
                           "{\"id\":\"d\",\"code\":\"pass\",\"expected\":{\"exit_code\":3}}\n"
                           "{\"id\":\"e\",\"code\":\"raise SystemExit(3)\"}\n"
                           "{\"id\":\"f\",\"code\":\"print(\"}\n"
                           "{\"id\":\"g\",\"code\":\"\\u0000\"}\n"
                           "{\"id\":\"h\",\"code\":\"import sys; print(sys.argv[1:], sys.stdin.read(), end='')\","
                           "\"args\":[\"x y\",\"\"],"
                           "\"stdin\":\"in\",\"expected\":\"['x y', ''] in\",\"compare\":\"exact\"}\n");
    text = run(&s, 0);
    summarize(text, got, sizeof(got));
    assert_string_equal(
        got, "a:pass b:wrong_answer c:pass d:wrong_answer e:runtime_error f:compile_error g:compile_error h:pass");
    assert_non_null(strstr(text, "\"exit_code\": 3, \"signal\": null, \"stdout\": \"\", \"stdout_truncated\": false"));
}

/* ---- repetition ---- */

static bool fails_at_first(uint64_t n, const struct hutch_request *request, struct hutch_result *result)
{
    (void)request;
    result->verdict = n < 2 ? HUTCH_SETUP_FAILED : HUTCH_OK;
    result->message = "no room";
    return true;
}

static bool never_works(uint64_t n, const struct hutch_request *request, struct hutch_result *result)
{
    (void)n, (void)request;
    result->verdict = HUTCH_SETUP_FAILED;
    result->message = "no room";
    return true;
}

static bool is_killed_once(uint64_t n, const struct hutch_request *request, struct hutch_result *result)
{
    (void)request;
    result->verdict = n == 0 ? HUTCH_KILLED : HUTCH_OK;
    return true;
}

static bool is_always_killed(uint64_t n, const struct hutch_request *request, struct hutch_result *result)
{
    (void)n, (void)request;
    result->verdict = HUTCH_KILLED;
    return true;
}

static bool cannot_go_on(uint64_t n, const struct hutch_request *request, struct hutch_result *result)
{
    (void)n, (void)request;
    result->verdict = HUTCH_KILLED;
    result->hutch_failed = true;
    result->message = "hutch could not go on with the run: Cannot allocate memory";
    return true;
}

static bool times_out(uint64_t n, const struct hutch_request *request, struct hutch_result *result)
{
    (void)n, (void)request;
    result->verdict = HUTCH_TIMEOUT;
    result->cpu_user_ms = 100;
    return true;
}

static bool times_out_computing(uint64_t n, const struct hutch_request *request, struct hutch_result *result)
{
    times_out(n, request, result);
    result->cpu_user_ms = request->wall_ms;
    return true;
}

#define ONE "{\"id\":\"a\",\"code\":\"1\"}\n"

static void test_failures_of_the_engine_are_repeated(void **state)
{
    auto_free char *text = NULL;
    struct setup s;

    (void)state;
    write_text(tasks_path, ONE);
    prepare(&s);
    s.engine.answer = fails_at_first;
    expect(&s, 0, "a:pass");
    prepare(&s);
    s.engine.answer = never_works;
    text = run(&s, 0);
    assert_int_equal(s.engine.n_submitted, 3);
    assert_int_equal(s.tally.verdicts[BATCH_INTERNAL], 1);
    assert_string_equal(s.tally.internal, "task 'a': no room");
    assert_non_null(strstr(text, "\"result\": \"internal: no room\", \"passed\": null"));
    prepare(&s);
    s.engine.answer = cannot_go_on;
    expect(&s, 0, "a:internal");
    assert_int_equal(s.engine.n_submitted, 3);
}

static void test_what_was_killed_is_repeated_once(void **state)
{
    auto_free char *text = NULL;
    struct setup s;

    (void)state;
    write_text(tasks_path, ONE);
    prepare(&s);
    s.engine.answer = is_killed_once;
    text = run(&s, 0);
    assert_non_null(strstr(text, "\"verdict\": \"pass\""));
    assert_non_null(strstr(text, "\"retried\": true"));
    assert_int_equal(s.tally.n_retried, 1);
    prepare(&s);
    s.engine.answer = is_always_killed;
    expect(&s, 0, "a:runtime_error");
    assert_int_equal(s.engine.n_submitted, 2);
}

/* The wall clock: once more where the load was high and the program was not. */
static void test_timeouts_under_high_load_are_repeated_once(void **state)
{
    char path[200];
    struct setup s;

    (void)state;
    write_text(tasks_path, ONE);
    snprintf(path, sizeof(path), "%s/loadavg", directory);
    write_text(path, "9999.0 1.0 1.0 1/1 1\n");
    prepare(&s);
    s.engine.answer = times_out;
    expect(&s, 0, "a:timeout");
    assert_int_equal(s.engine.n_submitted, 1);
    prepare(&s);
    s.engine.answer = times_out;
    s.settings.proc = directory;
    expect(&s, 0, "a:timeout");
    assert_int_equal(s.engine.n_submitted, 2);
    prepare(&s);
    s.engine.answer = times_out_computing;
    s.settings.proc = directory;
    expect(&s, 0, "a:timeout");
    assert_int_equal(s.engine.n_submitted, 1);
}

static bool checks_limits(uint64_t n, const struct hutch_request *request, struct hutch_result *result)
{
    (void)n;
    result->verdict = HUTCH_OK;
    assert_int_equal(request->cpu_ms, 2000);
    assert_int_equal(request->wall_ms, 30000);
    return true;
}

static void test_wall_clock_is_a_backstop(void **state)
{
    struct setup s;

    (void)state;
    write_text(tasks_path, "{\"id\":\"a\",\"code\":\"1\",\"limits\":{\"cpu_time\":\"2s\"}}\n");
    prepare(&s);
    s.engine.answer = checks_limits;
    expect(&s, 0, "a:pass");
}

/* A judge that no zygote keeps goes with the run. */
static void test_judge_is_brought_along(void **state)
{
    struct setup s;

    (void)state;
    need_python();
    write_text(tasks_path, "{\"id\":\"a\",\"code\":\"def f():\\n    return 1\",\"tests\":\"assert f() == 1\"}\n"
                           "{\"id\":\"b\",\"code\":\"def f():\\n    return 1\",\"tests\":\"assert f() == 1\"}\n");
    prepare(&s);
    s.settings.manner.carries_judge = false;
    expect(&s, 0, "a:pass b:pass");
    assert_int_equal(s.tally.verdicts[BATCH_INTERNAL], 0);
}

static bool lies(uint64_t n, const struct hutch_request *request, struct hutch_result *result)
{
    static char text[200];
    static const char *const forms[] = {
        "", "\n", "{\"kind\":\"passed\"}\n", "00000000000000000000000000000000 {\"kind\":\"passed\"}\n", "TOKEN",
        "TOKEN \n", "TOKEN []\n", "TOKEN {\"kind\":\"passed\"}\nTOKEN {\"kind\":\"passed\"}\n",
        "x TOKEN {\"kind\":\"passed\"}\n",
        "TOKEN {\"kind\":\"passed\"",
    };
    const char *form = forms[n], *token = strstr(request->input, "\"token\":\"") + 9, *mark = strstr(form, "TOKEN");

    if (mark)
        snprintf(text, sizeof(text), "%.*s%.32s%s", (int)(mark - form), form, token, mark + 5);
    else
        snprintf(text, sizeof(text), "%s", form);
    result->out = text;
    result->out_len = strlen(text);
    result->verdict = HUTCH_OK;
    return true;
}

static void test_reports_are_not_believed_lightly(void **state)
{
    struct setup s;

    (void)state;
    for (unsigned n = 0; n < 10; n++) {
        write_text(tasks_path, "{\"id\":\"a\",\"code\":\"\",\"tests\":\"\"}\n");
        prepare(&s);
        s.engine.n_submitted = n;
        s.engine.answer = lies;
        expect(&s, 0, "a:runtime_error");
    }
}

/* ---- order, resuming ---- */

#define TASK(id) "{\"id\":\"" id "\",\"code\":\"1\"}\n"
#define FIVE TASK("a") TASK("b") TASK("c") TASK("d") TASK("e")

static bool passes(uint64_t n, const struct hutch_request *request, struct hutch_result *result)
{
    (void)n, (void)request;
    result->verdict = HUTCH_OK;
    return true;
}

static void test_order(void **state)
{
    struct setup s;

    (void)state;
    write_text(tasks_path, FIVE);
    prepare(&s);
    s.engine.answer = passes;
    expect(&s, 0, "a:pass b:pass c:pass d:pass e:pass");
    assert_int_equal(s.engine.most_at_once, 4); /* two run, two wait in the engine */
    prepare(&s);
    s.engine.answer = passes;
    s.by_finish = true;
    expect(&s, 0, "d:pass c:pass b:pass a:pass e:pass"); /* the fake gives the latest first */
}

static void test_full_queue(void **state)
{
    struct setup s;

    (void)state;
    write_text(tasks_path, FIVE);
    prepare(&s);
    s.engine.answer = passes;
    s.engine.room = 1;
    expect(&s, 0, "a:pass b:pass c:pass d:pass e:pass");
}

static void keep_lines(const char *text, const char *ids, const char *tail)
{
    auto_free char *kept = calloc(1, strlen(text) + strlen(tail) + 1);

    for (const char *p = text, *end; (end = strchr(p, '\n')); p = end + 1)
        if (strchr(ids, p[strlen("{\"id\": \"")]))
            strncat(kept, p, (size_t)(end + 1 - p));
    strcat(kept, tail);
    write_text(out_path, kept);
}

static void test_resume(void **state)
{
    auto_free char *text = NULL, *again = NULL;
    struct setup s;

    (void)state;
    write_text(tasks_path, FIVE);
    prepare(&s);
    s.engine.answer = passes;
    text = run(&s, 0);

    prepare(&s);
    keep_lines(text, "db", "{\"id\": \"a\", \"resu"); /* out of order, and a torn line */
    s.engine.answer = passes;
    s.resume = true;
    again = run(&s, 0);
    assert_string_equal(again, text);
    assert_int_equal(s.engine.n_submitted, 3);
    assert_int_equal(s.n_kept, 2);
    assert_true(s.is_torn);
    assert_int_equal(s.tally.verdicts[BATCH_PASS], 5);

    prepare(&s); /* nothing left to do */
    write_text(out_path, text);
    s.engine.answer = passes;
    s.resume = true;
    expect(&s, 0, "a:pass b:pass c:pass d:pass e:pass");
    assert_int_equal(s.engine.n_submitted, 0);

    prepare(&s); /* nothing there yet */
    s.engine.answer = passes;
    s.resume = true;
    expect(&s, 0, "a:pass b:pass c:pass d:pass e:pass");
}

static void test_resume_repeats_what_changed(void **state)
{
    auto_free char *text = NULL;
    struct setup s;

    (void)state;
    write_text(tasks_path, FIVE);
    prepare(&s);
    s.engine.answer = never_works; /* fewer than what makes a batch give up */
    text = run(&s, 0);
    prepare(&s);
    write_text(out_path, text);
    s.engine.answer = passes;
    s.resume = true;
    expect(&s, 0, "a:pass b:pass c:pass d:pass e:pass");
    assert_int_equal(s.n_dropped, 5);

    prepare(&s);
    free(text);
    s.engine.answer = passes;
    text = run(&s, 0);
    write_text(tasks_path, "{\"id\":\"a\",\"code\":\"1\"}\n{\"id\":\"b\",\"code\":\"2\"}\n");
    prepare(&s);
    keep_lines(text, "ab", "");
    s.engine.answer = passes;
    s.resume = true;
    expect(&s, 0, "a:pass b:pass");
    assert_int_equal(s.engine.n_submitted, 1);
    assert_int_equal(s.n_dropped, 1);
}

static void test_foreign_output_is_left_alone(void **state)
{
    static const struct {
        bool resume;
        const char *text, *message;
    } cases[] = {
        { false, "anything\n", "holds results (--resume goes on from there; or remove it)" },
        { true, "anything\n", "line 1, column 1: expected a value" },
        { true, "{\"id\": \"a\"}\n", "line 1: this is no result of 'hutch batch'" },
        { true,
          "{\"id\": \"z\", \"verdict\": \"pass\", \"completion_id\": 0, \"hash\": "
          "\"00000000000000000000000000000000\"}\n",
          "line 1: this is a result of another batch: there is no task 'z'" },
    };
    struct setup s;

    (void)state;
    write_text(tasks_path, ONE);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        auto_free char *text = NULL;

        prepare(&s);
        write_text(out_path, cases[i].text);
        s.resume = cases[i].resume;
        text = run(&s, -1);
        if (!strstr(s.err.msg, cases[i].message))
            fail_msg("got '%s', wanted '%s'", s.err.msg, cases[i].message);
        assert_string_equal(text, cases[i].text);
    }
}

/* ---- ends ---- */

static void test_interruption_keeps_what_is_done(void **state)
{
    auto_free char *text = NULL;
    struct setup s;
    int fds[2];

    (void)state;
    write_text(tasks_path, FIVE);
    prepare(&s);
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    s.settings.stop_fd = fds[0];
    s.engine.answer = passes;
    s.engine.gives_nothing_back = true;
    text = run(&s, 0);
    assert_true(s.tally.is_interrupted);
    assert_int_equal(s.tally.n_done, 0);
    assert_string_equal(text, "");
    close(fds[0]);
    close(fds[1]);
}

static void test_engine_that_cannot_run(void **state)
{
    struct setup s;

    (void)state;
    write_text(tasks_path, FIVE);
    prepare(&s);
    s.engine.answer = passes;
    s.engine.gives_nothing_back = true;
    s.engine.is_broken = true;
    expect(&s, -1, "");
    assert_string_equal(s.err.msg, "the first zygote does not start");
}

static void test_gives_up_when_nothing_runs(void **state)
{
    struct setup s;

    (void)state;
    write_text(tasks_path, FIVE FIVE FIVE);
    prepare(&s);
    s.engine.answer = never_works;
    free(run(&s, -1));
    assert_string_equal(s.err.msg, "nothing can be run: task 'd': no room");
    assert_in_range(s.engine.n_submitted, 24, 40);
}

static void test_files(void **state)
{
    char path[200];
    struct setup s;

    (void)state;
    snprintf(path, sizeof(path), "%s/files", directory);
    assert_int_equal(mkdir(path, 0700), 0);
    prepare(&s);
    s.settings.manner.files_path = path;
    s.settings.manner.files_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    s.engine.answer = passes;
    write_text(tasks_path, "{\"id\":\"a\",\"code\":\"1\",\"files\":{\"x/y/z\":\"1\",\"x/w\":\"2\"}}\n"
                           "{\"id\":\"b\",\"code\":\"1\",\"files\":{\"../z\":\"1\"}}\n"
                           "{\"id\":\"c\",\"code\":\"1\",\"files\":{\"/z\":\"1\"}}\n"
                           "{\"id\":\"d\",\"code\":\"1\",\"files\":{\"x/\":\"1\"}}\n"
                           "{\"id\":\"e\",\"code\":\"1\",\"files\":{\"x\":\"1\",\"x/y\":\"1\"}}\n");
    expect(&s, 0, "a:pass b:internal c:internal d:internal e:internal");
    close(s.settings.manner.files_fd);
    assert_int_equal(rmdir(path), 0); /* nothing left in it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_function_samples),
        cmocka_unit_test(test_tests_that_must_run_together),
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_function_cases),
        cmocka_unit_test(test_exit_codes_and_output),
        cmocka_unit_test(test_failures_of_the_engine_are_repeated),
        cmocka_unit_test(test_what_was_killed_is_repeated_once),
        cmocka_unit_test(test_timeouts_under_high_load_are_repeated_once),
        cmocka_unit_test(test_wall_clock_is_a_backstop),
        cmocka_unit_test(test_judge_is_brought_along),
        cmocka_unit_test(test_reports_are_not_believed_lightly),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_full_queue),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_resume_repeats_what_changed),
        cmocka_unit_test(test_foreign_output_is_left_alone),
        cmocka_unit_test(test_interruption_keeps_what_is_done),
        cmocka_unit_test(test_engine_that_cannot_run),
        cmocka_unit_test(test_gives_up_when_nothing_runs),
        cmocka_unit_test(test_files),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
