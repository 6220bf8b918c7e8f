#include "runtime/batch/task.h"

#include "sandbox/fd.h"
#include "runtime/batch/source.h"
#include "runtime/text/quantity.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ID_MAX 256
#define PROGRAM_MAX (4u << 20) /* bytes of a program in the record's own spelling */
#define TEXT_MAX (128u << 20) /* of what a program reads */
#define CASES_MAX 100000

static const char *const format_names[BATCH_FORMAT_COUNT] = {
    [BATCH_AUTO] = "auto", [BATCH_GENERIC] = "generic", [BATCH_HUMANEVAL] = "humaneval", [BATCH_MBPP] = "mbpp",
    [BATCH_STDIO] = "stdio",
};

const char *hutch_batch_format_name(enum batch_format format)
{
    return format_names[format];
}

int hutch_batch_format_parse(const char *name, enum batch_format *ret, struct hutch_err *err)
{
    for (size_t i = 0; i < BATCH_FORMAT_COUNT; i++)
        if (strcmp(name, format_names[i]) == 0) {
            *ret = (enum batch_format)i;
            return 0;
        }
    return hutch_err_set(err, 0, "'%.40s' is not a format: generic, humaneval, mbpp, stdio or auto", name);
}

static bool has(struct json_view record, const char *key)
{
    return !hutch_json_view_is_null(hutch_json_view_get(record, key));
}

enum batch_format hutch_batch_format_guess(struct json_view record)
{
    if (has(record, "entry_point") && has(record, "test") && has(record, "prompt"))
        return BATCH_HUMANEVAL;
    if (has(record, "test_list"))
        return BATCH_MBPP;
    if (has(record, "input_output") || has(record, "verification_info") || has(record, "outputs") ||
        has(record, "test_cases") || has(record, "public_test_cases") ||
        (has(record, "test") && has(record, "content")))
        return BATCH_STDIO;
    return BATCH_GENERIC;
}

/* ---- fields ---- */

struct reader {
    const char *what;
    struct json_view record;
    struct batch_task *task;
    struct hutch_err *err;
};

static int refuse(const struct reader *r, const char *fmt, ...) HUTCH_PRINTF(2, 3);
static int refuse(const struct reader *r, const char *fmt, ...)
{
    char why[300];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    return hutch_err_set(r->err, 0, "%s: %s", r->what, why);
}

enum need { OPTIONAL, REQUIRED };

/* A string, or none where it is null or missing. */
static int read_string(const struct reader *r, const char *key, size_t max, enum need need, struct json_view *ret)
{
    struct json_view value = hutch_json_view_get(r->record, key);

    if (hutch_json_view_is_null(value)) {
        if (need == REQUIRED)
            return refuse(r, value.text ? "the key \"%s\" is null" : "the key \"%s\" is missing", key);
        *ret = JSON_VIEW_NONE;
        return 0;
    }
    if (!hutch_json_view_is_string(value))
        return refuse(r, "the value of \"%s\" is not a text", key);
    if (value.len > max)
        return refuse(r, "the text of \"%s\" is longer than %zu bytes", key, max);
    *ret = value;
    return 0;
}

/* A string, or an array of strings. */
static int read_strings(const struct reader *r, const char *key, size_t max, struct json_view *ret)
{
    struct json_view value = hutch_json_view_get(r->record, key), item;
    struct json_walk walk = hutch_json_view_walk(value);

    if (!hutch_json_view_is_array(value))
        return read_string(r, key, max, OPTIONAL, ret);
    if (value.len > max)
        return refuse(r, "the texts of \"%s\" are longer than %zu bytes", key, max);
    while (hutch_json_view_next(&walk, NULL, &item))
        if (!hutch_json_view_is_string(item))
            return refuse(r, "what \"%s\" lists is not all text", key);
    *ret = value;
    return 0;
}

static int decode(const struct reader *r, const char *key, struct json_view value, char **ret)
{
    char *text;
    size_t len;

    if (hutch_json_view_text(value, &text, &len, r->err) < 0)
        return hutch_err_wrap(r->err, "%s", r->what);
    if (strlen(text) != len) {
        free(text);
        return refuse(r, "the text of \"%s\" has a NUL byte in it", key);
    }
    *ret = text;
    return 0;
}

