#include "runtime/batch/verdict.h"

#include "runtime/batch/judge.h"
#include "runtime/batch/run.h"
#include "runtime/text/json_view.h"
#include "sandbox/fd.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A process that the kernel killed came so close to its limit: its last moments are not all counted. */
#define CPU_SLACK_MS 50
#define MEMORY_SLACK 16 /* of this part of the limit */

static const char *const verdict_names[BATCH_VERDICT_COUNT] = {
    [BATCH_PASS] = "pass",
    [BATCH_WRONG_ANSWER] = "wrong_answer",
    [BATCH_RUNTIME_ERROR] = "runtime_error",
    [BATCH_TIMEOUT] = "timeout",
    [BATCH_MEMORY_LIMIT] = "memory_limit",
    [BATCH_OUTPUT_LIMIT] = "output_limit",
    [BATCH_COMPILE_ERROR] = "compile_error",
    [BATCH_INTERNAL] = "internal",
};

const char *hutch_batch_verdict_name(enum batch_verdict verdict)
{
    return verdict_names[verdict];
}

int hutch_batch_verdict_parse(const char *name, size_t len, enum batch_verdict *ret)
{
    for (size_t i = 0; i < BATCH_VERDICT_COUNT; i++)
        if (strlen(verdict_names[i]) == len && memcmp(name, verdict_names[i], len) == 0) {
            *ret = (enum batch_verdict)i;
            return 0;
        }
    return -1;
}

static void set_verdict(struct batch_run_verdict *v, enum batch_verdict kind, const char *fmt, ...) HUTCH_PRINTF(3, 4);
static void set_verdict(struct batch_run_verdict *v, enum batch_verdict kind, const char *fmt, ...)
{
    va_list ap;

    v->kind = kind;
    va_start(ap, fmt);
    vsnprintf(v->text, sizeof(v->text), fmt, ap);
    va_end(ap);
}

/* The verdict where the engine's alone decides. False: the first process ran to an end of its own. */
static bool decide_by_end(const struct batch_run *run, const struct hutch_result *r, struct batch_run_verdict *v)
{
    switch (r->verdict) {
    case HUTCH_OK:
    case HUTCH_ERROR:
        return false;
    case HUTCH_TIMEOUT:
        v->is_backstop = true;
        set_verdict(v, BATCH_TIMEOUT, "%s", r->message);
        return true;
    case HUTCH_CPU_TIME:
        if (v->cpu_ms < run->request.cpu_ms)
            v->cpu_ms = run->request.cpu_ms; /* of a process that could not be waited for */
        set_verdict(v, BATCH_TIMEOUT, "%s", r->message);
        return true;
    case HUTCH_OUT_OF_MEMORY:
        set_verdict(v, BATCH_MEMORY_LIMIT, "%s", r->message);
        return true;
    case HUTCH_OUTPUT_LIMIT:
        set_verdict(v, BATCH_OUTPUT_LIMIT, "%s", r->message);
        return true;
    case HUTCH_KILLED:
        if (r->hutch_failed) {
            set_verdict(v, BATCH_INTERNAL, "%s", r->message);
            return true;
        }
        v->is_killed = true;
        set_verdict(v, BATCH_RUNTIME_ERROR, "%s", r->message);
        return true;
    case HUTCH_DENIED:
        set_verdict(v, BATCH_RUNTIME_ERROR, "%s", r->message);
        return true;
    case HUTCH_SETUP_FAILED:
        set_verdict(v, BATCH_INTERNAL, "%s", r->message);
        return true;
    }
    set_verdict(v, BATCH_INTERNAL, "a verdict of the engine that is not known here");
    return true;
}

/* The bytes of memory that a run was granted, as its result tells; 0 when it does not. */
static uint64_t memory_limit(const struct hutch_result *r)
{
    auto_free char *text = hutch_result_to_json(r);
    struct json_view root;
    struct hutch_err ignored;
    int64_t bytes;

    if (!text || hutch_json_view_check("", 1, 1, text, strlen(text), &root, &ignored) < 0)
        return 0;
    root = hutch_json_view_get(hutch_json_view_get(hutch_json_view_get(root, "limits"), "memory"), "asked");
    return hutch_json_view_integer(root, &bytes) && bytes > 0 ? (uint64_t)bytes : 0;
}

