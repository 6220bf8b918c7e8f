/* change_stream.h - a request whose answer is what changes in a directory inside (hutch_session_watch()), as long as
 * its client listens. How that is written is the format's. */
#ifndef HUTCH_GATEWAY_CHANGE_STREAM_H
#define HUTCH_GATEWAY_CHANGE_STREAM_H

#include "runtime/gateway/error.h"
#include "runtime/gateway/events.h"
#include "runtime/hutch.h"

#include <stdbool.h>
#include <stdint.h>

struct exchange;
struct gateway_session;

/* False from the second: no more is to come. Unless is_whole was set, the client is too far behind. */
struct change_writer {
    void (*begin)(struct exchange *x);
    bool (*change)(struct exchange *x, const struct hutch_change *change);
    /* The last that comes. @code: ENOENT, … */
    bool (*end)(struct exchange *x, int code, const char *message);
};

struct change_stream {
    const struct change_writer *writer;
    struct hutch_engine *engine;
    uint64_t session, watch;
    bool has_begun, was_left;
    bool is_stopped; /* by the writer */
    bool is_whole;   /* … which has written the last there is to tell */
    struct events events; /* the writer's */
};

/* Becomes the work of @x. What is wrong with it refuses the exchange. */
void hutch_change_stream_open(struct exchange *x, const struct gateway_session *session, const char *path,
                              const struct change_writer *writer);

/* The native API: GET /v1/sessions/{id}/watch */
void hutch_change_stream_watch(struct exchange *x);

#endif