/* ---- who it is ---- */

/* Tasks are called by text or number; which key holds it differs. */
static int find_id(const char *what, struct json_view record, struct json_view *ret_json, char **ret,
                   struct hutch_err *err)
{
    static const char *const keys[] = { "task_id", "id", "question_id", "problem_id" };
    struct reader r = { .what = what, .record = record, .err = err };
    struct json_view value = JSON_VIEW_NONE;
    const char *key = NULL;
    int64_t number;

    for (size_t i = 0; i < ARRAY_SIZE(keys) && !value.text; i++)
        value = hutch_json_view_get(record, key = keys[i]);
    if (!value.text)
        return refuse(&r, "the key \"task_id\" (or \"id\") is missing");
    *ret_json = value;
    if (hutch_json_view_is_string(value)) {
        if (value.len <= 2 || value.len > ID_MAX)
            return refuse(&r, "\"%s\" is not a name of 1 to %d bytes", key, ID_MAX);
        return decode(&r, key, value, ret);
    }
    if (!hutch_json_view_integer(value, &number))
        return refuse(&r, "\"%s\" is neither a text nor a whole number", key);
    if (asprintf(ret, "%lld", (long long)number) < 0)
        return hutch_err_set(err, ENOMEM, "%s", what);
    return 0;
}

/* EvalPlus and others call MBPP's task 2 "Mbpp/2". */
static void shorten_mbpp_id(char *id)
{
    if (strncasecmp(id, "mbpp/", 5) == 0 && id[5])
        memmove(id, id + 5, strlen(id + 5) + 1);
}

/* ---- HumanEval ---- */

static int read_humaneval(const struct reader *r, const struct batch_task_options *options)
{
    struct batch_task *t = r->task;

    (void)options;
    t->judging = BATCH_BY_TESTS;
    t->is_checked = true;
    if (read_string(r, "prompt", PROGRAM_MAX, REQUIRED, &t->prompt) < 0 ||
        read_string(r, "entry_point", ID_MAX, REQUIRED, &t->entry) < 0 ||
        read_string(r, "canonical_solution", PROGRAM_MAX, OPTIONAL, &t->program) < 0 ||
        read_string(r, "test", PROGRAM_MAX, REQUIRED, &t->tests) < 0)
        return -1;
    return 0;
}

/* ---- MBPP ---- */

static int read_mbpp(const struct reader *r, const struct batch_task_options *options)
{
    struct batch_task *t = r->task;

    t->judging = BATCH_BY_TESTS;
    if (read_string(r, "code", PROGRAM_MAX, OPTIONAL, &t->program) < 0 ||
        read_strings(r, "test_imports", PROGRAM_MAX, &t->before) < 0 ||
        read_string(r, "test_setup_code", PROGRAM_MAX, OPTIONAL, &t->before_more) < 0)
        return -1;
    if (has(r->record, "test")) /* MBPP+: a program instead of the list */
        return read_string(r, "test", PROGRAM_MAX, REQUIRED, &t->tests);
    if (read_strings(r, "test_list", PROGRAM_MAX, &t->tests) < 0)
        return -1;
    if (!hutch_json_view_is_array(t->tests) || hutch_json_view_count(t->tests) == 0)
        return refuse(r, "the key \"test_list\" is missing, or lists nothing");
    return options->with_challenge ? read_strings(r, "challenge_test_list", PROGRAM_MAX, &t->more_tests) : 0;
}

/* ---- programs that read and print ---- */

/* JSON, or text that holds JSON, which is then @slot of the task. */
static int open_inner(const struct reader *r, const char *key, int slot, struct json_view *ret)
{
    struct json_view value = hutch_json_view_get(r->record, key);
    char what[BATCH_WHERE_MAX];

    if (!hutch_json_view_is_string(value)) {
        *ret = value;
        return 0;
    }
    if (decode(r, key, value, &r->task->inner[slot]) < 0)
        return -1;
    snprintf(what, sizeof(what), "%s: the text of \"%s\" (test cases that are packed must be unpacked first)", r->what,
             key);
    return hutch_json_view_check(what, 1, 1, r->task->inner[slot], strlen(r->task->inner[slot]), ret, r->err);
}

