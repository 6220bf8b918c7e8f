/* interpreter.h - what is said to an interpreter that executes cells, on its descriptor 3, and what it says. Frames are
 * those of runtime/cell/feed.h. */
#ifndef HUTCH_SESSION_INTERPRETER_H
#define HUTCH_SESSION_INTERPRETER_H

#include "runtime/cell/feed.h"
#include "runtime/cell/frames.h"
#include "runtime/engine/loop.h"
#include "runtime/engine/run.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INTERPRETER_TOKEN_SIZE (CELL_TOKEN_LEN + 1)

struct cJSON;
struct slot;
struct supervisor;

struct interpreter {
    struct loop *loop;
    struct slot *slot;          /* not owned: whose pipes it writes to */
    int fd;                     /* owned; its socket */
    struct watch watch;
    struct cell_frames frames;
    struct cell_feed *feed;     /* owned */
    char *out;                  /* owned; what is still to be sent: out_len bytes from out_start on */
    size_t out_start, out_len, out_room;
    uint64_t heard_bytes;       /* of frames, since the cell began or ended */
    bool is_in_cell;
    bool is_ready;              /* it takes orders */
    bool has_left;              /* it closed its socket, which its end follows */
    bool is_refused;            /* what it said is no frame of the protocol: it is not listened to any more */
    bool is_over;               /* so is its process: orders make no sense any more */
    bool is_host_at_fault;      /* … and it was no more than hutch had memory for */
    char why[256];              /* is_refused: the reason; before is_ready: why it is not going to be */
    char *language_info;        /* owned; JSON, NULL before is_ready */
    char last_words[256];       /* until is_ready: the end of what it wrote on stderr */
    size_t n_last_words;
    cell_event_fn *on_event;    /* the owner's, with itself as @user */
    void (*on_turn)(void *user); /* after what came was dealt with: the moment to act on events */
    void *user;
    struct deadline clock;      /* of text that waits for its place, and of frames that wait for their turn */
    struct doomed doomed;
};

/* NUL-terminated random hex digits. */
int hutch_interpreter_make_token(char token[INTERPRETER_TOKEN_SIZE], struct hutch_err *err);

/* For an interpreter in @slot at the other end of @fd, which is taken over in any case. Orders are kept until it
 * reads. */
struct interpreter *hutch_interpreter_create(struct slot *slot, int fd, const char *token, cell_event_fn *on_event,
                                             void (*on_turn)(void *user), void *user, struct hutch_err *err);
/* For the worker that a supervisor has the socket of: its only listener from here on. */
struct interpreter *hutch_interpreter_create_for_worker(struct slot *slot, const char *token, cell_event_fn *on_event,
                                                        void (*on_turn)(void *user), void *user, struct hutch_err *err);
/* Its memory goes when no handler can be at work with it. NULL is fine. */
void hutch_interpreter_free(struct interpreter *interpreter);

/* Bytes as they are: the job. -1: ENOMEM. */
int hutch_interpreter_send_raw(struct interpreter *interpreter, const char *data, size_t len);
/* A frame with @order as its text; @fd goes with it, -1 for none. Errors: ENOMEM, and with @fd those of sending, as
 * that cannot wait. */
int hutch_interpreter_send(struct interpreter *interpreter, const struct cJSON *order, int fd, struct hutch_err *err);
/* Whether @len more bytes may wait until it reads them. */
bool hutch_interpreter_has_room(const struct interpreter *interpreter, size_t len);
/* What came through the worker's stdout (1) or stderr (2). */
void hutch_interpreter_hear(struct interpreter *interpreter, int stream, const char *data, size_t len);
/* A cell begins, or has ended: how much it may say follows from that. */
void hutch_interpreter_set_in_cell(struct interpreter *interpreter, bool is_in_cell);
/* It can be told something. */
bool hutch_interpreter_is_there(const struct interpreter *interpreter);
/* Its sandbox is over and the pipes have been read: takes what it said last. How its run stands then. */
enum run_outcome hutch_interpreter_conclude(struct interpreter *interpreter, const struct supervisor *s,
                                            struct hutch_err *why);

#endif
