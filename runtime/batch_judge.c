#include "batch_judge.h"

#include "fd.h"
#include "rmtree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

/* Read by the assembler, so its path is relative to the top of the tree, where make compiles. */
__asm__(".pushsection .rodata\n"
        ".type batch_judge_py, @object\n"
        "batch_judge_py:\n"
        ".incbin \"runtime/batch_judge.py\"\n"
        "batch_judge_py_end:\n"
        ".size batch_judge_py, . - batch_judge_py\n"
        ".byte 0\n"
        ".balign 8\n"
        "batch_judge_py_len:\n"
        ".dc.a batch_judge_py_end - batch_judge_py\n"
        ".popsection\n");
extern const char batch_judge_py[] __attribute__((visibility("hidden")));
extern const size_t batch_judge_py_len __attribute__((visibility("hidden")));

#define MISSING "hutch-batch-judge-is-missing\n"
#define REPORT_BYTES 65536
#define MAX_IMPORTS 32
#define MAX_CASE_LIMITS 10

/* What LiveCodeBench puts before every program. */
static const char prelude[] =
    "from string import *\nfrom re import *\nfrom datetime import *\nfrom collections import *\nfrom heapq import *\n"
    "from bisect import *\nfrom copy import *\nfrom math import *\nfrom random import *\nfrom statistics import *\n"
    "from itertools import *\nfrom functools import *\nfrom operator import *\nfrom io import *\nfrom sys import *\n"
    "from json import *\nfrom builtins import *\nfrom typing import *\nimport string\nimport re\nimport datetime\n"
    "import collections\nimport heapq\nimport bisect\nimport copy\nimport math\nimport random\nimport statistics\n"
    "import itertools\nimport functools\nimport operator\nimport io\nimport sys\nimport json\nsys.setrecursionlimit(50000)\n";

/* Tests of a function that has values for arguments; a tuple counts as a list, for JSON has no tuples. */
static const char function_tests[] =
    "def check(candidate):\n"
    "    for arguments, want in DATA:\n"
    "        got = candidate(*arguments)\n"
    "        if isinstance(got, tuple):\n"
    "            got = list(got)\n"
    "        assert got == want, 'case %d' % [a is arguments for a, _ in DATA].index(True)\n";

/* ---- the judge's own text ---- */

static void add_python_literal(struct batch_text *t, const char *data, size_t len)
{
    hutch_batch_text_add_quoted(t, data, len); /* JSON's escapes mean the same to Python */
}

static void add_text(struct batch_text *t, const char *text)
{
    hutch_batch_text_add(t, text, strlen(text));
}

static void add_module(struct batch_text *t)
{
    add_text(t, "import sys, types\n"
                "sys.modules['hutch_judge'] = types.ModuleType('hutch_judge')\n"
                "exec(compile(");
    add_python_literal(t, batch_judge_py, batch_judge_py_len);
    add_text(t, ", 'hutch_judge', 'exec'), sys.modules['hutch_judge'].__dict__)\n");
}

char *hutch_batch_judge_warm_up(void)
{
    struct batch_text t = BATCH_TEXT_INIT;

    add_module(&t);
    return hutch_batch_text_take(&t, NULL);
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Names what the program imports behind the end of the code that is submitted, where the engine looks for it when it chooses
 * a zygote. Reads the text as JSON spells it: a line begins behind the two characters \n. */
static void add_imports(struct batch_text *t, struct batch_json program)
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
                hutch_batch_text_addf(t, "import %.*s\n", (int)(name_end - name), name);
                n++;
            }
        }
        p = memmem(p, (size_t)(end - p), "\\n", 2);
        if (!p)
            break;
        p += 2;
    }
}

static void make_judge_code(const struct batch_manner *manner, const struct batch_sample *sample, struct batch_text *t)
{
    if (manner->carries_judge)
        add_module(t);
    add_text(t, "import sys\n"
                "m = sys.modules.get('hutch_judge')\n"
                "if m is None:\n"
                "    sys.stdout.write('hutch-batch-judge-is-missing\\n')\n"
                "    sys.stdout.flush()\n"
                "    raise SystemExit\n"
                "m.main()\n");
    add_imports(t, sample->program);
}

