/* engine.h - an engine of libhutch in Node's event loop. Callbacks of the library only note what they are told:
 * JavaScript hears it when no frame of the library is below, so it may do whatever it likes. */
#ifndef HUTCH_NODE_ENGINE_H
#define HUTCH_NODE_ENGINE_H

#include <hutch.h>
#include <node_api.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <uv.h>

#define NOTE_TEXT 100 /* kinds from here on are of text, those below of bytes */

/* What JavaScript has of an engine: NULL once it is closed. */
struct box {
    struct engine *engine;
};

/* A run or cell that its one answer is still due to; or a session, until its end. */
struct pending {
    LIST_ENTRY(pending) in_list;
    struct engine *engine;
    napi_ref on_output, on_result; /* owned; on_output may be NULL */
    uint64_t number;               /* the library's */
    bool holds_loop;               /* the process does not end by itself while it is there */
};

/* What a callback was told. */
struct note {
    TAILQ_ENTRY(note) in_queue;
    struct pending *pending;
    bool is_last;
    int kind;    /* of output */
    char *text;  /* owned; NULL: memory was short */
    size_t len;
};

struct engine {
    napi_env env;
    napi_async_context context;
    napi_async_cleanup_hook_handle hook;
    struct hutch_engine *engine;
    uv_poll_t poll;
    LIST_HEAD(, pending) pending;
    TAILQ_HEAD(, note) notes;
    unsigned n_holding;
    bool is_closing;
    struct box *box;
    napi_ref on_failure;           /* owned; called with a sentence when the engine can run nothing any more */
};

/* NULL: an exception is pending. It is freed by itself after hutch_node_engine_close(), or with its environment. */
struct engine *hutch_node_engine_open(napi_env env, const struct hutch_engine_options *options, napi_value on_failure);
/* Nothing is told any more. */
void hutch_node_engine_close(struct engine *e);

/* NULL: an exception is pending. @on_output may be undefined. */
struct pending *hutch_node_pending_create(struct engine *e, napi_value on_output, napi_value on_result,
                                          bool holds_loop);
void hutch_node_pending_free(struct pending *p);
/* From callbacks of the library: JavaScript is to be told, as (kind, Buffer or text). */
void hutch_node_note(struct pending *p, bool is_last, int kind, const char *text, size_t len);
/* The same for an answer that is JSON, which is freed; NULL: memory was short, and the text is empty. */
void hutch_node_note_json(struct pending *p, char *json);

#endif
