/* inner.h - one request to another worker, over a connection of its own, and its answer as it comes. */
#ifndef HUTCH_GATEWAY_INNER_H
#define HUTCH_GATEWAY_INNER_H

#include "runtime/gateway/poller.h"
#include "runtime/text/buffer.h"
#include "runtime/text/http_reader.h"
#include "sandbox/err.h"

#include <stdbool.h>

/* The owner may free the inner request within on_end(). */
struct inner_events {
    void (*on_head)(void *owner);    /* the reader has status and headers */
    void (*on_body)(void *owner);    /* … and more of the body, which the owner takes off */
    void (*on_sent)(void *owner);    /* all that was given is sent */
    void (*on_end)(void *owner, bool is_whole); /* once; nothing more is told */
};

struct inner {
    struct poller *poller;
    const struct inner_events *events;
    void *owner;
    int fd;                   /* owned */
    struct watch watch;
    uint32_t watched;
    struct text_buffer out;   /* sent up to n_sent */
    size_t n_sent;
    struct http_reader reader;
    bool has_told_head, is_paused, is_over;
};

/* Takes @fd, a socket that does not block. -1: it is closed. */
int hutch_inner_begin(struct inner *in, struct poller *poller, int fd, const struct inner_events *events, void *owner,
                      struct hutch_err *err);
/* Once a turn of the loop is over; on_sent() or on_end() may come before it returns. False: memory was short. */
bool hutch_inner_send(struct inner *in, const char *data, size_t len);
/* Bytes that are given and not sent. */
size_t hutch_inner_unsent(const struct inner *in);
/* Nothing of the answer is read, or it is again. */
void hutch_inner_pause(struct inner *in, bool is_paused);
/* Its socket, the caller's from here on: the answer was 101, and reader.body has what followed that. */
int hutch_inner_take(struct inner *in);
/* Fine more than once. */
void hutch_inner_done(struct inner *in);

#endif