static int make_cases(const struct reader *r, size_t n)
{
    struct batch_case *cases;

    if (n > CASES_MAX || r->task->n_cases + n > CASES_MAX)
        return refuse(r, "more than %d test cases", CASES_MAX);
    cases = realloc(r->task->cases, (r->task->n_cases + n) * sizeof(*cases) + 1);
    if (!cases)
        return hutch_err_set(r->err, ENOMEM, "%s", r->what);
    r->task->cases = cases;
    return 0;
}

/* {"inputs": […], "outputs": […], "fn_name": …} */
static int read_pairs(const struct reader *r, struct json_view object)
{
    struct json_view inputs = hutch_json_view_get(object, "inputs"),
                      outputs = hutch_json_view_get(object, "outputs");
    struct json_walk in = hutch_json_view_walk(inputs), out = hutch_json_view_walk(outputs);
    struct json_view name = hutch_json_view_get(object, "fn_name");
    struct batch_case c;

    if (!hutch_json_view_is_array(inputs) || !hutch_json_view_is_array(outputs))
        return refuse(r, "expected \"inputs\" and \"outputs\", an array each");
    if (hutch_json_view_count(inputs) != hutch_json_view_count(outputs))
        return refuse(r, "there are %zu inputs and %zu outputs", hutch_json_view_count(inputs),
                      hutch_json_view_count(outputs));
    if (make_cases(r, hutch_json_view_count(inputs)) < 0)
        return -1;
    while (hutch_json_view_next(&in, NULL, &c.input) && hutch_json_view_next(&out, NULL, &c.output))
        r->task->cases[r->task->n_cases++] = c;
    if (hutch_json_view_is_string(name) && name.len > 2) {
        r->task->is_function = true;
        r->task->entry = name;
    }
    return 0;
}

/* [{"input": …, "output": …, "type": …}, …], or {"input": {"stdin": …}, "output": {"stdout": …}} */
static int read_case_list(const struct reader *r, const char *key, struct json_view list)
{
    struct json_walk walk = hutch_json_view_walk(list);
    struct json_view item;
    struct batch_case c;

    if (!hutch_json_view_is_array(list))
        return refuse(r, "the value of \"%s\" is not an array of test cases", key);
    if (make_cases(r, hutch_json_view_count(list)) < 0)
        return -1;
    while (hutch_json_view_next(&walk, NULL, &item)) {
        c.input = hutch_json_view_get(item, "input");
        c.output = hutch_json_view_get(item, "output");
        if (hutch_json_view_is_object(c.input))
            c.input = hutch_json_view_get(c.input, "stdin");
        if (hutch_json_view_is_object(c.output))
            c.output = hutch_json_view_get(c.output, "stdout");
        if (!c.output.text)
            return refuse(r, "test case %zu of \"%s\" has no \"output\"", r->task->n_cases, key);
        if (hutch_json_view_is(hutch_json_view_get(item, "testtype"), "functional"))
            r->task->is_function = true;
        r->task->cases[r->task->n_cases++] = c;
    }
    return 0;
}

/* LiveCodeBench's own form: cases in two lists, the function's name in the metadata. */
static int read_livecodebench(const struct reader *r)
{
    static const char *const keys[] = { "public_test_cases", "private_test_cases" };
    struct json_view list, metadata = hutch_json_view_get(r->record, "metadata");
    auto_free char *text = NULL;

    for (int i = 0; i < 2; i++) {
        if (!has(r->record, keys[i]))
            continue;
        if (open_inner(r, keys[i], i, &list) < 0 || read_case_list(r, keys[i], list) < 0)
            return -1;
    }
    if (!r->task->is_function)
        return 0;
    if (hutch_json_view_is_object(metadata)) {
        r->task->entry = hutch_json_view_get(metadata, "func_name");
    } else if (hutch_json_view_is_string(metadata)) {
        /* Text within text: its value is looked up in the record's own spelling, where quotes have a backslash. */
        const char *from = memmem(metadata.text, metadata.len, "\\\"func_name\\\"", 13), *end;

        from = from ? memchr(from + 13, '"', (size_t)(metadata.text + metadata.len - from - 13)) : NULL;
        end = from ? memmem(from, (size_t)(metadata.text + metadata.len - from), "\\\"", 2) : NULL;
        if (end && asprintf(&text, "\"%.*s\"", (int)(end - from - 1), from + 1) > 0 && !r->task->inner[1]) {
            r->task->inner[1] = text;
            r->task->entry = (struct json_view){ text, strlen(text) };
            text = NULL;
        }
    }
    return 0;
}

