/* path_request.h - an order about a path inside a session (runtime/hutch.h) that a request waits for, and what the
 * sandbox's answer is over HTTP. */
#ifndef HUTCH_GATEWAY_PATH_REQUEST_H
#define HUTCH_GATEWAY_PATH_REQUEST_H

#include "runtime/gateway/error.h"
#include "runtime/hutch.h"

#include <stdbool.h>

struct exchange;
struct gateway_session;

/* What an exchange has besides while its order is the sandbox's. */
struct path_request {
    struct gateway_session *session;
    char *path, *new_path; /* owned. The second one: where it is moved to */
    bool was_left;         /* nobody hears the answer */
    /* Called when all went well, and answers. */
    void (*answer)(struct exchange *x, const struct hutch_path_reply *reply);
};

/* As a call of hutch.h. */
typedef int (*path_call)(struct hutch_engine *engine, uint64_t session, const char *path,
                         const struct hutch_path_options *options, struct hutch_error *err);

/* Becomes the work of @x, and goes with it. Takes @path. NULL: the exchange is refused. */
struct path_request *hutch_path_request_create(struct exchange *x, struct gateway_session *session, char *path);
/* Whose answer goes to that. */
struct hutch_path_options hutch_path_request_options(struct exchange *x);

/* Gives the order. What it cannot be given for, and what the sandbox says against it, refuses the exchange. */
void hutch_path_request_give(struct exchange *x, path_call call, const struct hutch_path_options *options);
/* From @path to @new_path. */
void hutch_path_request_rename(struct exchange *x, const struct hutch_path_options *options);
/* Opens it for reading, and answers with what is in it, or a range of that. */
void hutch_path_request_download(struct exchange *x, const struct hutch_path_options *options);

/* What errno @code, which the sandbox has answered, is over HTTP. */
enum gateway_error hutch_path_request_error(int code);

#endif
