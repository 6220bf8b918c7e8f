#include "runtime/batch/run.h"

#include "runtime/batch/judge.h"
#include "runtime/batch/judge_job.h"
#include "runtime/batch/prelude.h"
#include "runtime/text/buffer.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define REPORT_BYTES 65536 /* of what the judge may print */
#define MAX_CASE_LIMITS 10 /* times of one case that a run of all cases of a function may have */

/* The wall clock's limit where none is given: so much longer than the CPU time, and this besides. */
#define WALL_FACTOR 10
#define WALL_SLACK_MS 10000

static int make_token(char token[BATCH_TOKEN_LEN + 1], struct hutch_err *err)
{
    unsigned char bytes[BATCH_TOKEN_LEN / 2];

    if (TEMP_FAILURE_RETRY(getrandom(bytes, sizeof(bytes), 0)) != (ssize_t)sizeof(bytes))
        return hutch_err_set(err, errno, "make a token");
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(token + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

/* Adds the text of a value; an array is lines. */
static int add_decoded(struct text_buffer *t, struct json_view value, struct hutch_err *err)
{
    struct json_walk walk = hutch_json_view_walk(value);
    struct json_view item;

    if (hutch_json_view_is_null(value))
        return 0;
    if (hutch_json_view_is_string(value)) {
        auto_free char *text = NULL;
        size_t len;

        if (hutch_json_view_text(value, &text, &len, err) < 0)
            return -1;
        hutch_text_add(t, text, len);
        return 0;
    }
    if (!hutch_json_view_is_array(value)) {
        hutch_text_add(t, value.text, value.len); /* a number where a text was meant */
        return 0;
    }
    for (bool is_first = true; hutch_json_view_next(&walk, NULL, &item); is_first = false) {
        hutch_text_add_string(t, is_first ? "" : "\n");
        if (add_decoded(t, item, err) < 0)
            return -1;
    }
    return 0;
}

static int take_text(struct text_buffer *t, char **ret, size_t *ret_len, struct hutch_err *err)
{
    *ret = hutch_text_take(t, ret_len);
    return *ret ? 0 : hutch_err_set(err, ENOMEM, "put a run together");
}

int hutch_batch_run_decode(struct json_view value, char **ret, size_t *ret_len, struct hutch_err *err)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (add_decoded(&t, value, err) < 0) {
        hutch_text_done(&t);
        return -1;
    }
    return take_text(&t, ret, ret_len, err);
}

static int make_plain_code(const struct batch_task *task, const struct batch_sample *sample, struct text_buffer *t,
                           struct hutch_err *err)
{
    auto_free char *program = NULL;
    size_t len;

    if (hutch_json_view_text(sample->program, &program, &len, err) < 0)
        return -1;
    hutch_text_add_string(t, hutch_batch_prelude(task, sample));
    if (sample->is_completion && add_decoded(t, task->prompt, err) < 0)
        return -1;
    hutch_text_add(t, program, len);
    if (task->tests.text) {
        hutch_text_add_string(t, "\n");
        if (add_decoded(t, task->tests, err) < 0)
            return -1;
        hutch_text_add_string(t, "\n");
    }
    return 0;
}

/* A NULL-terminated array of decoded texts; of an object, NAME=VALUE. */
static int make_words(struct json_view list, char ***ret, struct hutch_err *err)
{
    size_t n = hutch_json_view_count(list), i = 0;
    struct json_walk walk = hutch_json_view_walk(list);
    struct json_view key, value;
    char **words;

    if (n == 0)
        return 0;
    words = calloc(n + 1, sizeof(*words));
    if (!words)
        return hutch_err_set(err, ENOMEM, "put a run together");
    *ret = words; /* freed with the run, however far this gets */
    while (hutch_json_view_next(&walk, &key, &value)) {
        struct text_buffer t = TEXT_BUFFER_INIT;
        size_t len;

        if (walk.is_object) {
            if (add_decoded(&t, key, err) < 0) {
                hutch_text_done(&t);
                return -1;
            }
            hutch_text_add_string(&t, "=");
        }
        if (add_decoded(&t, value, err) < 0) {
            hutch_text_done(&t);
            return -1;
        }
        if (take_text(&t, &words[i], &len, err) < 0)
            return -1;
        if (strlen(words[i++]) != len)
            return hutch_err_say(err, EINVAL, "an argument or variable with a NUL byte");
    }
    return 0;
}

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
    request->wall_ms = either(own->wall_ms, either(usual->wall_ms, WALL_FACTOR * request->cpu_ms + WALL_SLACK_MS));
    request->memory_bytes = own->memory_bytes; /* the usual one is in the policy, so that prepared sandboxes have it */
    request->pids = own->pids;
    request->output_bytes = own->output_bytes;
}

static int make_files(const struct batch_manner *manner, const struct batch_task *task, uint64_t number,
                      struct batch_run *run, struct hutch_err *err)
{
    if (hutch_json_view_count(task->files) == 0)
        return 0;
    if (hutch_batch_files_make(manner->files_fd, manner->files_path, number, task->files, &run->files, err) < 0)
        return -1;
    run->request.data_dir = run->files.path;
    return 0;
}

static int make_parts(const struct batch_manner *manner, const struct batch_task *task,
                      const struct batch_sample *sample, size_t index, struct batch_run *run, struct text_buffer *code,
                      struct text_buffer *input, struct hutch_err *err)
{
    bool is_together = manner->is_together || task->is_together;
    struct hutch_request *q = &run->request;

    if (task->judging == BATCH_BY_TESTS) {
        if (make_token(run->token, err) < 0)
            return -1;
        if (manner->carries_judge)
            hutch_batch_judge_add_modules(code);
        hutch_batch_judge_add_code(code, sample);
        q->name = "-c";
        q->output_bytes = REPORT_BYTES;
        if (hutch_batch_judge_job_add(input, task, sample, run->token, is_together, err) < 0)
            return -1;
    } else if (make_plain_code(task, sample, code, err) < 0 || add_decoded(input, task->cases[index].input, err) < 0) {
        return -1;
    }
    if (take_text(code, &run->code, &q->code_len, err) < 0 || take_text(input, &run->input, &q->input_len, err) < 0)
        return -1;
    return make_words(task->args, &run->args, err) < 0 ? -1 : make_words(task->env, &run->env, err);
}

int hutch_batch_run_make(const struct batch_manner *manner, const struct batch_task *task,
                         const struct batch_sample *sample, size_t index, uint64_t number, struct batch_run *ret,
                         struct hutch_err *err)
{
    struct text_buffer code = TEXT_BUFFER_INIT, input = TEXT_BUFFER_INIT;
    struct batch_run run = BATCH_RUN_INIT;
    struct hutch_request *q = &run.request;

    hutch_request_init(q);
    q->language = task->language;
    set_limits(manner, task, q);
    if (make_parts(manner, task, sample, index, &run, &code, &input, err) < 0 ||
        make_files(manner, task, number, &run, err) < 0) {
        hutch_text_done(&code);
        hutch_text_done(&input);
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
    hutch_batch_files_remove(&run->files);
    free(run->code);
    free(run->input);
    free_words(run->args);
    free_words(run->env);
    *run = (struct batch_run)BATCH_RUN_INIT;
}