/* "python" is told in many ways; another language by its own name. */
static int read_language(const struct reader *r, struct json_view object)
{
    struct json_view value = hutch_json_view_get(object, "language");
    char *text = NULL;

    if (hutch_json_view_is_string(value) && (value.len > 40 || decode(r, "language", value, &text) < 0))
        return value.len > 40 ? refuse(r, "the value of \"language\" is too long") : -1;
    if (text && (strcasecmp(text, "python3") == 0 || strcasecmp(text, "py") == 0 || strcasecmp(text, "python") == 0))
        strcpy(text, "python");
    if (!text)
        text = strdup("python");
    if (!text)
        return hutch_err_set(r->err, ENOMEM, "%s", r->what);
    free(r->task->language);
    r->task->language = text;
    return 0;
}

/* The first of the keys under which solutions are found. */
static int read_solution(const struct reader *r)
{
    static const char *const keys[] = { "code", "solution", "program", "canonical_solution" };
    struct json_view list = hutch_json_view_get(r->record, "solutions");
    struct json_walk walk = hutch_json_view_walk(list);
    struct json_view first;

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        if (has(r->record, keys[i]))
            return read_string(r, keys[i], PROGRAM_MAX, REQUIRED, &r->task->program);
    if (hutch_json_view_is_array(list) && hutch_json_view_next(&walk, NULL, &first) &&
        hutch_json_view_is_string(first))
        r->task->program = first;
    return 0;
}

static int read_stdio(const struct reader *r, const struct batch_task_options *options)
{
    struct batch_task *t = r->task;
    struct json_view value;
    int rc;

    t->judging = BATCH_BY_OUTPUT;
    t->compare = COMPARE_LINES;
    if (read_solution(r) < 0 || read_language(r, r->record) < 0)
        return -1;
    if (has(r->record, "input_output")) {
        t->compare = COMPARE_DECIMAL;
        t->with_prelude = true;
        rc = open_inner(r, "input_output", 0, &value) < 0 ? -1 : read_pairs(r, value);
    } else if (has(r->record, "verification_info")) {
        if (open_inner(r, "verification_info", 0, &value) < 0 || read_language(r, value) < 0)
            return -1;
        rc = read_case_list(r, "test_cases", hutch_json_view_get(value, "test_cases"));
    } else if (has(r->record, "public_test_cases")) {
        t->compare = COMPARE_DECIMAL;
        t->with_prelude = true;
        rc = read_livecodebench(r);
    } else if (has(r->record, "test_cases")) {
        rc = open_inner(r, "test_cases", 0, &value) < 0 ? -1 : read_case_list(r, "test_cases", value);
    } else if (has(r->record, "test")) {
        rc = open_inner(r, "test", 0, &value) < 0 ? -1 : read_case_list(r, "test", value);
    } else {
        rc = read_pairs(r, r->record);
    }
    if (rc < 0)
        return -1;
    if (t->n_cases == 0)
        return refuse(r, "it has no test cases");
    if (has(r->record, "compare")) {
        auto_free char *name = NULL;

        if (read_string(r, "compare", 40, REQUIRED, &value) < 0 || decode(r, "compare", value, &name) < 0)
            return -1;
        if (hutch_batch_compare_parse(name, &t->compare, r->err) < 0)
            return hutch_err_wrap(r->err, "%s", r->what);
    }
    if (options->has_compare)
        t->compare = options->compare;
    if (t->is_function) {
        if (!hutch_json_view_is_string(t->entry) || t->entry.len <= 2 || t->entry.len > ID_MAX)
            return refuse(r, "its test cases call a function, whose name is missing (\"fn_name\", \"func_name\" in "
                             "\"metadata\")");
        t->judging = BATCH_BY_TESTS;
    }
    if (strcmp(t->language, "python") != 0) {
        if (t->is_function)
            return refuse(r, "its test cases call a function, which only Python programs have; the language is '%s'",
                          t->language);
        t->with_prelude = false;
    }
    return 0;
}

