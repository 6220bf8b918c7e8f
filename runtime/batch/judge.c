#include "runtime/batch/judge.h"

#include "runtime/text/buffer.h"
#include "runtime/text/json_view.h"
#include "runtime/text/json_write.h"
#include "runtime/batch/plan.h"
#include "runtime/batch/prelude.h"
#include "runtime/batch/task.h"
#include "sandbox/fd.h"

#include <string.h>

/* Files are read by the assembler, so their paths are relative to the top of the tree, where make compiles. */
#define EMBED(symbol, path)                                           \
    __asm__(".pushsection .rodata\n"                                  \
            ".type " #symbol ", @object\n"                            \
            #symbol ":\n"                                             \
            ".incbin \"" path "\"\n"                                  \
            ".byte 0\n"                                               \
            ".size " #symbol ", . - " #symbol "\n"                    \
            ".popsection\n");                                         \
    extern const char symbol[] __attribute__((visibility("hidden")))

EMBED(judge_wire_py, "runtime/batch/judge/wire.py");
EMBED(judge_candidate_py, "runtime/batch/judge/candidate.py");
EMBED(judge_remote_py, "runtime/batch/judge/remote.py");
EMBED(judge_judge_py, "runtime/batch/judge/judge.py");

/* In this order: each imports from those before it. */
static const struct {
    const char *name, *text;
} modules[] = {
    { "hutch_judge.wire", judge_wire_py },
    { "hutch_judge.candidate", judge_candidate_py },
    { "hutch_judge.remote", judge_remote_py },
    { "hutch_judge", judge_judge_py },
};

#define MAX_IMPORTS 32

/* Tests of a function that has values for arguments; a tuple counts as a list, for JSON has no tuples. */
static const char function_tests[] =
    "def check(candidate):\n"
    "    for arguments, want in DATA:\n"
    "        got = candidate(*arguments)\n"
    "        if isinstance(got, tuple):\n"
    "            got = list(got)\n"
    "        assert got == want, 'case %d' % [a is arguments for a, _ in DATA].index(True)\n";

/* ---- the judge's own text ---- */

static void add_text(struct text_buffer *t, const char *text)
{
    hutch_text_add(t, text, strlen(text));
}

void hutch_batch_judge_add_modules(struct text_buffer *t)
{
    add_text(t, "import sys, types\n");
    for (size_t i = 0; i < ARRAY_SIZE(modules); i++) {
        const char *name = modules[i].name;

        hutch_text_addf(t, "sys.modules['%s'] = types.ModuleType('%s')\nexec(compile(", name, name);
        hutch_json_quote(t, modules[i].text, strlen(modules[i].text)); /* JSON's escapes mean the same to Python */
        hutch_text_addf(t, ", '%s', 'exec'), sys.modules['%s'].__dict__)\n", name, name);
    }
}

char *hutch_batch_judge_warm_up(void)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_batch_judge_add_modules(&t);
    return hutch_text_take(&t, NULL);
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Names what the program imports behind the end of the code that is submitted, where the engine looks for it when it
 * chooses a zygote. Reads the text as JSON spells it: a line begins behind the two characters \n. */
static void add_imports(struct text_buffer *t, struct json_view program)
{
    static const char *const words[] = { "import ", "from " };
    const char *p = program.text + 1, *end = program.text + program.len - 1;

    for (int n = 0; p < end && n < MAX_IMPORTS;) {
        while (p < end && *p == ' ')
            p++;
        for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
            size_t len = strlen(words[i]);
            const char *name = p + len, *name_end = name;

            if ((size_t)(end - p) <= len || memcmp(p, words[i], len) != 0)
                continue;
            while (name_end < end && is_name_char(*name_end))
                name_end++;
            if (name_end > name && name_end - name < 60) {
                hutch_text_addf(t, "import %.*s\n", (int)(name_end - name), name);
                n++;
            }
        }
        p = memmem(p, (size_t)(end - p), "\\n", 2);
        if (!p)
            break;
        p += 2;
    }
}

void hutch_batch_judge_add_code(struct text_buffer *t, const struct batch_sample *sample)
{
    add_text(t, "import sys\n"
                "m = sys.modules.get('hutch_judge')\n"
                "if m is None:\n"
                "    sys.stdout.write('" BATCH_JUDGE_MISSING "\\n')\n"
                "    sys.stdout.flush()\n"
                "    raise SystemExit\n"
                "m.main()\n");
    add_imports(t, sample->program);
}

/* ---- the job that it reads ---- */

static void add_key(struct text_buffer *t, const char *key)
{
    hutch_text_addf(t, ",\"%s\":", key);
}

static void add_json(struct text_buffer *t, struct json_view value, const char *otherwise)
{
    if (value.text)
        hutch_text_add(t, value.text, value.len);
    else
        add_text(t, otherwise);
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
        add_text(t, ",");
    *is_first = false;
    hutch_text_add(t, value.text + is_array, value.len - 2 * is_array);
}

static void add_list(struct text_buffer *t, const char *key, struct json_view first, struct json_view second)
{
    bool is_first = true;

    add_key(t, key);
    add_text(t, "[");
    add_items(t, first, &is_first);
    add_items(t, second, &is_first);
    add_text(t, "]");
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
    add_text(t, "[");
    for (char *save = NULL, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        struct json_view value;

        if (line[strspn(line, " \t\r")] == '\0')
            continue;
        if (hutch_json_view_check("an argument in a test case", 1, 1, line, strlen(line), &value, err) < 0)
            return -1;
        add_text(t, is_first ? "" : ",");
        hutch_text_add(t, value.text, value.len);
        is_first = false;
    }
    add_text(t, "]");
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
    add_text(t, ",\"data\":[");
    for (size_t i = 0; i < task->n_cases; i++) {
        add_text(t, i ? ",[" : "[");
        if (add_arguments(t, task->cases[i].input, err) < 0)
            return hutch_err_wrap(err, "task '%s', case %zu", task->id, i);
        add_text(t, ",");
        if (add_expected(t, task->cases[i].output, err) < 0)
            return hutch_err_wrap(err, "task '%s', case %zu", task->id, i);
        add_text(t, "]");
    }
    add_text(t, "]");
    return 0;
}

/* The name of the function; of a method, where the program has the class that LeetCode asks for. */
static void add_entry(struct text_buffer *t, const struct batch_task *task, const struct batch_sample *sample)
{
    add_key(t, "entry");
    if (task->is_function && memmem(sample->program.text, sample->program.len, "class Solution", 14)) {
        add_text(t, "\"Solution().");
        hutch_text_add(t, task->entry.text + 1, task->entry.len - 1);
        return;
    }
    add_json(t, task->entry, "\"\"");
}

static void add_program(struct text_buffer *t, const struct batch_task *task, const struct batch_sample *sample)
{
    const char *prelude = hutch_batch_prelude(task, sample);

    add_key(t, "program");
    add_text(t, "[");
    if (*prelude) {
        hutch_json_quote(t, prelude, strlen(prelude));
        add_text(t, ",");
    }
    if (sample->is_completion) {
        add_json(t, task->prompt, "\"\"");
        add_text(t, ",");
    }
    add_json(t, sample->program, "\"\"");
    add_text(t, "]");
}

int hutch_batch_judge_add_job(struct text_buffer *t, const struct batch_task *task, const struct batch_sample *sample,
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
        add_text(t, "[");
        hutch_json_quote(t, function_tests, strlen(function_tests));
        add_text(t, "]");
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
    add_text(t, "}");
    return 0;
}
