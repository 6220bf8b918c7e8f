/* events.h - an answer that comes event by event: server-sent events, or a JSON object on each line.
 *
 *     event: output                                       {"event":"output","data":{"stream":"stdout","text":"…"}}
 *     data: {"stream":"stdout","text":"…"}                {"event":"result","data":{…}}
 */
#ifndef HUTCH_GATEWAY_EVENTS_H
#define HUTCH_GATEWAY_EVENTS_H

#include "runtime/gateway/pieces.h"

#include <stdbool.h>
#include <stddef.h>

struct exchange;

/* Then a stream of server-sent events has a comment, so that nobody on the way takes it for dead. */
#define EVENTS_SILENCE_MS 15000

enum events_format { EVENTS_NONE, EVENTS_SSE, EVENTS_NDJSON };

struct events {
    enum events_format format;
    struct pieces pieces[2]; /* of stdout and stderr */
    bool is_behind;      /* the client was too far behind: no more output goes out */
};

/* Whether the list of media types in @accept, a header, has @type as it is written. */
bool hutch_events_accepts(const char *accept, const char *type);
/* What the header Accept asks for. */
enum events_format hutch_events_asked(const struct exchange *x);
/* Begins the answer of @x. */
void hutch_events_begin(struct events *s, struct exchange *x, enum events_format format);

/* A piece of stdout (1) or stderr (2), any bytes. False when the client is too far behind: whatever makes the output is
 * to be ended. */
bool hutch_events_output(struct events *s, struct exchange *x, int which, const char *data, size_t len);
/* What the two have left of a character that was never completed. */
void hutch_events_flush(struct events *s, struct exchange *x);
/* @json: one value on one line. As hutch_events_output(). */
bool hutch_events_send(struct events *s, struct exchange *x, const char *event, const char *json, size_t len);
/* The last event, "result", which has all once more and so may be as large as the rest; and the end. The connection is
 * broken off where @json is NULL or something before it is missing. */
void hutch_events_end(struct events *s, struct exchange *x, const char *json);

#endif