/* ---- our own form ---- */

static int read_words(const struct reader *r, const char *key, struct json_view *ret)
{
    if (read_strings(r, key, 1u << 20, ret) < 0)
        return -1;
    if (ret->text && !hutch_json_view_is_array(*ret))
        return refuse(r, "the value of \"%s\" is not an array", key);
    if (hutch_json_view_count(*ret) > BATCH_MAX_WORDS)
        return refuse(r, "\"%s\" lists more than %d texts", key, BATCH_MAX_WORDS);
    return 0;
}

/* An object whose values are all text. */
static int read_text_map(const struct reader *r, const char *key, size_t max, struct json_view *ret)
{
    struct json_view value = hutch_json_view_get(r->record, key), item;
    struct json_walk walk = hutch_json_view_walk(value);

    if (hutch_json_view_is_null(value))
        return 0;
    if (!hutch_json_view_is_object(value))
        return refuse(r, "the value of \"%s\" is not an object", key);
    if (hutch_json_view_count(value) > max)
        return refuse(r, "\"%s\" holds more than %zu texts", key, max);
    while (hutch_json_view_next(&walk, NULL, &item))
        if (!hutch_json_view_is_string(item))
            return refuse(r, "what \"%s\" holds is not all text", key);
    *ret = value;
    return 0;
}

/* A number of the unit without a suffix, or text that has one, as policies have it. */
static int read_limit(const struct reader *r, const char *key, struct json_view value,
                      int (*parse)(const char *, uint64_t *, struct hutch_err *), uint64_t *ret)
{
    char text[32];
    bool is_quoted = hutch_json_view_is_string(value);
    size_t len = is_quoted ? value.len - 2 : value.len;

    if (len >= sizeof(text))
        return refuse(r, "the limit \"%s\" is no quantity", key);
    memcpy(text, value.text + is_quoted, len);
    text[len] = '\0';
    if (parse(text, ret, r->err) < 0)
        return hutch_err_wrap(r->err, "%s: the limit \"%s\"", r->what, key);
    return *ret ? 0 : refuse(r, "the limit \"%s\" leaves room for nothing", key);
}

static int read_limits(const struct reader *r)
{
    static const struct {
        const char *key;
        int (*parse)(const char *, uint64_t *, struct hutch_err *);
        size_t offset;
    } rows[] = {
        { "cpu_time", hutch_parse_duration_ms, offsetof(struct batch_limits, cpu_ms) },
        { "wall", hutch_parse_duration_ms, offsetof(struct batch_limits, wall_ms) },
        { "memory", hutch_parse_bytes, offsetof(struct batch_limits, memory_bytes) },
        { "pids", hutch_parse_u64, offsetof(struct batch_limits, pids) },
        { "output", hutch_parse_bytes, offsetof(struct batch_limits, output_bytes) },
    };
    struct json_view limits = hutch_json_view_get(r->record, "limits"), key, value;
    struct json_walk walk = hutch_json_view_walk(limits);

    if (hutch_json_view_is_null(limits))
        return 0;
    if (!hutch_json_view_is_object(limits))
        return refuse(r, "the value of \"limits\" is not an object");
    while (hutch_json_view_next(&walk, &key, &value)) {
        size_t i = 0;
        uint64_t *into;

        while (i < ARRAY_SIZE(rows) && !hutch_json_view_is(key, rows[i].key))
            i++;
        if (i == ARRAY_SIZE(rows))
            return refuse(r, "there is no limit %.*s; known here: cpu_time, wall, memory, pids, output",
                          key.len < 40 ? (int)key.len : 40, key.text);
        into = (uint64_t *)((char *)&r->task->limits + rows[i].offset);
        if (read_limit(r, rows[i].key, value, rows[i].parse, into) < 0)
            return -1;
    }
    return 0;
}

