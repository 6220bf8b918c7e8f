/* progress.h - what a call tells while it goes on: its output as it comes, and a sign of life where there is none.
 *
 * Clients give up a request that is silent for a minute. Output is gathered for a moment, so that a program that prints
 * letter by letter does not become a message for each. What has not been sent when the call is answered is not sent any
 * more: the result has it, and clients that read a message of progress and the answer at once take the answer first and
 * then complain of the other. */
#ifndef HUTCH_MCP_PROGRESS_H
#define HUTCH_MCP_PROGRESS_H

#include "runtime/text/buffer.h"

#include <stddef.h>
#include <stdint.h>

#define MCP_GATHER_MS 10          /* from the first output on */
#define MCP_PROGRESS_MS 50        /* between two messages at least */
#define MCP_SILENCE_MS 10000      /* and at most */
#define MCP_PROGRESS_MAX (64u << 10) /* bytes of output in one message; what is more is left out */

struct mcp_progress {
    char *token;                /* owned; JSON, as the client wrote it; NULL: it wants none */
    uint64_t n;                 /* messages so far */
    struct text_buffer pending; /* output that was not sent */
    size_t n_dropped;           /* bytes of it */
    char cut[2][4];             /* of stdout and stderr: the beginning of a character whose rest has not come */
    size_t n_cut[2];
    double since_ms;            /* when the oldest of what is pending came */
    double sent_ms;             /* when the last message was sent, or the call began */
};
#define MCP_PROGRESS_INIT { .token = NULL, .pending = TEXT_BUFFER_INIT }

void hutch_mcp_progress_done(struct mcp_progress *p);

/* Output of stream 1 or 2, any bytes. */
void hutch_mcp_progress_add(struct mcp_progress *p, int stream, const char *data, size_t len, double now_ms);
/* The output that there was is not going to be sent: the client is slow. */
void hutch_mcp_progress_drop(struct mcp_progress *p, double now_ms);

/* When the next message is due; negative: none. */
double hutch_mcp_progress_deadline(const struct mcp_progress *p);
/* The message "notifications/progress", with the output that is pending. */
void hutch_mcp_progress_write(struct mcp_progress *p, struct text_buffer *t, double now_ms);

#endif
