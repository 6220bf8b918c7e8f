/* stdio.h - the Model Context Protocol over standard input and output: one message a line, one client, one loop. */
#ifndef HUTCH_MCP_STDIO_H
#define HUTCH_MCP_STDIO_H

#include "runtime/mcp/session.h"
#include "sandbox/err.h"

struct hutch_engine;

/* Nothing is owned. */
struct mcp_stdio_options {
    const struct mcp_settings *settings;
    const char *version; /* of hutch */
    int in_fd, out_fd;   /* blocking or not; they are left as they are */
    int signal_fd;       /* a signalfd(2) that does not wait, for what ends the server */
    int (*open_engine)(void *user, struct hutch_engine **ret, struct hutch_err *err);
    void (*log)(void *user, const char *text); /* one sentence */
    void *user;
};

/* Serves until the input ends, which kills what runs, or the output breaks: 0. Until a signal: its number. -1: memory
 * was short, or the input cannot be read. */
int hutch_mcp_stdio_run(const struct mcp_stdio_options *options, struct hutch_err *err);

#endif
