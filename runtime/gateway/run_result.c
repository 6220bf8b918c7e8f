#include "runtime/gateway/run_result.h"

#include "runtime/hutch.h"
#include "runtime/text/base64.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static void add_error(struct text_buffer *t, const char *error)
{
    hutch_text_add_string(t, ",\"error\":");
    hutch_json_quote(t, error, strlen(error));
}

/* A file may be shorter than it was when it was looked at: nobody writes to it any more, but its disk may fail. */
static ssize_t read_whole(int fd, char *to, size_t size)
{
    size_t len = 0;

    while (len < size) {
        ssize_t n = TEMP_FAILURE_RETRY(pread(fd, to + len, size - len, (off_t)len));

        if (n < 0)
            return -1;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    return (ssize_t)len;
}

static void add_content(struct text_buffer *t, const struct hutch_fetched *file)
{
    auto_free char *data = malloc(file->size ? (size_t)file->size : 1), *text = NULL;
    ssize_t n = data ? read_whole(file->fd, data, (size_t)file->size) : -1;
    size_t len;

    if (n < 0) {
        add_error(t, strerror(errno));
        return;
    }
    text = hutch_base64_encode(data, (size_t)n, &len);
    hutch_text_addf(t, ",\"size\":%zd,\"base64\":\"", n);
    hutch_text_add_string(t, text ? text : "");
    hutch_text_add_string(t, "\"");
    t->is_broken |= !text;
}

char *hutch_run_result_json(const struct hutch_result *result)
{
    char *json = hutch_result_to_json(result);
    struct text_buffer t = TEXT_BUFFER_INIT;
    uint64_t room = RUN_RESULT_MAX_FETCHED;

    if (!json || !result->n_fetched)
        return json;
    hutch_text_add(&t, json, strlen(json) - 1); /* without its last brace */
    free(json);
    hutch_text_add_string(&t, ",\"fetched\":[");
    for (size_t i = 0; i < result->n_fetched; i++) {
        const struct hutch_fetched *file = &result->fetched[i];

        hutch_text_add_string(&t, i ? ",{\"path\":" : "{\"path\":");
        hutch_json_quote(&t, file->path, strlen(file->path));
        if (file->fd < 0) {
            add_error(&t, strerror(file->code));
        } else if (file->size > room) {
            add_error(&t, "the files that are asked for have more than 16 MiB");
        } else {
            room -= file->size;
            add_content(&t, file);
        }
        hutch_text_add_string(&t, "}");
    }
    hutch_text_add_string(&t, "]}");
    return hutch_text_take(&t, NULL);
}
