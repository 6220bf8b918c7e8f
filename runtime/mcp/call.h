/* call.h - one call of a tool, from its request to its one answer.
 *
 *     begin -> [ waits for its turn in the session -> tool->begin -> (progress*) ] -> answer or fail
 *
 * A call that is cancelled gets no answer. One whose code runs stays until that has ended: it is interrupted, and when
 * that does not help its interpreter is ended. */
#ifndef HUTCH_MCP_CALL_H
#define HUTCH_MCP_CALL_H

#include "runtime/mcp/argument.h"
#include "runtime/mcp/content.h"
#include "runtime/mcp/progress.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

struct hutch_engine;
struct mcp_server;
struct mcp_session;
struct mcp_tool;
struct rpc_message;

#define MCP_INTERRUPT_MS 5000 /* that code has to end in when it was interrupted */
#define MCP_AGAIN_MS 1000     /* … once more meanwhile: one that comes just before the code begins may be lost on it */
#define MCP_RETRY_MS 100      /* until code that is cancelled may have begun, which cannot be interrupted before */

struct mcp_call {
    LIST_ENTRY(mcp_call) in_server;
    TAILQ_ENTRY(mcp_call) in_queue; /* of the session, while it waits */
    struct mcp_server *server;
    struct mcp_session *session;
    void *exchange;
    char *id;                       /* owned; JSON, as the client wrote it */
    const struct mcp_tool *tool;
    struct mcp_arguments arguments; /* owned */
    struct mcp_progress progress;
    bool is_modern;                 /* the era of its request */
    bool is_waiting;                /* in the session's queue */
    bool is_cancelled;              /* nothing more is sent for it */
    double stop_ms;                 /* when its code is to be stopped, once more; 0: never */
    double end_ms;                  /* from when on its interpreter is ended for that; 0: it was not interrupted yet */
};

/* A request "tools/call", which is answered now or later. */
void hutch_mcp_call_begin(struct mcp_server *server, void *exchange, const struct rpc_message *message,
                          bool is_modern);
/* The client does not want it any more. */
void hutch_mcp_call_cancel(struct mcp_call *call);
/* Without answering or calling back. */
void hutch_mcp_call_free(struct mcp_call *call);

/* For tools. Each of these ends the call: the pointer is not valid any more. */
void hutch_mcp_call_answer(struct mcp_call *call, struct mcp_result *result); /* empties it */
void hutch_mcp_call_fail(struct mcp_call *call, const char *fmt, ...) HUTCH_PRINTF(2, 3); /* an error for the model */

/* NULL with *err: there is none, and none can be opened. */
struct hutch_engine *hutch_mcp_call_engine(const struct mcp_call *call, struct hutch_err *err);
/* A piece of stdout (1) or stderr (2), for who asked for progress. */
void hutch_mcp_call_output(struct mcp_call *call, int stream, const char *data, size_t len);

/* When hutch_mcp_call_tick() is due; negative: never. */
double hutch_mcp_call_deadline(const struct mcp_call *call);
void hutch_mcp_call_tick(struct mcp_call *call, double now_ms);

#endif