/* In a form of our own a misspelt key is an error: a test that is not run passes every program. */
static int check_keys(const struct reader *r)
{
    static const char *const keys[] = {
        "id", "task_id", "language", "code", "prompt", "stdin", "files", "args", "env", "expected", "tests", "setup",
        "entry_point", "judge", "compare", "limits", "metadata",
    };
    struct json_walk walk = hutch_json_view_walk(r->record);
    struct json_view key, value;

    while (hutch_json_view_next(&walk, &key, &value)) {
        size_t i = 0;

        while (i < ARRAY_SIZE(keys) && !hutch_json_view_is(key, keys[i]))
            i++;
        if (i == ARRAY_SIZE(keys))
            return refuse(r, "unknown key %.*s; known here: id, language, code, prompt, stdin, files, args, env, "
                             "expected, tests, setup, entry_point, judge, compare, limits, metadata",
                          key.len < 40 ? (int)key.len : 40, key.text);
    }
    return 0;
}

static int read_expected(const struct reader *r)
{
    struct json_view expected = hutch_json_view_get(r->record, "expected"), key, value;
    struct json_walk walk = hutch_json_view_walk(expected);
    struct batch_task *t = r->task;
    bool has_output = false;

    if (hutch_json_view_is_string(expected)) { /* short for {"stdout": …} */
        t->cases[0].output = expected;
        has_output = true;
    } else if (!hutch_json_view_is_null(expected) && !hutch_json_view_is_object(expected)) {
        return refuse(r, "the value of \"expected\" is not an object");
    }
    while (hutch_json_view_is_object(expected) && hutch_json_view_next(&walk, &key, &value)) {
        if (hutch_json_view_is(key, "stdout") && hutch_json_view_is_string(value)) {
            t->cases[0].output = value;
            has_output = true;
        } else if (hutch_json_view_is(key, "exit_code") && hutch_json_view_integer(value, &t->exit_code) &&
                   t->exit_code >= 0 && t->exit_code <= 255) {
            continue;
        } else {
            return refuse(r, "\"expected\" takes \"stdout\", a text, and \"exit_code\", 0 to 255");
        }
    }
    if (!has_output)
        t->compare = COMPARE_EXIT0;
    return 0;
}

static int read_generic(const struct reader *r, const struct batch_task_options *options)
{
    struct batch_task *t = r->task;
    struct json_view judge, compare;
    auto_free char *name = NULL;

    t->judging = BATCH_BY_EXIT;
    t->compare = COMPARE_RSTRIP_NEWLINES;
    if (check_keys(r) < 0 || read_language(r, r->record) < 0 || make_cases(r, 1) < 0)
        return -1;
    t->cases[0] = (struct batch_case){ JSON_VIEW_NONE, JSON_VIEW_NONE };
    t->n_cases = 1;
    if (read_string(r, "code", PROGRAM_MAX, OPTIONAL, &t->program) < 0 ||
        read_string(r, "prompt", PROGRAM_MAX, OPTIONAL, &t->prompt) < 0 ||
        read_string(r, "stdin", TEXT_MAX, OPTIONAL, &t->cases[0].input) < 0 ||
        read_string(r, "compare", 40, OPTIONAL, &compare) < 0 || read_strings(r, "tests", PROGRAM_MAX, &t->tests) < 0 ||
        read_strings(r, "setup", PROGRAM_MAX, &t->before) < 0 ||
        read_string(r, "entry_point", ID_MAX, OPTIONAL, &t->entry) < 0 ||
        read_string(r, "judge", 20, OPTIONAL, &judge) < 0 || read_words(r, "args", &t->args) < 0 ||
        read_text_map(r, "env", BATCH_MAX_WORDS, &t->env) < 0 ||
        read_text_map(r, "files", BATCH_MAX_FILES, &t->files) < 0 || read_limits(r) < 0 || read_expected(r) < 0)
        return -1;
    if (compare.text && decode(r, "compare", compare, &name) < 0)
        return -1;
    if (!t->tests.text) {
        if (judge.text || t->before.text || t->entry.text)
            return refuse(r, "\"judge\", \"setup\" and \"entry_point\" mean nothing without \"tests\"");
        if (name && hutch_batch_compare_parse(name, &t->compare, r->err) < 0)
            return hutch_err_wrap(r->err, "%s", r->what);
        if (options->has_compare && t->compare != COMPARE_EXIT0)
            t->compare = options->compare;
        return 0;
    }
    if (has(r->record, "expected"))
        return refuse(r, "\"tests\" and \"expected\" exclude each other");
    if (name && strcmp(name, "exit0") != 0 && strcmp(name, "token") != 0)
        return refuse(r, "with \"tests\", \"compare\" is \"token\" or \"exit0\"");
    t->is_together = hutch_json_view_is(judge, "together");
    if (judge.text && !t->is_together && !hutch_json_view_is(judge, "apart"))
        return refuse(r, "the value of \"judge\" is neither \"apart\" nor \"together\"");
    /* Tests in another language, or whose exit code is to count, follow the program in one file. */
    if (strcmp(t->language, "python") == 0 && !(name && strcmp(name, "exit0") == 0)) {
        t->judging = BATCH_BY_TESTS;
        t->calls_tests = true;
        if (t->cases[0].input.text || t->args.text)
            return refuse(r, "\"stdin\" and \"args\" mean nothing to tests that call functions");
    } else if (name && strcmp(name, "token") == 0) {
        return refuse(r, "\"compare\": \"token\" is for Python alone; the language is '%s'", t->language);
    }
    return 0;
}

