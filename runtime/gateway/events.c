#include "runtime/gateway/events.h"

#include "runtime/gateway/exchange.h"
#include "runtime/text/base64.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json_write.h"
#include "runtime/text/utf8.h"
#include "sandbox/fd.h"

#include <string.h>
#include <strings.h>

/* One with q=0 counts too: it is not written for nothing. */
bool hutch_events_accepts(const char *accept, const char *type)
{
    size_t len = strlen(type);

    while (*accept) {
        accept += strspn(accept, ", \t");
        if (strncasecmp(accept, type, len) == 0 && strchr("; \t,", accept[len]))
            return true;
        accept += strcspn(accept, ",");
    }
    return false;
}

enum events_format hutch_events_asked(const struct exchange *x)
{
    const char *accept = hutch_exchange_header(x, "Accept");

    if (!accept)
        return EVENTS_NONE;
    if (hutch_events_accepts(accept, "text/event-stream"))
        return EVENTS_SSE;
    return hutch_events_accepts(accept, "application/x-ndjson") ? EVENTS_NDJSON : EVENTS_NONE;
}

void hutch_events_begin(struct events *s, struct exchange *x, enum events_format format)
{
    static const char comment[] = ": \n\n";

    *s = (struct events){ .format = format };
    hutch_exchange_begin_stream(x, format == EVENTS_SSE ? "text/event-stream" : "application/x-ndjson");
    if (format == EVENTS_SSE)
        hutch_exchange_break_silence(x, comment, sizeof(comment) - 1, EVENTS_SILENCE_MS);
}

static bool send(struct events *s, struct exchange *x, const char *event, const char *json, size_t len,
                 bool (*write)(struct exchange *x, const char *data, size_t len))
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    bool is_taken;

    hutch_text_addf(&t, s->format == EVENTS_SSE ? "event: %s\ndata: " : "{\"event\":\"%s\",\"data\":", event);
    hutch_text_add(&t, json, len);
    hutch_text_add_string(&t, s->format == EVENTS_SSE ? "\n\n" : "}\n");
    is_taken = !t.is_broken && write(x, t.data, t.len);
    hutch_text_done(&t);
    return is_taken;
}

bool hutch_events_send(struct events *s, struct exchange *x, const char *event, const char *json, size_t len)
{
    return send(s, x, event, json, len, hutch_exchange_write);
}

void hutch_events_end(struct events *s, struct exchange *x, const char *json)
{
    bool is_whole;

    hutch_events_flush(s, x);
    is_whole = !s->is_behind && json && send(s, x, "result", json, strlen(json), hutch_exchange_write_all);
    hutch_exchange_end(x, is_whole);
}

static bool send_output(struct events *s, struct exchange *x, int which, const char *data, size_t len)
{
    struct text_buffer t = TEXT_BUFFER_INIT;

    if (len == 0)
        return true;
    hutch_text_addf(&t, "{\"stream\":\"%s\",\"text\":", which == 1 ? "stdout" : "stderr");
    hutch_json_quote(&t, data, len);
    if (!hutch_utf8_is_valid(data, len)) { /* the text is not all there is to it */
        size_t n = 0;
        auto_free char *encoded = hutch_base64_encode(data, len, &n);

        hutch_text_add_string(&t, ",\"base64\":\"");
        hutch_text_add(&t, encoded ? encoded : "", n);
        hutch_text_add_string(&t, "\"");
        t.is_broken |= !encoded;
    }
    hutch_text_add_string(&t, "}");
    s->is_behind = t.is_broken || !hutch_events_send(s, x, "output", t.data, t.len);
    hutch_text_done(&t);
    return !s->is_behind;
}

bool hutch_events_output(struct events *s, struct exchange *x, int which, const char *data, size_t len)
{
    struct text_buffer t = TEXT_BUFFER_INIT;
    bool is_taken;

    if (s->is_behind)
        return false;
    hutch_pieces_join(&s->pieces[which - 1], data, len, &t);
    is_taken = !t.is_broken && send_output(s, x, which, t.data, t.len);
    hutch_text_done(&t);
    return is_taken;
}

void hutch_events_flush(struct events *s, struct exchange *x)
{
    for (int which = 1; which <= 2 && !s->is_behind; which++) {
        struct text_buffer t = TEXT_BUFFER_INIT;

        hutch_pieces_flush(&s->pieces[which - 1], &t);
        send_output(s, x, which, t.data, t.len);
        hutch_text_done(&t);
    }
}
