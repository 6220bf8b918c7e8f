#include "runtime/batch/fields_priv.h"
#include "runtime/batch/format_priv.h"
#include "runtime/text/quantity.h"
#include "sandbox/fd.h"

#include <string.h>

#define STDIN_MAX (128u << 20)
#define WORDS_BYTES_MAX (1u << 20) /* of args, env each, in the record's own spelling */
#define LIMIT_MAX 32
#define KEY_SHOWN 40

static int read_words(const struct batch_fields *f, const char *key, struct json_view *ret)
{
    if (hutch_batch_read_texts(f, key, WORDS_BYTES_MAX, ret) < 0)
        return -1;
    if (ret->text && !hutch_json_view_is_array(*ret))
        return hutch_batch_refuse(f, "the value of \"%s\" is not an array", key);
    if (hutch_json_view_count(*ret) > BATCH_MAX_WORDS)
        return hutch_batch_refuse(f, "\"%s\" lists more than %d texts", key, BATCH_MAX_WORDS);
    return 0;
}

/* An object whose values are all text. */
static int read_text_map(const struct batch_fields *f, const char *key, size_t max, struct json_view *ret)
{
    struct json_view value = hutch_json_view_get(f->record, key), item;
    struct json_walk walk = hutch_json_view_walk(value);

    if (hutch_json_view_is_null(value))
        return 0;
    if (!hutch_json_view_is_object(value))
        return hutch_batch_refuse(f, "the value of \"%s\" is not an object", key);
    if (hutch_json_view_count(value) > max)
        return hutch_batch_refuse(f, "\"%s\" holds more than %zu texts", key, max);
    while (hutch_json_view_next(&walk, NULL, &item))
        if (!hutch_json_view_is_string(item))
            return hutch_batch_refuse(f, "what \"%s\" holds is not all text", key);
    *ret = value;
    return 0;
}

/* A number of the unit without a suffix, or text that has one, as policies have it. */
static int read_limit(const struct batch_fields *f, const char *key, struct json_view value,
                      int (*parse)(const char *, uint64_t *, struct hutch_err *), uint64_t *ret)
{
    char text[LIMIT_MAX];
    bool is_quoted = hutch_json_view_is_string(value);
    size_t len = is_quoted ? value.len - 2 : value.len;

    if (len >= sizeof(text))
        return hutch_batch_refuse(f, "the limit \"%s\" is no quantity", key);
    memcpy(text, value.text + is_quoted, len);
    text[len] = '\0';
    if (parse(text, ret, f->err) < 0)
        return hutch_err_wrap(f->err, "%s: the limit \"%s\"", f->where, key);
    return *ret ? 0 : hutch_batch_refuse(f, "the limit \"%s\" leaves room for nothing", key);
}

static int read_limits(const struct batch_fields *f, struct batch_limits *ret)
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
    struct json_view limits = hutch_json_view_get(f->record, "limits"), key, value;
    struct json_walk walk = hutch_json_view_walk(limits);

    if (hutch_json_view_is_null(limits))
        return 0;
    if (!hutch_json_view_is_object(limits))
        return hutch_batch_refuse(f, "the value of \"limits\" is not an object");
    while (hutch_json_view_next(&walk, &key, &value)) {
        size_t i = 0;
        uint64_t *into;

        while (i < ARRAY_SIZE(rows) && !hutch_json_view_is(key, rows[i].key))
            i++;
        if (i == ARRAY_SIZE(rows))
            return hutch_batch_refuse(f, "there is no limit %.*s; known here: cpu_time, wall, memory, pids, output",
                                      key.len < KEY_SHOWN ? (int)key.len : KEY_SHOWN, key.text);
        into = (uint64_t *)((char *)ret + rows[i].offset);
        if (read_limit(f, rows[i].key, value, rows[i].parse, into) < 0)
            return -1;
    }
    return 0;
}

/* In a form of our own a misspelt key is an error: a test that is not run passes every program. */
static int check_keys(const struct batch_fields *f)
{
    static const char *const keys[] = {
        "id", "task_id", "language", "code", "prompt", "stdin", "files", "args", "env", "expected", "tests", "setup",
        "entry_point", "judge", "compare", "limits", "metadata",
    };
    struct json_walk walk = hutch_json_view_walk(f->record);
    struct json_view key, value;

    while (hutch_json_view_next(&walk, &key, &value)) {
        size_t i = 0;

        while (i < ARRAY_SIZE(keys) && !hutch_json_view_is(key, keys[i]))
            i++;
        if (i == ARRAY_SIZE(keys))
            return hutch_batch_refuse(f, "unknown key %.*s; known here: id, language, code, prompt, stdin, files, "
                                         "args, env, expected, tests, setup, entry_point, judge, compare, limits, "
                                         "metadata",
                                      key.len < KEY_SHOWN ? (int)key.len : KEY_SHOWN, key.text);
    }
    return 0;
}

