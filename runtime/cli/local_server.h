/* local_server.h - the server of this user that listens on the default socket: how a command reaches it, and how it
 * says there what its options say. */
#ifndef HUTCH_CLI_LOCAL_SERVER_H
#define HUTCH_CLI_LOCAL_SERVER_H

#include "sandbox/err.h"

#include <stdbool.h>

struct option_list;
struct run_opts;
struct text_buffer;

/* *@ret is the caller's and blocks, but gives up after ten seconds what is not taken or does not come. -1: none listens
 * there, or one that somebody else could have made. */
int hutch_local_server_connect(int *ret, struct hutch_err *err);

/* Adds ,"env":{...}. False: it is not UTF-8, or one is there twice. */
bool hutch_local_server_add_env(struct text_buffer *t, const struct option_list *env);
/* Adds ,"limits":{...} but for those whose bit is in @without, 1u << enum sandbox_limit. -1: one cannot be asked for,
 * as it would be wider than the policy's, or is none of a request's. */
int hutch_local_server_add_limits(struct text_buffer *t, const struct run_opts *opts, unsigned without,
                                  struct hutch_err *err);
/* Adds a line of a request's head; what is no plain character of @path is percent-encoded. */
void hutch_local_server_add_path(struct text_buffer *t, const char *header, const char *path);

#endif
