/* feed.h - what an interpreter that executes cells says, brought into order: bytes from its two pipes and frames from
 * its descriptor 3 go in, events and the cell's list of outputs come out. No descriptors, no clock and no processes
 * in here.
 *
 * Before the interpreter (rootfs/python/zygote) sends a frame with a number "n", it writes a mark with that number to
 * both pipes:
 *     "\0" + token + n as 8 hex digits + "\n"
 * so the bytes before the mark came before the frame: they are told first, stdout before stderr. Text that waits for a
 * mark is told CELL_FLUSH_MS after its first byte came, each stream for itself, as ipykernel does with its two streams.
 * All of it is hostile: text is bounded, broken UTF-8 replaced (as Python's errors="replace"), a false mark harms the
 * order of what the same code said, and a frame that is none is an error once, after which frames are ignored.
 *
 *     new -> [ begin -> (bytes | frame | tick)* -> CELL_DONE, or finish -> outputs ]* -> free */
#ifndef HUTCH_CELL_FEED_H
#define HUTCH_CELL_FEED_H

#include "runtime/cell/marks.h"
#include "runtime/cell/outputs.h"
#include "sandbox/err.h"
#include "runtime/hutch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cJSON;
struct cell_feed;

#define CELL_FLUSH_MS 200
#define CELL_MAX_IDLE_BYTES 65536 /* what comes between two cells is the next one's, up to here */

#define CELL_MAX_VALUE (256u << 10) /* bytes of a cell's value as JSON */

enum cell_event_kind {
    CELL_OUTPUT, /* .output */
    CELL_READY,  /* "ready"; what was printed before is dropped */
    CELL_BEGIN,  /* "begin" */
    CELL_INPUT,  /* "input" */
    CELL_CALL,   /* "call": .id, .name, .value: its arguments */
    CELL_DONE,   /* "done": everything that came before it has been told, and outputs are complete */
    CELL_OTHER   /* any other frame: "parked", "here", "failed", …; .is says which */
};
struct cell_event {
    enum cell_event_kind kind;
    const struct hutch_output *output;
    const char *is;            /* the frame's; "" for an output */
    const struct cJSON *frame; /* see runtime/cell/frame.h; NULL for an output */
    int64_t id, count;         /* begin, done; -1 where it has none */
    const char *prompt;        /* input; "" where there is none */
    bool is_password;
    bool is_error;             /* done: status "error" */
    int64_t line;              /* done: of the cell's code; 0: not known */
    const char *cause;         /* done; NULL: not known */
    const char *name;          /* call; "" for others */
    const char *value;         /* done: the value as JSON; call: the arguments. ASCII, CELL_MAX_VALUE bytes at most;
                                * NULL: there is none, or it is none */
};
/* Everything in @event ends with the call. For a frame the function may call begin, discard, outputs and forget; for
 * an output nothing. */
typedef void cell_event_fn(void *user, const struct cell_event *event);

/* @token: CELL_TOKEN_LEN bytes, copied. NULL: ENOMEM. */
struct cell_feed *hutch_cell_feed_new(const char *token, cell_event_fn *on_event, void *user);
void hutch_cell_feed_free(struct cell_feed *feed); /* NULL is fine */

/* A cell is about to be ordered: forgets the outputs of the one before. @max_bytes of outputs are kept; 0: no limit.
 * What was printed since the last cell is told first. */
void hutch_cell_feed_begin(struct cell_feed *feed, uint64_t max_bytes);

/* @len bytes of pipe @stream, 1 or 2, that were read at @now_ms, of a clock that does not go back. */
void hutch_cell_feed_bytes(struct cell_feed *feed, int stream, const char *data, size_t len, uint64_t now_ms);

/* One frame. It takes effect when its marks were seen; until then it waits in here, one at a time. So after each frame:
 *     for each stream: while (hutch_cell_feed_wants(feed, stream))
 *         read the pipe: hutch_cell_feed_bytes(), or when it has nothing or has ended hutch_cell_feed_is_empty()
 * Errors, once: it is no frame of this protocol, and says why; ENOMEM. */
int hutch_cell_feed_frame(struct cell_feed *feed, const char *text, size_t len, uint64_t now_ms, struct hutch_err *err);
/* A frame waits for a mark in this pipe. Says no by itself when more was read than a pipe can have held. */
bool hutch_cell_feed_wants(const struct cell_feed *feed, int stream);
void hutch_cell_feed_is_empty(struct cell_feed *feed, int stream, uint64_t now_ms);

/* When hutch_cell_feed_tick() is to be called, so that text that waits for a mark is told; UINT64_MAX: not at all.
 * Call it after all that can be read was put in: what is in a pipe already may have been written long before. */
uint64_t hutch_cell_feed_deadline(const struct cell_feed *feed);
void hutch_cell_feed_tick(struct cell_feed *feed, uint64_t now_ms);

/* The interpreter is gone, and both pipes were read to the end: all that waits is told, the cell is over. */
void hutch_cell_feed_finish(struct cell_feed *feed);
/* Forgets what waits and what was printed between cells: it was another process's, as after a rollback. */
void hutch_cell_feed_discard(struct cell_feed *feed);

/* The outputs of the cell, until they are forgotten or the next begin. */
const struct cell_outputs *hutch_cell_feed_outputs(const struct cell_feed *feed);
void hutch_cell_feed_forget(struct cell_feed *feed);

#endif
