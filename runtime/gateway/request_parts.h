/* request_parts.h - what several requests have: an environment, limits. */
#ifndef HUTCH_GATEWAY_REQUEST_PARTS_H
#define HUTCH_GATEWAY_REQUEST_PARTS_H

#include "runtime/hutch.h"
#include "runtime/text/buffer.h"
#include "runtime/text/json.h"
#include "sandbox/err.h"

#define REQUEST_MAX_LIST 4096
#define REQUEST_MAX_WORD (1u << 20)

/* An array of strings as a list that ends with NULL; its words are the document's, itself the caller's to free, on
 * failure too. */
int hutch_request_read_words(const struct json_node *node, const char ***ret, struct hutch_err *err);

/* An object of strings as a list of NAME=VALUE that ends with NULL, for the caller to free with
 * hutch_request_env_free(), on failure too. */
int hutch_request_read_env(const struct json_node *node, char ***ret, struct hutch_err *err);
void hutch_request_env_free(char **env);

/* {"wall_ms": …, "memory_bytes": …}: the fields of hutch_limits by their names; those that are not there are 0. */
int hutch_request_read_limits(const struct json_node *node, struct hutch_limits *ret, struct hutch_err *err);
/* The same object of all that a request can have; null: no limit. */
void hutch_request_write_limits(struct text_buffer *t, const struct hutch_limits *limits);

#endif
