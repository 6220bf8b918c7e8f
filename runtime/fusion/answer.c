#include "runtime/fusion/answer.h"

#include "runtime/text/base64.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum fusion_step hutch_fusion_step_of(const struct hutch_result *result)
{
    switch (result->verdict) {
    case HUTCH_TIMEOUT:
    case HUTCH_CPU_TIME:
        return FUSION_TIMED_OUT;
    case HUTCH_SETUP_FAILED:
        return FUSION_FAILED;
    default:
        return result->hutch_failed ? FUSION_FAILED : FUSION_FINISHED;
    }
}

/* As Python's subprocess has it: a signal is a negative number. A program that hutch ended has died of SIGKILL. */
static int return_code(const struct hutch_result *result)
{
    if (result->signal)
        return -result->signal;
    return result->exit_code >= 0 ? result->exit_code : -9;
}

void hutch_fusion_add_step(struct text_buffer *t, enum fusion_step step, double seconds, int code, const char *out,
                           size_t out_len, const char *err, size_t err_len)
{
    static const char *const names[] = {
        [FUSION_FINISHED] = "Finished", [FUSION_TIMED_OUT] = "TimeLimitExceeded", [FUSION_FAILED] = "Error",
    };

    hutch_text_addf(t, "{\"status\":\"%s\",\"execution_time\":", names[step]);
    if (step == FUSION_FAILED)
        hutch_text_add_string(t, "null");
    else
        hutch_text_addf(t, "%.6f", seconds);
    if (step == FUSION_FINISHED)
        hutch_text_addf(t, ",\"return_code\":%d,\"stdout\":", code);
    else
        hutch_text_add_string(t, ",\"return_code\":null,\"stdout\":");
    if (step == FUSION_FAILED)
        hutch_text_add_string(t, "null");
    else
        hutch_json_quote(t, out, out_len);
    hutch_text_add_string(t, ",\"stderr\":");
    hutch_json_quote(t, err, err_len);
    hutch_text_add_string(t, "}");
}

/* ---- files ---- */

/* The bytes of @fd, at most @size: what was larger when it was opened does not grow, as its sandbox is gone. */
static char *read_whole(int fd, size_t size, size_t *ret_len)
{
    char *data = malloc(size ? size : 1);
    size_t len = 0;
    ssize_t n = 1;

    while (data && len < size && n > 0) {
        n = TEMP_FAILURE_RETRY(pread(fd, data + len, size - len, (off_t)len));
        len += n > 0 ? (size_t)n : 0;
    }
    *ret_len = len;
    return data;
}

void hutch_fusion_files_add(struct fusion_files *files, const char *path, int fd, uint64_t size)
{
    auto_free char *data = NULL, *encoded = NULL;
    size_t len, encoded_len;

    if (size > FUSION_MAX_FETCHED - files->n_bytes) {
        files->is_over = true;
        return;
    }
    data = read_whole(fd, (size_t)size, &len);
    encoded = data ? hutch_base64_encode(data, len, &encoded_len) : NULL;
    if (!encoded) {
        files->text.is_broken = true;
        return;
    }
    files->n_bytes += len;
    hutch_text_add_string(&files->text, files->text.len ? "," : "");
    hutch_json_quote(&files->text, path, strlen(path));
    hutch_text_add_string(&files->text, ":\"");
    hutch_text_add(&files->text, encoded, encoded_len);
    hutch_text_add_string(&files->text, "\"");
}

/* What is no regular file is left out. */
static void add_fetched(struct fusion_files *files, const struct hutch_result *result, char *const *paths)
{
    for (size_t i = 0; i < result->n_fetched; i++)
        if (result->fetched[i].fd >= 0)
            hutch_fusion_files_add(files, paths[i], result->fetched[i].fd, result->fetched[i].size);
}

/* ---- the whole ---- */

static void begin(struct text_buffer *t, const char *status, const char *message)
{
    hutch_text_addf(t, "{\"status\":\"%s\",\"message\":", status);
    hutch_json_quote(t, message, strlen(message));
    hutch_text_add_string(t, ",\"compile_result\":null,\"run_result\":");
}

static char *end(struct text_buffer *t, struct fusion_files *files, size_t *ret_len)
{
    hutch_text_add_string(t, ",\"executor_pod_name\":null,\"files\":{");
    if (files->text.data)
        hutch_text_add(t, files->text.data, files->text.len);
    hutch_text_add_string(t, "}}\n");
    t->is_broken |= files->text.is_broken;
    hutch_text_done(&files->text);
    return hutch_text_take(t, ret_len);
}

char *hutch_fusion_answer_run(const struct hutch_result *result, char *const *paths, size_t *ret_len)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    struct fusion_files files = FUSION_FILES_INIT;
    enum fusion_step step = hutch_fusion_step_of(result);
    int code = return_code(result);

    *ret_len = 0;
    add_fetched(&files, result, paths);
    if (step == FUSION_FAILED || files.is_over)
        begin(&t, "SandboxError", step == FUSION_FAILED ? result->message : FUSION_TOO_MUCH);
    else
        begin(&t, step == FUSION_FINISHED && code == 0 ? "Success" : "Failed", result->message);
    if (step == FUSION_FAILED)
        hutch_fusion_add_step(&t, step, 0, 0, "", 0, result->message, strlen(result->message));
    else
        hutch_fusion_add_step(&t, step, result->run_ms / 1000, code, result->out, result->out_len, result->err,
                              result->err_len);
    return end(&t, &files, ret_len);
}

char *hutch_fusion_answer_trouble(const char *message, size_t *ret_len)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    struct fusion_files files = FUSION_FILES_INIT;

    *ret_len = 0;
    begin(&t, "SandboxError", message);
    hutch_text_add_string(&t, "null");
    return end(&t, &files, ret_len);
}
