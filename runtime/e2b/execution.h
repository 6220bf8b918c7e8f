/* execution.h - a request that waits for code or an order of a sandbox, and what code says on its way to the client. */
#ifndef HUTCH_E2B_EXECUTION_H
#define HUTCH_E2B_EXECUTION_H

#include "runtime/gateway/pieces.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct e2b_sandbox;
struct e2b_shell;
struct exchange;
struct gateway_session;
struct hutch_error;
struct shell_code;
struct text_buffer;

/* What an exchange has besides, in x->work. */
struct execution {
    struct gateway_session *session;
    uint64_t cell;           /* its number; 0: it is an order, or in bash */
    struct e2b_shell *shell; /* NULL: it is not in bash */
    struct shell_code *code;
    struct pieces pieces[2]; /* of stdout and stderr */
    bool is_behind;          /* the client was too far behind: nothing more goes out */
    bool has_error;          /* one was told */
    void (*interrupt)(struct exchange *x); /* for a client that is */
};

/* NULL: the exchange is refused. */
struct execution *hutch_e2b_execution_create(struct exchange *x, const struct e2b_sandbox *sandbox);
/* It waits from here on. */
void hutch_e2b_execution_begin(struct exchange *x, void (*on_gone)(struct exchange *x));
/* What it waits for was not taken. */
void hutch_e2b_execution_refuse(struct exchange *x, const struct hutch_error *error);
/* What it waits for is over: the session is told. */
void hutch_e2b_execution_leave(struct exchange *x);

/* The answer is a stream from here on. */
void hutch_e2b_execution_begin_stream(struct exchange *x);
/* Takes what @t has, which is of its own code. */
void hutch_e2b_execution_send(struct exchange *x, struct text_buffer *t);
void hutch_e2b_execution_send_count(struct exchange *x, int count);
/* @stream: 1 or 2. */
void hutch_e2b_execution_send_text(struct exchange *x, int stream, const char *data, size_t len);
/* Of characters whose rest has not come. */
void hutch_e2b_execution_flush(struct exchange *x);
/* The last line, and the end. */
void hutch_e2b_execution_end(struct exchange *x);

#endif