static bool is_memory_used_up(const struct hutch_result *r)
{
    uint64_t limit = memory_limit(r);

    return limit && r->memory_peak_bytes != HUTCH_UNKNOWN && r->memory_peak_bytes >= limit - limit / MEMORY_SLACK;
}

static bool is_cpu_time_used_up(const struct batch_run *run, const struct batch_run_verdict *v)
{
    return run->request.cpu_ms && v->cpu_ms + CPU_SLACK_MS >= run->request.cpu_ms;
}

/* The program's process is gone. The kernel ends it for time or memory while the judge, another process, lives on to
 * report it. */
static void decide_by_loss(const struct batch_run *run, const struct hutch_result *r, struct json_view report,
                           struct batch_run_verdict *v)
{
    int64_t number = 0, code = 0;

    if (!hutch_json_view_integer(hutch_json_view_get(report, "signal"), &number)) {
        if (hutch_json_view_integer(hutch_json_view_get(report, "exit_code"), &code))
            set_verdict(v, BATCH_RUNTIME_ERROR, "the program ended (exit code %d) before the tests were over",
                        (int)code);
        else
            set_verdict(v, BATCH_RUNTIME_ERROR, "the program stopped answering the tests");
        return;
    }
    if (number == SIGXCPU || (number == SIGKILL && is_cpu_time_used_up(run, v))) {
        set_verdict(v, BATCH_TIMEOUT, "it used up its CPU time");
        return;
    }
    if (number == SIGKILL && is_memory_used_up(r))
        set_verdict(v, BATCH_MEMORY_LIMIT, "it ran out of memory");
    else
        set_verdict(v, BATCH_RUNTIME_ERROR, "the program was ended by signal %d before the tests were over",
                    (int)number);
}

static enum batch_verdict verdict_of_failed_test(struct json_view exception)
{
    if (hutch_json_view_is(exception, "AssertionError"))
        return BATCH_WRONG_ANSWER;
    return hutch_json_view_is(exception, "MemoryError") ? BATCH_MEMORY_LIMIT : BATCH_RUNTIME_ERROR;
}

static void decide_by_report(const struct batch_run *run, const struct hutch_result *r, struct json_view report,
                             struct batch_run_verdict *v)
{
    struct json_view kind = hutch_json_view_get(report, "kind"), name = hutch_json_view_get(report, "name");
    struct json_view text_json = hutch_json_view_get(report, "text");
    struct json_view guarded = hutch_json_view_get(report, "guarded");
    auto_free char *text = NULL;
    struct hutch_err err;
    int64_t cpu_ms;

    /* A cgroup counts both processes; without one the engine knows the judge's own time alone. */
    if (hutch_json_view_integer(hutch_json_view_get(report, "cpu_ms"), &cpu_ms) && cpu_ms > 0 &&
        (uint64_t)cpu_ms > v->cpu_ms)
        v->cpu_ms = (uint64_t)cpu_ms;
    if (hutch_json_view_is_string(text_json) && hutch_json_view_text(text_json, &text, NULL, &err) < 0)
        text = NULL;
    v->is_exposed = guarded.text && *guarded.text == 'f'; /* false */
    if (hutch_json_view_is(kind, "passed"))
        v->kind = BATCH_PASS;
    else if (hutch_json_view_is(kind, "compile_error"))
        set_verdict(v, BATCH_COMPILE_ERROR, "%s", text ? text : "");
    else if (hutch_json_view_is(kind, "error"))
        set_verdict(v, verdict_of_failed_test(name), "%s", text ? text : "");
    else if (hutch_json_view_is(kind, "ended"))
        decide_by_loss(run, r, report, v);
    else if (hutch_json_view_is(kind, "garbage"))
        set_verdict(v, BATCH_RUNTIME_ERROR, "the program gave %s", text ? text : "an answer that cannot be read");
    else if (hutch_json_view_is(kind, "apart"))
        v->wants_together = true;
    else
        set_verdict(v, BATCH_INTERNAL, "the tests cannot be run: %s", text ? text : "no reason was given");
}