/* ---- the job that it reads ---- */

static void add_key(struct batch_text *t, const char *key)
{
    hutch_batch_text_addf(t, ",\"%s\":", key);
}

static void add_json(struct batch_text *t, struct batch_json value, const char *otherwise)
{
    if (value.text)
        hutch_batch_text_add(t, value.text, value.len);
    else
        add_text(t, otherwise);
}

static void add_flag(struct batch_text *t, const char *key, bool value)
{
    hutch_batch_text_addf(t, ",\"%s\":%s", key, value ? "true" : "false");
}

/* The items of a text or an array of texts, without brackets; @is_first says whether a comma goes before. */
static void add_items(struct batch_text *t, struct batch_json value, bool *is_first)
{
    bool is_array = hutch_batch_json_is_array(value);

    if (!value.text || (is_array && hutch_batch_json_count(value) == 0))
        return;
    if (!*is_first)
        add_text(t, ",");
    *is_first = false;
    hutch_batch_text_add(t, value.text + is_array, value.len - 2 * is_array);
}

static void add_list(struct batch_text *t, const char *key, struct batch_json first, struct batch_json second)
{
    bool is_first = true;

    add_key(t, key);
    add_text(t, "[");
    add_items(t, first, &is_first);
    add_items(t, second, &is_first);
    add_text(t, "]");
}

/* One JSON value a line, each an argument; or an array of them. */
static int add_arguments(struct batch_text *t, struct batch_json input, struct hutch_err *err)
{
    auto_free char *text = NULL;
    bool is_first = true;

    if (!hutch_batch_json_is_string(input)) {
        add_json(t, input, "[]");
        return 0;
    }
    if (hutch_batch_json_text(input, &text, NULL, err) < 0)
        return -1;
    add_text(t, "[");
    for (char *save = NULL, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        struct batch_json value;

        if (line[strspn(line, " \t\r")] == '\0')
            continue;
        if (hutch_batch_json_check("an argument in a test case", 1, 1, line, strlen(line), &value, err) < 0)
            return -1;
        add_text(t, is_first ? "" : ",");
        hutch_batch_text_add(t, value.text, value.len);
        is_first = false;
    }
    add_text(t, "]");
    return 0;
}

static int add_expected(struct batch_text *t, struct batch_json output, struct hutch_err *err)
{
    auto_free char *text = NULL;
    struct batch_json value;

    if (!hutch_batch_json_is_string(output)) {
        add_json(t, output, "null");
        return 0;
    }
    if (hutch_batch_json_text(output, &text, NULL, err) < 0)
        return -1;
    if (hutch_batch_json_check("the output of a test case", 1, 1, text, strlen(text), &value, err) < 0)
        return -1;
    hutch_batch_text_add(t, value.text, value.len);
    return 0;
}

static int add_data(struct batch_text *t, const struct batch_task *task, struct hutch_err *err)
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
static void add_entry(struct batch_text *t, const struct batch_task *task, const struct batch_sample *sample)
{
    add_key(t, "entry");
    if (task->is_function && memmem(sample->program.text, sample->program.len, "class Solution", 14)) {
        add_text(t, "\"Solution().");
        hutch_batch_text_add(t, task->entry.text + 1, task->entry.len - 1);
        return;
    }
    add_json(t, task->entry, "\"\"");
}

/* A future import must be a program's first statement; who writes one has the other imports too. */
static bool takes_prelude(const struct batch_task *task, const struct batch_sample *sample)
{
    return task->with_prelude && !memmem(sample->program.text, sample->program.len, "from __future__", 15);
}

static void add_program(struct batch_text *t, const struct batch_task *task, const struct batch_sample *sample)
{
    add_key(t, "program");
    add_text(t, "[");
    if (takes_prelude(task, sample)) {
        hutch_batch_text_add_quoted(t, prelude, strlen(prelude));
        add_text(t, ",");
    }
    if (sample->is_completion) {
        add_json(t, task->prompt, "\"\"");
        add_text(t, ",");
    }
    add_json(t, sample->program, "\"\"");
    add_text(t, "]");
}

