#include "runtime/engine/job_run.h"

#include "runtime/engine/function.h"
#include "runtime/engine/run.h"
#include "runtime/text/json_scan.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* As much as the worker's socket takes. The rest goes when it takes more. */
static void send_job(struct engine_run *run)
{
    struct slot *slot = run->slot;

    while (run->job_sent < run->job_len && slot->supervisor->report_fd >= 0) {
        ssize_t n = TEMP_FAILURE_RETRY(send(slot->supervisor->report_fd, run->job + run->job_sent,
                                            run->job_len - run->job_sent, MSG_NOSIGNAL | MSG_DONTWAIT));

        if (n < 0 && errno == EAGAIN) {
            hutch_watch_change(&slot->job, EPOLLIN | EPOLLOUT | EPOLLET);
            return;
        }
        if (n < 0) { /* it is dead: init tells */
            run->lost_job = true;
            break;
        }
        run->job_sent += (size_t)n;
    }
}

static void on_writable(struct engine_run *run)
{
    send_job(run);
    if (run->lost_job || run->job_sent == run->job_len)
        hutch_watch_change(&run->slot->job, EPOLLIN | EPOLLET);
}

static int start(struct engine_run *run, struct hutch_err *err)
{
    (void)err; /* the reason is not known: the worker is gone */
    send_job(run);
    return run->lost_job ? -1 : 0;
}

static bool wants_output(const struct engine_run *run)
{
    return run->on_output;
}

static void hear(struct engine_run *run, int stream, const char *data, size_t len)
{
    run->on_output(run->user, run->id, stream, data, len);
}

static enum run_outcome conclude(struct engine_run *run, struct hutch_err *why)
{
    (void)run;
    (void)why;
    return OUTCOME_JUDGE;
}

const struct run_kind hutch_job_run = {
    .start = start,
    .wants_output = wants_output,
    .hear = hear,
    .on_writable = on_writable,
    .conclude = conclude,
    .refuse = hutch_run_fail,
    .die = hutch_run_deliver,
};

/* --- calls of functions ------------------------------------------------------------------------------------------- */

static int start_call(struct engine_run *run, struct hutch_err *err)
{
    run->slot->supervisor->report_max = FUNCTION_VALUE_HEADER + FUNCTION_MAX_VALUE;
    return start(run, err);
}

/* It comes from where hostile code may be, and goes into a result. */
static int check_value(const char *text, size_t len, struct hutch_err *err)
{
    struct json_scan scan = { .what = "the handler's value", .text = text, .len = len, .line = 1, .column = 1,
                              .max_depth = JSON_SCAN_MAX_DEPTH, .err = err };
    enum json_token token;

    while ((token = hutch_json_scan_next(&scan)) > JSON_END)
        ;
    return token;
}

/* False when the report is none of a value. */
static bool find_value(const struct supervisor *s, const char **ret, size_t *ret_len)
{
    const unsigned char *n = (const unsigned char *)s->report + strlen(FUNCTION_VALUE_MAGIC);

    if (s->report_len < FUNCTION_VALUE_HEADER ||
        memcmp(s->report, FUNCTION_VALUE_MAGIC, strlen(FUNCTION_VALUE_MAGIC)) != 0)
        return false;
    *ret = s->report + FUNCTION_VALUE_HEADER;
    *ret_len = (size_t)n[0] | (size_t)n[1] << 8 | (size_t)n[2] << 16 | (size_t)n[3] << 24;
    return *ret_len == s->report_len - FUNCTION_VALUE_HEADER;
}

static void take_value(struct run_result *r, const char *text, size_t len)
{
    struct hutch_err err;

    if (check_value(text, len, &err) < 0)
        snprintf(r->message, sizeof(r->message), "%s", err.msg);
    else if (!(r->value = strndup(text, len)))
        snprintf(r->message, sizeof(r->message), "there was no memory for the handler's value");
}

static enum run_outcome conclude_call(struct engine_run *run, struct hutch_err *why)
{
    const char *text;
    size_t len;

    (void)why;
    free(run->result.value); /* of a sandbox before, which broke */
    run->result.value = NULL;
    run->result.message[0] = '\0';
    if (find_value(run->slot->supervisor, &text, &len))
        take_value(&run->result, text, len);
    return OUTCOME_JUDGE;
}

/* Exit code 0 says that all went well, and a process can end with that before its handler has returned. */
static const struct hutch_cell_result *finish_call(struct engine_run *run)
{
    struct run_result *r = &run->result;

    if (r->verdict == HUTCH_OK && !r->value) {
        r->verdict = HUTCH_ERROR;
        if (!r->message[0])
            snprintf(r->message, sizeof(r->message), "the process ended before the handler had returned a value");
    } else if (r->verdict != HUTCH_OK) {
        free(r->value);
        r->value = NULL;
    }
    return NULL;
}

static void free_call(struct engine_run *run)
{
    hutch_function_release(run->kind_data);
}

const struct run_kind hutch_call_run = {
    .start = start_call,
    .wants_output = wants_output,
    .hear = hear,
    .on_writable = on_writable,
    .conclude = conclude_call,
    .refuse = hutch_run_fail,
    .die = hutch_run_deliver,
    .finish = finish_call,
    .free = free_call,
};