/* The judge writes "TOKEN {…}\n" and nothing else. */
static void decide_by_tests(const struct batch_run *run, const struct hutch_result *r, struct batch_run_verdict *v)
{
    static const char missing[] = BATCH_JUDGE_MISSING "\n";
    size_t token_len = strlen(run->token);
    struct json_view report;
    struct hutch_err ignored;

    if (r->out_len == strlen(missing) && memcmp(r->out, missing, r->out_len) == 0) {
        v->wants_judge = true;
        return;
    }
    if (r->verdict != HUTCH_OK || r->out_len <= token_len + 1 || memcmp(r->out, run->token, token_len) != 0 ||
        hutch_json_view_check("", 1, 1, r->out + token_len, r->out_len - token_len, &report, &ignored) < 0 ||
        !hutch_json_view_is_object(report)) {
        set_verdict(v, BATCH_RUNTIME_ERROR, "the tests were ended before they could report");
        return;
    }
    decide_by_report(run, r, report, v);
}

static enum batch_verdict verdict_of_exception(const char *name)
{
    static const char *const syntax_errors[] = { "SyntaxError", "IndentationError", "TabError" };

    for (size_t i = 0; i < ARRAY_SIZE(syntax_errors); i++)
        if (strcmp(name, syntax_errors[i]) == 0)
            return BATCH_COMPILE_ERROR;
    return strcmp(name, "MemoryError") == 0 ? BATCH_MEMORY_LIMIT : BATCH_RUNTIME_ERROR;
}

static void decide_by_failure(const struct hutch_result *r, struct batch_run_verdict *v)
{
    /* What comes before it: which limit may have been in the way, or what became of the files. */
    const char *before = r->message[0] ? "; " : "";

    if (r->error_name) {
        set_verdict(v, verdict_of_exception(r->error_name), "%.200s: %.3000s%s%s", r->error_name,
                    r->error_value ? r->error_value : "", before, r->message);
    } else if (r->signal) {
        set_verdict(v, BATCH_RUNTIME_ERROR, "ended by signal %d%s%s", r->signal, before, r->message);
    } else {
        set_verdict(v, BATCH_RUNTIME_ERROR, "exit code %d%s%s", r->exit_code, before, r->message);
    }
}

static void decide_by_output(const struct batch_task *task, size_t index, const struct hutch_result *r,
                             struct batch_run_verdict *v)
{
    auto_free char *want = NULL;
    struct hutch_err err;
    size_t len;

    if (r->exit_code != task->exit_code) {
        if (r->exit_code == 0)
            set_verdict(v, BATCH_WRONG_ANSWER, "exit code 0 in place of %d", (int)task->exit_code);
        else
            decide_by_failure(r, v);
        return;
    }
    v->kind = BATCH_PASS;
    if (task->compare == COMPARE_EXIT0 || !task->cases[index].output.text)
        return;
    if (hutch_batch_run_decode(task->cases[index].output, &want, &len, &err) < 0)
        set_verdict(v, BATCH_INTERNAL, "%s", err.msg);
    else if (!hutch_batch_compare(task->compare, r->out, r->out_len, want, len))
        set_verdict(v, BATCH_WRONG_ANSWER, "wrong answer");
}

void hutch_batch_verdict_reach(const struct batch_run *run, const struct batch_task *task, size_t index,
                               const struct hutch_result *result, struct batch_run_verdict *ret)
{
    struct batch_run_verdict v = { .kind = BATCH_PASS };

    if (result->cpu_user_ms != HUTCH_UNKNOWN && result->cpu_system_ms != HUTCH_UNKNOWN)
        v.cpu_ms = result->cpu_user_ms + result->cpu_system_ms;
    if (!decide_by_end(run, result, &v)) {
        if (task->judging == BATCH_BY_TESTS)
            decide_by_tests(run, result, &v);
        else
            decide_by_output(task, index, result, &v);
    }
    *ret = v;
}
