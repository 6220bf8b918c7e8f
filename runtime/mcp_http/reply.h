/* reply.h - what answers one request of HTTP: one JSON text, or a stream of messages, as its client takes it and as it
 * turns out.
 *
 *     begin -> send* -> end for each message -> the answer
 *
 * What is known at once is one text. What takes longer becomes a stream, where the client takes one. */
#ifndef HUTCH_MCP_HTTP_REPLY_H
#define HUTCH_MCP_HTTP_REPLY_H

#include "runtime/gateway/events.h"
#include "runtime/text/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

struct exchange;
struct http_client;

#define REPLY_BEHIND (1u << 20)  /* bytes that wait for a client: it is slow */

struct reply {
    LIST_ENTRY(reply) in_client;
    struct http_client *client;  /* NULL: it is in no list any more */
    struct exchange *x;          /* it is the exchange's work, and freed with it */
    size_t n_left;               /* messages that are not ended */
    bool takes_json, takes_stream;
    bool is_modern, is_array;
    bool is_beginning;           /* the request's messages are being received */
    bool is_stream;
    bool is_cut;                 /* something of the stream is missing */
    struct events events;
    struct text_buffer answers;  /* until it is a stream; with commas between */
    size_t n_answers;
    int code;                    /* of the last one: a result, or which error */
    double gone_ms;              /* since when nobody waits for it; 0: somebody does */
};

/* Of @x, for @n messages. NULL: memory was short, and the exchange was refused. */
struct reply *hutch_reply_begin(struct exchange *x, struct http_client *client, size_t n);
/* It is a stream from here on. */
void hutch_reply_stream(struct reply *r);
/* All messages were received: it is answered if all of them are ended. */
void hutch_reply_begun(struct reply *r);

/* A message of the server's. @kind: as in runtime/mcp/server.h. */
void hutch_reply_send(struct reply *r, int kind, const char *json, size_t len);
/* One of its messages is ended. It may be gone after this. */
void hutch_reply_end(struct reply *r);
/* Whatever is not ended is not going to be answered. */
void hutch_reply_break(struct reply *r);

bool hutch_reply_is_behind(const struct reply *r);

/* An error as the whole answer. @id: of the request, or none. */
struct json_view;
void hutch_reply_refuse(struct exchange *x, unsigned status, const struct json_view *id, int code, const char *why);
/* Without a body. */
void hutch_reply_empty(struct exchange *x, unsigned status);

#endif