static int read_expected(const struct batch_fields *f, struct batch_task *t)
{
    struct json_view expected = hutch_json_view_get(f->record, "expected"), key, value;
    struct json_walk walk = hutch_json_view_walk(expected);
    bool has_output = false;

    if (hutch_json_view_is_string(expected)) { /* short for {"stdout": …} */
        t->cases[0].output = expected;
        has_output = true;
    } else if (!hutch_json_view_is_null(expected) && !hutch_json_view_is_object(expected)) {
        return hutch_batch_refuse(f, "the value of \"expected\" is not an object");
    }
    while (hutch_json_view_is_object(expected) && hutch_json_view_next(&walk, &key, &value)) {
        if (hutch_json_view_is(key, "stdout") && hutch_json_view_is_string(value)) {
            t->cases[0].output = value;
            has_output = true;
        } else if (hutch_json_view_is(key, "exit_code") && hutch_json_view_integer(value, &t->exit_code) &&
                   t->exit_code >= 0 && t->exit_code <= 255) {
            continue;
        } else {
            return hutch_batch_refuse(f, "\"expected\" takes \"stdout\", a text, and \"exit_code\", 0 to 255");
        }
    }
    if (!has_output)
        t->compare = COMPARE_EXIT0;
    return 0;
}

/* Without tests: what is printed is compared as @name says, which may be NULL. */
static int choose_comparison(const struct batch_fields *f, const struct batch_task_options *options,
                             struct json_view judge, const char *name, struct batch_task *t)
{
    if (judge.text || t->before.text || t->entry.text)
        return hutch_batch_refuse(f, "\"judge\", \"setup\" and \"entry_point\" mean nothing without \"tests\"");
    if (name && hutch_batch_compare_parse(name, &t->compare, f->err) < 0)
        return hutch_err_wrap(f->err, "%s", f->where);
    if (options->has_compare && t->compare != COMPARE_EXIT0)
        t->compare = options->compare;
    return 0;
}

/* With tests: they call the program, or follow it in one file whose exit code counts. */
static int choose_tests(const struct batch_fields *f, struct json_view judge, const char *name, struct batch_task *t)
{
    bool is_exit_code = name && strcmp(name, "exit0") == 0, is_token = name && strcmp(name, "token") == 0;

    if (hutch_batch_has(f->record, "expected"))
        return hutch_batch_refuse(f, "\"tests\" and \"expected\" exclude each other");
    if (name && !is_exit_code && !is_token)
        return hutch_batch_refuse(f, "with \"tests\", \"compare\" is \"token\" or \"exit0\"");
    t->is_together = hutch_json_view_is(judge, "together");
    if (judge.text && !t->is_together && !hutch_json_view_is(judge, "apart"))
        return hutch_batch_refuse(f, "the value of \"judge\" is neither \"apart\" nor \"together\"");
    if (strcmp(t->language, "python") == 0 && !is_exit_code) {
        t->judging = BATCH_BY_TESTS;
        t->calls_tests = true;
        if (t->cases[0].input.text || t->args.text)
            return hutch_batch_refuse(f, "\"stdin\" and \"args\" mean nothing to tests that call functions");
    } else if (is_token) {
        return hutch_batch_refuse(f, "\"compare\": \"token\" is for Python alone; the language is '%s'", t->language);
    }
    return 0;
}

int hutch_batch_read_generic(const struct batch_fields *f, const struct batch_task_options *options,
                             struct batch_task *t)
{
    struct json_view judge, compare;
    auto_free char *name = NULL;

    t->judging = BATCH_BY_EXIT;
    t->compare = COMPARE_RSTRIP_NEWLINES;
    if (check_keys(f) < 0 || hutch_batch_task_read_language(f, f->record, t) < 0 ||
        hutch_batch_task_reserve_cases(f, 1, t) < 0)
        return -1;
    t->cases[0] = (struct batch_case){ JSON_VIEW_NONE, JSON_VIEW_NONE };
    t->n_cases = 1;
    if (hutch_batch_read_text(f, "code", BATCH_PROGRAM_MAX, OPTIONAL, &t->program) < 0 ||
        hutch_batch_read_text(f, "prompt", BATCH_PROGRAM_MAX, OPTIONAL, &t->prompt) < 0 ||
        hutch_batch_read_text(f, "stdin", STDIN_MAX, OPTIONAL, &t->cases[0].input) < 0 ||
        hutch_batch_read_text(f, "compare", BATCH_NAME_MAX, OPTIONAL, &compare) < 0 ||
        hutch_batch_read_texts(f, "tests", BATCH_PROGRAM_MAX, &t->tests) < 0 ||
        hutch_batch_read_texts(f, "setup", BATCH_PROGRAM_MAX, &t->before) < 0 ||
        hutch_batch_read_text(f, "entry_point", BATCH_ID_MAX, OPTIONAL, &t->entry) < 0 ||
        hutch_batch_read_text(f, "judge", BATCH_NAME_MAX, OPTIONAL, &judge) < 0 ||
        read_words(f, "args", &t->args) < 0 || read_text_map(f, "env", BATCH_MAX_WORDS, &t->env) < 0 ||
        read_text_map(f, "files", BATCH_MAX_FILES, &t->files) < 0 || read_limits(f, &t->limits) < 0 ||
        read_expected(f, t) < 0)
        return -1;
    if (compare.text && hutch_batch_read_string(f, "compare", compare, &name) < 0)
        return -1;
    return t->tests.text ? choose_tests(f, judge, name, t) : choose_comparison(f, options, judge, name, t);
}
