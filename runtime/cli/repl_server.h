/* repl_server.h - hutch repl by the server on the default socket. */
#ifndef HUTCH_CLI_REPL_SERVER_H
#define HUTCH_CLI_REPL_SERVER_H

#include "sandbox/err.h"

#include <stdint.h>

struct host;
struct run_opts;

/* What a session is asked for there, and where it lives then. */
struct repl_server {
    char *head, *body; /* owned */
};
#define REPL_SERVER_INIT { .head = NULL }

/* @data: the directory of --data, or NULL; @wall_ms: of a cell, HUTCH_NO_LIMIT where it has no limit. NULL: there is no
 * such server, or it cannot be asked for what the options say; nothing has been run. @ret lives as long as the host. */
struct host *hutch_repl_server_host(const struct run_opts *opts, const char *home, const char *data, uint64_t wall_ms,
                                    struct repl_server *ret, struct hutch_err *err);
void hutch_repl_server_done(struct repl_server *server);

#endif