static int make_job(const struct batch_task *task, const struct batch_sample *sample, const char *token, bool is_together,
                    struct batch_text *t, struct hutch_err *err)
{
    bool is_humaneval = task->format == BATCH_HUMANEVAL;
    struct batch_json none = BATCH_JSON_NONE;

    hutch_batch_text_addf(t, "{\"token\":\"%s\"", token);
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
        hutch_batch_text_add_quoted(t, function_tests, strlen(function_tests));
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
    add_flag(t, "together", is_together || task->is_together);
    add_text(t, "}");
    return 0;
}

static int make_token(char token[33], struct hutch_err *err)
{
    unsigned char bytes[16];

    if (TEMP_FAILURE_RETRY(getrandom(bytes, sizeof(bytes), 0)) != (ssize_t)sizeof(bytes))
        return hutch_err_set(err, errno, "make a token");
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(token + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

/* ---- programs that run as they are ---- */

/* Adds the text of a value; an array is lines. */
static int add_decoded(struct batch_text *t, struct batch_json value, struct hutch_err *err)
{
    struct batch_json_walk walk = hutch_batch_json_walk(value);
    struct batch_json item;

    if (hutch_batch_json_is_null(value))
        return 0;
    if (hutch_batch_json_is_string(value)) {
        auto_free char *text = NULL;
        size_t len;

        if (hutch_batch_json_text(value, &text, &len, err) < 0)
            return -1;
        hutch_batch_text_add(t, text, len);
        return 0;
    }
    if (!hutch_batch_json_is_array(value)) {
        hutch_batch_text_add(t, value.text, value.len); /* a number where a text was meant */
        return 0;
    }
    for (bool is_first = true; hutch_batch_json_next(&walk, NULL, &item); is_first = false) {
        add_text(t, is_first ? "" : "\n");
        if (add_decoded(t, item, err) < 0)
            return -1;
    }
    return 0;
}

static int take_text(struct batch_text *t, char **ret, size_t *ret_len, struct hutch_err *err)
{
    *ret = hutch_batch_text_take(t, ret_len);
    return *ret ? 0 : hutch_err_set(err, ENOMEM, "put a run together");
}

static int make_plain_code(const struct batch_task *task, const struct batch_sample *sample, struct batch_text *t,
                           struct hutch_err *err)
{
    auto_free char *program = NULL;
    size_t len;

    if (hutch_batch_json_text(sample->program, &program, &len, err) < 0)
        return -1;
    if (takes_prelude(task, sample))
        add_text(t, prelude);
    if (sample->is_completion && add_decoded(t, task->prompt, err) < 0)
        return -1;
    hutch_batch_text_add(t, program, len);
    if (task->tests.text) {
        add_text(t, "\n");
        if (add_decoded(t, task->tests, err) < 0)
            return -1;
        add_text(t, "\n");
    }
    return 0;
}

/* A NULL-terminated array of decoded texts; of an object, NAME=VALUE. */
static int make_words(struct batch_json list, char ***ret, struct hutch_err *err)
{
    size_t n = hutch_batch_json_count(list), i = 0;
    struct batch_json_walk walk = hutch_batch_json_walk(list);
    struct batch_json key, value;
    char **words;

    if (n == 0)
        return 0;
    words = calloc(n + 1, sizeof(*words));
    if (!words)
        return hutch_err_set(err, ENOMEM, "put a run together");
    *ret = words; /* freed with the run, however far this gets */
    while (hutch_batch_json_next(&walk, &key, &value)) {
        struct batch_text t = BATCH_TEXT_INIT;
        size_t len;

        if (walk.is_object) {
            if (add_decoded(&t, key, err) < 0) {
                hutch_batch_text_done(&t);
                return -1;
            }
            add_text(&t, "=");
        }
        if (add_decoded(&t, value, err) < 0) {
            hutch_batch_text_done(&t);
            return -1;
        }
        if (take_text(&t, &words[i], &len, err) < 0)
            return -1;
        if (strlen(words[i++]) != len)
            return hutch_err_set(err, EINVAL, "an argument or variable with a NUL byte");
    }
    return 0;
}

/* ---- files ---- */

/* Opens the directory of @path below @dirfd, makes what is missing, and returns the last component. */
static int open_parent(int dirfd, char *path, int *ret_fd, const char **ret_name, struct hutch_err *err)
{
    auto_fd fd = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
    char *slash;

    if (fd < 0)
        return hutch_err_set(err, errno, "make a file of a task");
    while ((slash = strchr(path, '/'))) {
        int next;

        *slash = '\0';
        if (!*path || strcmp(path, ".") == 0 || strcmp(path, "..") == 0)
            return hutch_err_set(err, EINVAL, "the name of a file has an empty part, '.' or '..' in it");
        if (mkdirat(fd, path, 0755) < 0 && errno != EEXIST)
            return hutch_err_set(err, errno, "make the directory '%s' of a task", path);
        next = openat(fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0)
            return hutch_err_set(err, errno, "make the directory '%s' of a task", path);
        close(hutch_fd_take(&fd));
        fd = next;
        path = slash + 1;
    }
    if (!*path || strcmp(path, ".") == 0 || strcmp(path, "..") == 0)
        return hutch_err_set(err, EINVAL, "the name of a file has an empty part, '.' or '..' in it");
    *ret_fd = hutch_fd_take(&fd);
    *ret_name = path;
    return 0;
}

static int write_file(int dirfd, struct batch_json key, struct batch_json value, struct hutch_err *err)
{
    auto_free char *path = NULL, *data = NULL;
    auto_fd parent = -1;
    auto_fd fd = -1;
    const char *name = NULL;
    size_t len, path_len;

    if (hutch_batch_json_text(key, &path, &path_len, err) < 0 || hutch_batch_json_text(value, &data, &len, err) < 0)
        return -1;
    if (strlen(path) != path_len)
        return hutch_err_set(err, EINVAL, "the name of a file has a NUL byte in it");
    if (open_parent(dirfd, path, &parent, &name, err) < 0)
        return -1;
    fd = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 || hutch_fd_write_all(fd, data, len) < 0)
        return hutch_err_set(err, errno, "write the file '%s' of a task", name);
    return 0;
}

static int make_files(const struct batch_manner *manner, const struct batch_task *task, uint64_t number, struct batch_run *run,
                      struct hutch_err *err)
{
    struct batch_json_walk walk = hutch_batch_json_walk(task->files);
    struct batch_json key, value;
    auto_fd dirfd = -1;

    if (hutch_batch_json_count(task->files) == 0)
        return 0;
    snprintf(run->files_name, sizeof(run->files_name), "%" PRIu64, number);
    run->files_fd = manner->files_fd;
    if (asprintf(&run->files_path, "%s/%s", manner->files_path, run->files_name) < 0) {
        run->files_path = NULL;
        return hutch_err_set(err, ENOMEM, "put a run together");
    }
    if (mkdirat(manner->files_fd, run->files_name, 0755) < 0)
        return hutch_err_set(err, errno, "make the directory '%s'", run->files_path);
    dirfd = openat(manner->files_fd, run->files_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dirfd < 0)
        return hutch_err_set(err, errno, "open the directory '%s'", run->files_path);
    while (hutch_batch_json_next(&walk, &key, &value))
        if (write_file(dirfd, key, value, err) < 0)
            return -1;
    run->request.data_dir = run->files_path;
    return 0;
}

/* ---- a run ---- */

static uint64_t either(uint64_t first, uint64_t second)
{
    return first ? first : second;
}

static void set_limits(const struct batch_manner *manner, const struct batch_task *task, struct hutch_request *request)
{
    const struct batch_limits *own = &task->limits, *usual = &manner->limits;

    request->cpu_ms = either(own->cpu_ms, usual->cpu_ms);
    if (task->is_function) /* all its cases are one run */
        request->cpu_ms *= task->n_cases < MAX_CASE_LIMITS ? task->n_cases : MAX_CASE_LIMITS;
    /* Generous, so that it ends only what does not compute: a program gets its CPU time also where ten share a CPU. */
    request->wall_ms = either(own->wall_ms, either(usual->wall_ms, 10 * request->cpu_ms + 10000));
    request->memory_bytes = own->memory_bytes; /* the usual one is in the policy, so that prepared sandboxes have it */
    request->pids = own->pids;
    request->output_bytes = own->output_bytes;
}

static int make_parts(const struct batch_manner *manner, const struct batch_task *task, const struct batch_sample *sample,
                      size_t index, struct batch_run *run, struct batch_text *code, struct batch_text *input, struct hutch_err *err)
{
    struct hutch_request *q = &run->request;

    if (task->judging == BATCH_BY_TESTS) {
        if (make_token(run->token, err) < 0)
            return -1;
        make_judge_code(manner, sample, code);
        q->name = "-c";
        q->output_bytes = REPORT_BYTES;
        if (make_job(task, sample, run->token, manner->is_together, input, err) < 0)
            return -1;
    } else if (make_plain_code(task, sample, code, err) < 0 || add_decoded(input, task->cases[index].input, err) < 0) {
        return -1;
    }
    if (take_text(code, &run->code, &q->code_len, err) < 0 || take_text(input, &run->input, &q->input_len, err) < 0)
        return -1;
    return make_words(task->args, &run->args, err) < 0 ? -1 : make_words(task->env, &run->env, err);
}

int hutch_batch_run_make(const struct batch_manner *manner, const struct batch_task *task, const struct batch_sample *sample,
                         size_t index, uint64_t number, struct batch_run *ret, struct hutch_err *err)
{
    struct batch_text code = BATCH_TEXT_INIT, input = BATCH_TEXT_INIT;
    struct batch_run run = BATCH_RUN_INIT;
    struct hutch_request *q = &run.request;

    hutch_request_init(q);
    q->language = task->language;
    set_limits(manner, task, q);
    if (make_parts(manner, task, sample, index, &run, &code, &input, err) < 0 ||
        make_files(manner, task, number, &run, err) < 0) {
        hutch_batch_text_done(&code);
        hutch_batch_text_done(&input);
        hutch_batch_run_done(&run);
        return hutch_err_wrap(err, "task '%s'", task->id);
    }
    q->code = run.code;
    q->input = run.input;
    q->args = (const char *const *)run.args;
    q->env = (const char *const *)run.env;
    *ret = run;
    return 0;
}

static void free_words(char **words)
{
    for (char **word = words; word && *word; word++)
        free(*word);
    free(words);
}

void hutch_batch_run_done(struct batch_run *run)
{
    struct hutch_err ignored;

    if (run->files_name[0] && hutch_rmtree(run->files_fd, run->files_name, &ignored) < 0)
        run->files_name[0] = '\0'; /* the directory above goes at the end, and says what is in its way */
    free(run->code);
    free(run->input);
    free(run->files_path);
    free_words(run->args);
    free_words(run->env);
    *run = (struct batch_run)BATCH_RUN_INIT;
}

/* ---- the verdict ---- */

static void say(struct batch_opinion *o, enum batch_verdict verdict, const char *fmt, ...) HUTCH_PRINTF(3, 4);
static void say(struct batch_opinion *o, enum batch_verdict verdict, const char *fmt, ...)
{
    va_list ap;

    o->verdict = verdict;
    va_start(ap, fmt);
    vsnprintf(o->text, sizeof(o->text), fmt, ap);
    va_end(ap);
}

/* What the engine says about the first process, when that is all there is to say. False: it ran to an end of its own. */
static bool judge_end(const struct batch_run *run, const struct hutch_result *r, struct batch_opinion *o)
{
    switch (r->verdict) {
    case HUTCH_OK:
    case HUTCH_ERROR:
        return false;
    case HUTCH_TIMEOUT:
        o->is_backstop = true;
        say(o, BATCH_TIMEOUT, "%s", r->message);
        return true;
    case HUTCH_CPU_TIME:
        if (o->cpu_ms < run->request.cpu_ms)
            o->cpu_ms = run->request.cpu_ms; /* of a process that nobody could wait for */
        say(o, BATCH_TIMEOUT, "%s", r->message);
        return true;
    case HUTCH_OUT_OF_MEMORY:
        say(o, BATCH_MEMORY_LIMIT, "%s", r->message);
        return true;
    case HUTCH_OUTPUT_LIMIT:
        say(o, BATCH_OUTPUT_LIMIT, "%s", r->message);
        return true;
    case HUTCH_KILLED:
        o->is_killed = true;
        say(o, BATCH_RUNTIME_ERROR, "%s", r->message);
        return true;
    case HUTCH_DENIED:
        say(o, BATCH_RUNTIME_ERROR, "%s", r->message);
        return true;
    case HUTCH_SETUP_FAILED:
        say(o, BATCH_INTERNAL, "%s", r->message);
        return true;
    }
    say(o, BATCH_INTERNAL, "a verdict of the engine that is not known here");
    return true;
}

/* The bytes of memory that a run was granted, as its result tells; 0 when it does not. */
static uint64_t memory_limit(const struct hutch_result *r)
{
    auto_free char *text = hutch_result_to_json(r);
    struct batch_json root;
    struct hutch_err ignored;
    int64_t bytes;

    if (!text || hutch_batch_json_check("", 1, 1, text, strlen(text), &root, &ignored) < 0)
        return 0;
    root = hutch_batch_json_get(hutch_batch_json_get(hutch_batch_json_get(root, "limits"), "memory"), "asked");
    return hutch_batch_json_integer(root, &bytes) && bytes > 0 ? (uint64_t)bytes : 0;
}

static bool is_text(struct batch_json value, const char *text)
{
    return hutch_batch_json_is_string(value) && value.len == strlen(text) + 2 && memcmp(value.text + 1, text, value.len - 2) == 0;
}

/* The program's process is gone. The kernel ends it for time or memory while the judge, another process, lives on to tell. */
static void judge_loss(const struct batch_run *run, const struct hutch_result *r, struct batch_json report, struct batch_opinion *o)
{
    int64_t number = 0, code = 0;
    uint64_t limit;

    if (!hutch_batch_json_integer(hutch_batch_json_get(report, "signal"), &number)) {
        if (hutch_batch_json_integer(hutch_batch_json_get(report, "exit_code"), &code))
            say(o, BATCH_RUNTIME_ERROR, "the program ended (exit code %d) before the tests were over", (int)code);
        else
            say(o, BATCH_RUNTIME_ERROR, "the program stopped answering the tests");
        return;
    }
    if (number == SIGXCPU || (number == SIGKILL && run->request.cpu_ms && o->cpu_ms + 50 >= run->request.cpu_ms)) {
        say(o, BATCH_TIMEOUT, "it used up its CPU time");
        return;
    }
    limit = number == SIGKILL ? memory_limit(r) : 0;
    if (limit && r->memory_peak_bytes != HUTCH_UNKNOWN && r->memory_peak_bytes >= limit - limit / 16)
        say(o, BATCH_MEMORY_LIMIT, "it ran out of memory");
    else
        say(o, BATCH_RUNTIME_ERROR, "the program was ended by signal %d before the tests were over", (int)number);
}

static void judge_report(const struct batch_run *run, const struct hutch_result *r, struct batch_json report, struct batch_opinion *o)
{
    struct batch_json kind = hutch_batch_json_get(report, "kind"), name = hutch_batch_json_get(report, "name");
    struct batch_json text_json = hutch_batch_json_get(report, "text"), guarded = hutch_batch_json_get(report, "guarded");
    auto_free char *text = NULL;
    struct hutch_err err;
    int64_t cpu_ms;

    /* A cgroup counts both processes; without one the engine knows the judge's own time alone. */
    if (hutch_batch_json_integer(hutch_batch_json_get(report, "cpu_ms"), &cpu_ms) && cpu_ms > 0 && (uint64_t)cpu_ms > o->cpu_ms)
        o->cpu_ms = (uint64_t)cpu_ms;
    if (hutch_batch_json_is_string(text_json) && hutch_batch_json_text(text_json, &text, NULL, &err) < 0)
        text = NULL;
    o->is_exposed = guarded.text && *guarded.text == 'f';
    if (is_text(kind, "passed"))
        o->verdict = BATCH_PASS;
    else if (is_text(kind, "compile_error"))
        say(o, BATCH_COMPILE_ERROR, "%s", text ? text : "");
    else if (is_text(kind, "error"))
        say(o, is_text(name, "AssertionError") ? BATCH_WRONG_ANSWER : is_text(name, "MemoryError") ? BATCH_MEMORY_LIMIT : BATCH_RUNTIME_ERROR,
            "%s", text ? text : "");
    else if (is_text(kind, "ended"))
        judge_loss(run, r, report, o);
    else if (is_text(kind, "garbage"))
        say(o, BATCH_RUNTIME_ERROR, "the program gave %s", text ? text : "an answer that cannot be read");
    else if (is_text(kind, "apart"))
        o->wants_together = true;
    else
        say(o, BATCH_INTERNAL, "the tests cannot be run: %s", text ? text : "no reason was given");
}

/* "TOKEN {…}\n", and nothing else, is what the judge says. */
static void judge_tests(const struct batch_run *run, const struct hutch_result *r, struct batch_opinion *o)
{
    size_t token_len = strlen(run->token);
    struct batch_json report;
    struct hutch_err ignored;

    if (r->out_len == strlen(MISSING) && memcmp(r->out, MISSING, r->out_len) == 0) {
        o->wants_judge = true;
        return;
    }
    if (r->verdict != HUTCH_OK || r->out_len <= token_len + 1 || memcmp(r->out, run->token, token_len) != 0 ||
        hutch_batch_json_check("", 1, 1, r->out + token_len, r->out_len - token_len, &report, &ignored) < 0 ||
        !hutch_batch_json_is_object(report)) {
        say(o, BATCH_RUNTIME_ERROR, "the tests were ended before they could report");
        return;
    }
    judge_report(run, r, report, o);
}

static void judge_failure(const struct hutch_result *r, struct batch_opinion *o)
{
    if (r->error_name) {
        bool is_syntax = strcmp(r->error_name, "SyntaxError") == 0 || strcmp(r->error_name, "IndentationError") == 0 ||
                         strcmp(r->error_name, "TabError") == 0;

        say(o, is_syntax ? BATCH_COMPILE_ERROR : strcmp(r->error_name, "MemoryError") == 0 ? BATCH_MEMORY_LIMIT : BATCH_RUNTIME_ERROR,
            "%.200s: %.3000s", r->error_name, r->error_value ? r->error_value : "");
    } else if (r->signal) {
        say(o, BATCH_RUNTIME_ERROR, "ended by signal %d", r->signal);
    } else {
        say(o, BATCH_RUNTIME_ERROR, "exit code %d", r->exit_code);
    }
}

static void judge_output(const struct batch_task *task, size_t index, const struct hutch_result *r, struct batch_opinion *o)
{
    struct batch_text t = BATCH_TEXT_INIT;
    auto_free char *want = NULL;
    struct hutch_err err;
    size_t len;

    if (r->exit_code != task->exit_code) {
        if (r->exit_code == 0)
            say(o, BATCH_WRONG_ANSWER, "exit code 0 in place of %d", (int)task->exit_code);
        else
            judge_failure(r, o);
        return;
    }
    o->verdict = BATCH_PASS;
    if (task->compare == COMPARE_EXIT0 || !task->cases[index].output.text)
        return;
    if (add_decoded(&t, task->cases[index].output, &err) < 0 || take_text(&t, &want, &len, &err) < 0) {
        hutch_batch_text_done(&t);
        say(o, BATCH_INTERNAL, "%s", err.msg);
    } else if (!hutch_batch_compare(task->compare, r->out, r->out_len, want, len)) {
        say(o, BATCH_WRONG_ANSWER, "wrong answer");
    }
}

void hutch_batch_judge(const struct batch_run *run, const struct batch_task *task, size_t index,
                       const struct hutch_result *result, struct batch_opinion *ret)
{
    struct batch_opinion o = { .verdict = BATCH_PASS };

    if (result->cpu_user_ms != HUTCH_UNKNOWN && result->cpu_system_ms != HUTCH_UNKNOWN)
        o.cpu_ms = result->cpu_user_ms + result->cpu_system_ms;
    if (!judge_end(run, result, &o)) {
        if (task->judging == BATCH_BY_TESTS)
            judge_tests(run, result, &o);
        else
            judge_output(task, index, result, &o);
    }
    *ret = o;
}
