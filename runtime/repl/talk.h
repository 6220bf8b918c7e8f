/* talk.h - one request to a server and its answer as it comes, on a connection of its own. */
#ifndef HUTCH_REPL_TALK_H
#define HUTCH_REPL_TALK_H

#include "runtime/text/http_reader.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TALK_MS 10000 /* that an answer may take which the server gives at once */

struct talk {
    int fd; /* owned; -1: there is none */
    struct http_reader reader;
};
#define TALK_INIT { .fd = -1, .reader = HTTP_READER_INIT }

/* Takes @fd, a connection that blocks, and sends all but a body. @head: further lines, each after "\r\n"; @len: of the
 * body, in bytes. */
int hutch_talk_begin(struct talk *t, int fd, const char *method, const char *path, const char *head, uint64_t len,
                     struct hutch_err *err);
/* Sends a piece of the body. A server that has closed the connection has answered before, which the caller reads. */
int hutch_talk_send(struct talk *t, const char *data, size_t len, struct hutch_err *err);
/* Takes what has come, without waiting. 1: there can be more; 0: the answer is whole, or the connection has ended. */
int hutch_talk_hear(struct talk *t, struct hutch_err *err);
/* Waits until there is something to hear, TALK_MS at most. */
int hutch_talk_await(const struct talk *t, struct hutch_err *err);
/* Waits for the whole answer, TALK_MS at most. -1 with the server's own sentence when it refuses. */
int hutch_talk_finish(struct talk *t, struct hutch_err *err);
/* Waits for the head alone, likewise. What follows it is not read from the connection. */
int hutch_talk_await_head(struct talk *t, struct hutch_err *err);
/* -1: what an answer says that is no success. */
int hutch_talk_check(const struct talk *t, struct hutch_err *err);
void hutch_talk_done(struct talk *t); /* fine twice */

#endif
