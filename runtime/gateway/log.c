#include "runtime/gateway/log.h"

#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"
#include "runtime/text/moment.h"
#include "sandbox/clock.h"
#include "sandbox/fd.h"

#include <inttypes.h>
#include <poll.h>
#include <string.h>

#define LINE_MAX_BYTES 2048 /* no more than PIPE_BUF: a pipe that is ready takes it whole and at once, pipe(7) */

static void begin_line(struct text_buffer *t, const char *event)
{
    hutch_text_add_string(t, "{\"time\":");
    hutch_moment_add(t, hutch_clock_unix(), 3);
    hutch_text_addf(t, ",\"event\":\"%s\"", event);
}

static void add_string(struct text_buffer *t, const char *key, const char *text)
{
    hutch_text_addf(t, ",\"%s\":", key);
    if (text)
        hutch_json_quote(t, text, strlen(text));
    else
        hutch_text_add_string(t, "null");
}

/* As much of it as has room; no character is cut. */
static void add_program(struct text_buffer *t, const char *program)
{
    size_t len = strlen(program);

    for (;;) {
        struct text_buffer quoted = TEXT_BUFFER_INIT;
        bool has_room;

        hutch_json_quote(&quoted, program, len);
        has_room = quoted.len <= GATEWAY_LOG_PROGRAM_MAX;
        if (has_room) {
            hutch_text_add_string(t, ",\"program\":");
            hutch_text_add(t, quoted.data ? quoted.data : "\"\"", quoted.data ? quoted.len : 2);
        }
        hutch_text_done(&quoted);
        if (has_room)
            return;
        len -= len / 8 + 1;
        while (len > 0 && ((unsigned char)program[len] & 0xc0) == 0x80)
            len--;
    }
}

static void end_line(struct gateway_log *log, struct text_buffer *t)
{
    struct pollfd p = { .fd = log->fd, .events = POLLOUT };

    hutch_text_add_string(t, "}\n");
    if (t->is_broken || t->len > LINE_MAX_BYTES || poll(&p, 1, 0) != 1 || !(p.revents & POLLOUT) ||
        write(log->fd, t->data, t->len) != (ssize_t)t->len)
        log->n_lost++;
    hutch_text_done(t);
}

void hutch_gateway_log_request(struct gateway_log *log, const struct gateway_log_request *request)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (log->fd < 0)
        return;
    begin_line(&t, "request");
    add_string(&t, "method", request->method);
    add_string(&t, "route", request->route);
    add_string(&t, "token", request->token);
    if (request->code)
        add_string(&t, "code", request->code);
    hutch_text_addf(&t, ",\"status\":%u,\"ms\":%.3f,\"in\":%" PRIu64 ",\"out\":%" PRIu64 "%s", request->status,
                    request->ms, request->bytes_in, request->bytes_out, request->is_gone ? ",\"gone\":true" : "");
    if (request->program)
        add_program(&t, request->program);
    end_line(log, &t);
}

void hutch_gateway_log_event(struct gateway_log *log, const char *event, const char *key, const char *text)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (log->fd < 0)
        return;
    begin_line(&t, event);
    if (key)
        add_string(&t, key, text);
    end_line(log, &t);
}
