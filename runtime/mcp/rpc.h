/* rpc.h - JSON-RPC 2.0: one message, read strictly, and the frames of what is answered.
 *
 * No tree is made of a message: it is scanned once and then looked at where it stands, so that a client cannot make a
 * few megabytes of text take a gigabyte. */
#ifndef HUTCH_MCP_RPC_H
#define HUTCH_MCP_RPC_H

#include "runtime/text/json_view.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

struct text_buffer;

#define RPC_MAX_BYTES (16u << 20) /* of a message */
#define RPC_MAX_DEPTH 64
#define RPC_MAX_ID 256            /* bytes of an id, as it is written */
#define RPC_MAX_METHOD 128
#define RPC_MAX_BATCH 64          /* messages in an array of them */

enum rpc_error {
    RPC_PARSE_ERROR = -32700,
    RPC_INVALID_REQUEST = -32600,
    RPC_METHOD_NOT_FOUND = -32601,
    RPC_INVALID_PARAMS = -32602,
    RPC_INTERNAL_ERROR = -32603,
    RPC_HEADER_MISMATCH = -32020, /* of the Model Context Protocol, from 2026-07-28 on, as the next one */
    RPC_UNSUPPORTED_VERSION = -32022,
};

enum rpc_kind {
    RPC_REQUEST,
    RPC_NOTIFICATION,
    RPC_ANSWER, /* to a request of ours */
};

/* Points into the text that was read. */
struct rpc_message {
    enum rpc_kind kind;
    struct json_view id;             /* a string or whole number, as written; none: there is none, or it is wrong */
    char method[RPC_MAX_METHOD + 1]; /* "" of an answer; one that is longer is cut, and so is not known */
    struct json_view params;         /* an object, or none */
};

/* Whether @len bytes are one JSON value: UTF-8, no half of a surrogate pair, at most RPC_MAX_DEPTH levels. */
int hutch_rpc_check(const char *text, size_t len, struct json_view *ret, struct hutch_err *err);
/* 0, or the code of the error, which *err has in words. *ret is filled as far as it could be read in any case, so that
 * the error can name the id. @value was checked. */
int hutch_rpc_read(struct json_view value, struct rpc_message *ret, struct hutch_err *err);

/* The member of an object, also where its key is written with escapes; none: JSON_VIEW_NONE. */
struct json_view hutch_rpc_get(struct json_view object, const char *key);
/* A string as a NUL-terminated text of at most @size bytes with the NUL. False: it is none, longer, or has a NUL. */
bool hutch_rpc_text(struct json_view value, char *to, size_t size);
/* Whether it can be an id: a string or whole number of at most RPC_MAX_ID bytes. */
bool hutch_rpc_is_id(struct json_view value);
/* Two ids, of the same type and value. */
bool hutch_rpc_is_same_id(struct json_view a, struct json_view b);

/* {"jsonrpc":"2.0","id":ID,"result": - what follows is the result and '}'. */
void hutch_rpc_begin_result(struct text_buffer *t, struct json_view id);
/* A whole answer. @id none: without one, as the protocol has it where the request's could not be read. @message: any
 * bytes. @data: JSON; NULL: none. */
void hutch_rpc_write_error(struct text_buffer *t, struct json_view id, int code, const char *message,
                           const char *data);

#endif
