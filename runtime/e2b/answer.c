#include "runtime/e2b/answer.h"

#include "runtime/e2b/connect.h"
#include "runtime/gateway/exchange.h"
#include "runtime/text/json_write.h"
#include "runtime/text/quantity.h"

#include <stdint.h>
#include <string.h>

#define SILENCE_S 90        /* as the clients' own server has it */
#define SILENCE_MAX_S 86400

void hutch_e2b_answer_empty(struct exchange *x, unsigned status)
{
    hutch_exchange_answer(x, status, NULL, strdup(""), 0);
}

static void add_error(struct text_buffer *t, unsigned status, const char *message)
{
    hutch_text_addf(t, "{\"code\":%u,\"message\":", status);
    hutch_json_quote(t, message, strlen(message));
    hutch_text_add_string(t, "}");
}

void hutch_e2b_answer_error(struct exchange *x, unsigned status, const char *message)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    add_error(&t, status, message);
    hutch_exchange_answer_json(x, status, &t);
}

void hutch_e2b_answer_break_silence(struct exchange *x, const char *sign, size_t len)
{
    const char *text = hutch_exchange_header(x, "Keepalive-Ping-Interval");
    struct hutch_err err;
    uint64_t s = 0;

    if (!text || hutch_parse_u64(text, &s, &err) < 0 || s == 0 || s > SILENCE_MAX_S)
        s = SILENCE_S;
    hutch_exchange_break_silence(x, sign, len, (double)s * 1000);
}

static char *stream_refusal(unsigned *status, const char *message, const char **type, size_t *ret_len)
{
    struct text_buffer error = TEXT_BUFFER_INIT, t = TEXT_BUFFER_INIT;

    hutch_text_add_string(&error, "{\"error\":");
    hutch_connect_add_error(&error, hutch_connect_code(*status), message);
    hutch_text_add_string(&error, "}");
    if (error.is_broken)
        t.is_broken = true;
    else
        hutch_connect_add(&t, CONNECT_END, error.data, error.len);
    hutch_text_done(&error);
    *status = 200; /* a stream's error is in the stream */
    *type = "application/connect+json";
    return hutch_text_take(&t, ret_len);
}

bool hutch_e2b_answer_message(struct exchange *x, unsigned flags, const struct text_buffer *json)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    bool is_taken;

    if (json->is_broken)
        return false;
    hutch_connect_add(&t, flags, json->data, json->len);
    is_taken = !t.is_broken && hutch_exchange_write(x, t.data, t.len);
    hutch_text_done(&t);
    return is_taken;
}

char *hutch_e2b_answer_refusal(const struct exchange *x, enum gateway_error error, const char *message,
                               unsigned *status, const char **type, size_t *ret_len)
{
    const char *path = x->route ? x->route->path : "";
    const char *method = strrchr(path, '/');
    struct text_buffer t = TEXT_BUFFER_INIT;

    (void)error;
    if (strncmp(path, "/process.", 9) != 0 && strncmp(path, "/filesystem.", 12) != 0)
        add_error(&t, *status, message);
    else if (strcmp(method, "/Start") == 0 || strcmp(method, "/Connect") == 0 || strcmp(method, "/WatchDir") == 0)
        return stream_refusal(status, message, type, ret_len);
    else
        hutch_connect_add_error(&t, hutch_connect_code(*status), message);
    return hutch_text_take(&t, ret_len);
}
