#include "runtime/batch/record.h"

#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define OUTPUT_MAX 65536 /* bytes of each stream that are shown */

static const char *const own_keys[] = {
    "result", "passed", "completion_id", "verdict", "cases", "score", "cpu_ms", "wall_ms", "retried", "judge",
    "exit_code", "signal", "stdout", "stdout_truncated", "stderr", "stderr_truncated", "hash",
};

static void add_stream(struct text_buffer *t, const char *name, const char *data, size_t len, bool is_truncated)
{
    size_t shown = len < OUTPUT_MAX ? len : OUTPUT_MAX;

    hutch_text_addf(t, ", \"%s\": ", name);
    hutch_json_quote(t, data, shown);
    hutch_text_addf(t, ", \"%s_truncated\": %s", name, is_truncated || shown < len ? "true" : "false");
}

char *hutch_batch_record_details(const struct hutch_result *r)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    const char *name = r->signal ? sigabbrev_np(r->signal) : NULL;

    if (r->exit_code >= 0)
        hutch_text_addf(&t, ", \"exit_code\": %d", r->exit_code);
    else
        hutch_text_add_string(&t, ", \"exit_code\": null");
    if (name)
        hutch_text_addf(&t, ", \"signal\": \"SIG%s\"", name);
    else if (r->signal)
        hutch_text_addf(&t, ", \"signal\": \"SIG%d\"", r->signal);
    else
        hutch_text_add_string(&t, ", \"signal\": null");
    add_stream(&t, "stdout", r->out, r->out_len, r->out_truncated);
    add_stream(&t, "stderr", r->err, r->err_len, r->err_truncated);
    return hutch_text_take(&t, NULL);
}

static bool is_own_key(struct json_view key)
{
    for (size_t i = 0; i < ARRAY_SIZE(own_keys); i++)
        if (hutch_json_view_is(key, own_keys[i]))
            return true;
    return false;
}

/* A value that was written over several lines becomes one line: line ends outside of strings go. */
static void add_on_one_line(struct text_buffer *t, struct json_view value)
{
    bool in_string = false;

    for (size_t i = 0; i < value.len; i++) {
        char c = value.text[i];

        if (in_string && c == '\\') {
            hutch_text_add(t, value.text + i++, 2);
            continue;
        }
        if (c == '"')
            in_string = !in_string;
        if (c != '\n' && c != '\r')
            hutch_text_add(t, &c, 1);
    }
}

/* The sample's record as it came, without what is ours. */
static void add_sample(struct text_buffer *t, struct json_view record)
{
    struct json_walk walk = hutch_json_view_walk(record);
    struct json_view key, value;
    bool is_first = true;

    while (hutch_json_view_next(&walk, &key, &value)) {
        if (is_own_key(key))
            continue;
        hutch_text_add_string(t, is_first ? "" : ", ");
        hutch_text_add(t, key.text, key.len);
        hutch_text_add_string(t, ": ");
        add_on_one_line(t, value);
        is_first = false;
    }
}

/* As the reference runner of HumanEval puts it. */
static void add_result(struct text_buffer *t, const struct batch_outcome *o)
{
    struct text_buffer text = TEXT_BUFFER_INIT;

    if (o->verdict == BATCH_PASS) {
        hutch_text_add_string(&text, "passed");
    } else if (o->verdict == BATCH_TIMEOUT) {
        hutch_text_add_string(&text, "timed out");
    } else {
        hutch_text_add_string(&text, o->verdict == BATCH_INTERNAL ? "internal: " : "failed: ");
        hutch_text_add_string(&text, o->text);
    }
    hutch_text_add_string(t, ", \"result\": ");
    hutch_json_quote(t, text.data ? text.data : "", text.len);
    hutch_text_done(&text);
}

char *hutch_batch_record_make(const struct batch_plan *plan, const struct batch_item *item,
                              const struct batch_loaded *loaded, const struct batch_outcome *o, size_t *ret_len)
{
    const struct batch_task *task = loaded->task;
    bool is_reference = task->format == BATCH_HUMANEVAL || task->format == BATCH_MBPP;
    struct text_buffer t = TEXT_BUFFER_INIT;
    char hash[BATCH_HASH_LEN + 1];

    hutch_text_add_string(&t, "{");
    if (plan->has_samples) {
        add_sample(&t, loaded->record);
    } else {
        hutch_text_add_string(&t, is_reference ? "\"task_id\": " : "\"id\": ");
        hutch_text_add(&t, task->id_json.text, task->id_json.len);
        if (is_reference) {
            hutch_text_add_string(&t, ", \"completion\": ");
            hutch_text_add(&t, loaded->sample.program.text, loaded->sample.program.len);
        }
    }
    add_result(&t, o);
    hutch_text_addf(&t, ", \"passed\": %s, \"completion_id\": %" PRIu32 ", \"verdict\": \"%s\"",
                    o->verdict == BATCH_INTERNAL ? "null" : o->verdict == BATCH_PASS ? "true" : "false", item->sample,
                    hutch_batch_verdict_name(o->verdict));
    if (task->judging == BATCH_BY_OUTPUT) {
        hutch_text_addf(&t, ", \"score\": %.6f, \"cases\": [", (double)o->n_passed / (double)task->n_cases);
        for (size_t i = 0; i < o->n_run; i++)
            hutch_text_addf(&t, "%s\"%s\"", i ? ", " : "",
                            hutch_batch_verdict_name((enum batch_verdict)o->cases[i]));
        hutch_text_add_string(&t, "]");
    }
    if (o->details)
        hutch_text_add_string(&t, o->details);
    if (task->judging == BATCH_BY_TESTS)
        hutch_text_addf(&t, ", \"judge\": \"%s\"", o->is_together ? "together" : "apart");
    hutch_batch_hash_format(item->hash, hash);
    hutch_text_addf(&t, ", \"cpu_ms\": %" PRIu64 ", \"wall_ms\": %.3f, \"retried\": %s, \"hash\": \"%s\"}\n",
                    o->cpu_ms, o->wall_ms, o->is_retried ? "true" : "false", hash);
    return hutch_text_take(&t, ret_len);
}
