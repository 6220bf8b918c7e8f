#include "runtime/gateway/change_stream.h"

#include "runtime/gateway/exchange.h"
#include "runtime/gateway/path_api.h"
#include "runtime/gateway/path_request.h"
#include "runtime/gateway/session_api.h"
#include "runtime/gateway/sessions.h"
#include "runtime/text/base64.h"
#include "runtime/text/json_write.h"
#include "runtime/text/utf8.h"
#include "sandbox/fd.h"

#include <errno.h>
#include <string.h>

static void on_begin(void *user, uint64_t session, uint64_t watch)
{
    struct exchange *x = user;
    struct change_stream *s = x->work;

    (void)session;
    (void)watch;
    if (s->was_left)
        return;
    s->has_begun = true;
    s->writer->begin(x);
}

static void on_change(void *user, uint64_t session, uint64_t watch, const struct hutch_change *change)
{
    struct exchange *x = user;
    struct change_stream *s = x->work;

    if (s->was_left || s->is_stopped || s->writer->change(x, change))
        return;
    s->is_stopped = true;
    hutch_session_unwatch(s->engine, session, watch);
}

static void on_end(void *user, uint64_t session, uint64_t watch, int code, const char *message)
{
    struct exchange *x = user;
    struct change_stream *s = x->work;

    (void)session;
    (void)watch;
    if (!s->has_begun && s->was_left)
        hutch_exchange_refuse(x, GATEWAY_SHUTTING_DOWN, "the server is shutting down");
    else if (!s->has_begun)
        hutch_exchange_refuse(x, hutch_path_request_error(code), "%s", message);
    else
        hutch_exchange_end(x, !s->was_left && (s->is_stopped ? s->is_whole : s->writer->end(x, code, message)));
}

/* The end follows. */
static void on_gone(struct exchange *x)
{
    struct change_stream *s = x->work;

    s->was_left = true;
    hutch_session_unwatch(s->engine, s->session, s->watch);
}

void hutch_change_stream_open(struct exchange *x, const struct gateway_session *session, const char *path,
                              const struct change_writer *writer)
{
    struct change_stream *s = calloc(1, sizeof(*s));
    struct hutch_watch_options options;
    struct hutch_error error;

    x->work = s;
    if (!s) {
        hutch_exchange_refuse(x, GATEWAY_OVERLOADED, "the server has no memory for the stream");
        return;
    }
    s->writer = writer;
    s->engine = hutch_exchange_engine(x);
    s->session = session->number;
    hutch_watch_options_init(&options);
    options.on_begin = on_begin;
    options.on_change = on_change;
    options.on_end = on_end;
    options.user = x;
    hutch_exchange_wait(x, on_gone);
    if (hutch_session_watch(s->engine, s->session, path, &options, &s->watch, &error) < 0)
        hutch_exchange_refuse_error(x, &error, GATEWAY_QUEUE_FULL, GATEWAY_NOT_FOUND);
}

/* ---- the native API ---- */

static bool send_event(struct exchange *x, const char *event, struct text_buffer *t)
{
    struct change_stream *s = x->work;
    const bool is_taken = !t->is_broken && hutch_events_send(&s->events, x, event, t->data, t->len);

    hutch_text_done(t);
    return is_taken;
}

static void begin_events(struct exchange *x)
{
    struct change_stream *s = x->work;
    struct text_buffer t = TEXT_BUFFER_INIT;
    const enum events_format format = hutch_events_asked(x);

    hutch_events_begin(&s->events, x, format == EVENTS_NONE ? EVENTS_NDJSON : format);
    hutch_text_add_string(&t, "{}");
    send_event(x, "watching", &t);
}

static bool send_change(struct exchange *x, const struct hutch_change *change)
{
    static const char *const kinds[] = {
        [HUTCH_CREATED] = "created", [HUTCH_WRITTEN] = "written", [HUTCH_REMOVED] = "removed",
        [HUTCH_RENAMED] = "renamed", [HUTCH_ATTRIBUTES] = "attributes",
    };
    struct text_buffer t = TEXT_BUFFER_INIT;
    const size_t len = strlen(change->name);
    size_t n = 0;

    if (change->kind == HUTCH_CHANGES_LOST) {
        hutch_text_add_string(&t, "{}");
        return send_event(x, "lost", &t);
    }
    hutch_text_addf(&t, "{\"kind\":\"%s\",\"name\":", kinds[change->kind]);
    hutch_json_quote(&t, change->name, len);
    if (!hutch_utf8_is_valid(change->name, len)) {
        auto_free char *encoded = hutch_base64_encode(change->name, len, &n);

        hutch_text_addf(&t, ",\"name_base64\":\"%s\"", encoded ? encoded : "");
        t.is_broken |= !encoded;
    }
    hutch_text_addf(&t, ",\"directory\":%s}", change->is_directory ? "true" : "false");
    return send_event(x, "change", &t);
}

static bool send_end(struct exchange *x, int code, const char *message)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    hutch_text_addf(&t, "{\"errno\":%d,\"message\":", code);
    hutch_json_quote(&t, message, strlen(message));
    hutch_text_add_string(&t, "}");
    return send_event(x, "end", &t);
}

void hutch_change_stream_watch(struct exchange *x)
{
    static const struct change_writer writer = { begin_events, send_change, send_end };
    const struct gateway_session *session = hutch_session_api_find(x);
    auto_free char *path = session ? hutch_path_api_read_path(x, "path") : NULL;

    if (path)
        hutch_change_stream_open(x, session, path, &writer);
}