/* ---- ---- */

int hutch_batch_task_read(const struct batch_task_options *options, const char *what, char *text,
                          struct json_view record, struct batch_task *ret, struct hutch_err *err)
{
    static int (*const read[BATCH_FORMAT_COUNT])(const struct reader *, const struct batch_task_options *) = {
        [BATCH_GENERIC] = read_generic,
        [BATCH_HUMANEVAL] = read_humaneval,
        [BATCH_MBPP] = read_mbpp,
        [BATCH_STDIO] = read_stdio,
    };
    struct batch_task task = { .text = text, .format = options->format };
    struct reader r = { .what = what, .record = record, .task = &task, .err = err };
    int rc = find_id(what, record, &task.id_json, &task.id, err);

    if (rc == 0 && options->format == BATCH_MBPP)
        shorten_mbpp_id(task.id);
    if (rc == 0)
        rc = read[options->format](&r, options);
    if (rc == 0 && !task.language) {
        task.language = strdup("python");
        rc = task.language ? 0 : hutch_err_set(err, ENOMEM, "%s", what);
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
    free(task->inner[0]);
    free(task->inner[1]);
    free(task->id);
    free(task->language);
    free(task->cases);
    *task = (struct batch_task)BATCH_TASK_INIT;
}

int hutch_batch_sample_id(const char *what, enum batch_format format, struct json_view record, char **ret,
                          struct hutch_err *err)
{
    struct json_view id;

    if (find_id(what, record, &id, ret, err) < 0)
        return -1;
    if (format == BATCH_MBPP)
        shorten_mbpp_id(*ret);
    return 0;
}

int hutch_batch_sample_read(const char *what, struct json_view record, bool has_prompt, struct batch_sample *ret,
                            struct hutch_err *err)
{
    static const char *const keys[] = { "solution", "completion", "code", "program" };
    struct reader r = { .what = what, .record = record, .err = err };
    struct batch_sample sample = { .program = JSON_VIEW_NONE };

    for (size_t i = 0; i < ARRAY_SIZE(keys) && !sample.program.text; i++) {
        if (read_string(&r, keys[i], PROGRAM_MAX, OPTIONAL, &sample.program) < 0)
            return -1;
        sample.is_completion = i == 1 && has_prompt;
    }
    if (!sample.program.text)
        return refuse(&r, "the key \"completion\" (or \"solution\") is missing");
    *ret = sample;
    return 0;
}

int hutch_batch_sample_own(const char *what, const struct batch_task *task, struct batch_sample *ret,
                           struct hutch_err *err)
{
    if (!task->program.text)
        return hutch_err_set(err, 0, "%s: the task '%s' has no program of its own (--samples FILE gives programs)",
                             what, task->id);
    *ret = (struct batch_sample){ .program = task->program,
                                  .is_completion = task->prompt.text && task->format == BATCH_HUMANEVAL };
    return 0;
}
