/* session_stream.h - a session that lives as long as the answer to the request that has opened it: a stream of events,
 * "session" with what there is to know of it, and "end" with the reason. A client that leaves, however it does, leaves
 * no session behind, and one that stays is told of the end at once. */
#ifndef HUTCH_GATEWAY_SESSION_STREAM_H
#define HUTCH_GATEWAY_SESSION_STREAM_H

#include "runtime/gateway/events.h"
#include "runtime/text/buffer.h"

struct exchange;
struct gateway_session;
struct server;

/* Answers @x, by which @session was opened, with a stream of @format; @json says what the session is, and is empty
 * afterwards. Where that fails the session is ended. */
void hutch_session_stream_begin(struct exchange *x, struct gateway_session *session, enum events_format format,
                                struct text_buffer *json);
/* In the session's on_end, whether it has a stream or not. @directory: of the files that were kept; NULL: there is
 * none. */
void hutch_session_stream_end(struct gateway_session *session, const char *why, const char *directory);
/* The server is to end: the sessions of streams end where nothing of them is at work. */
void hutch_session_streams_release(struct server *s);

#endif
