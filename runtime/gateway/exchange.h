/* exchange.h - one request of HTTP and its one answer.
 *
 *     headers -> check -> [ body ]* -> route->handle -> answer, refuse, or wait -> (later) answer, refuse, or stream
 *
 * An exchange that waits is suspended in MHD, which then does not notice that its client has left. So it is watched for
 * that here. It lives until MHD has finished with it and whatever it waits for has come. */
#ifndef HUTCH_GATEWAY_EXCHANGE_H
#define HUTCH_GATEWAY_EXCHANGE_H

#include "runtime/gateway/error.h"
#include "runtime/gateway/format.h"
#include "runtime/gateway/poller.h"
#include "runtime/gateway/route.h"
#include "runtime/gateway/silence.h"
#include "runtime/text/buffer.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct MHD_Connection;
struct MHD_Response;
struct connection;
struct server;
struct websocket;
struct sessions;
struct tunnel;
struct hutch_engine;
struct hutch_error;
struct token;

/* A client may be so far behind its stream; then its run is ended. */
#define EXCHANGE_MAX_BEHIND (8u << 20)

/* Instead of the length of a body. */
#define EXCHANGE_UNKNOWN_LENGTH UINT64_MAX       /* it is chunked */
#define EXCHANGE_UNREADABLE     (UINT64_MAX - 1) /* nobody knows where it ends, so nothing more is read */

struct exchange {
    LIST_ENTRY(exchange) in_list;
    struct server *server;
    struct MHD_Connection *mhd;     /* NULL: MHD has finished with it */
    struct connection *connection;  /* as long as there is @mhd */
    const struct format *format;    /* whose errors it gets; that of the path, or the nearest */
    const struct route *route;      /* NULL: none has this path and method */
    const struct route *handler;    /* whose functions answer: the route's, or those of another worker's (relay.h) */
    const char *method;             /* static; "other" for what no route has */
    char *params[ROUTE_MAX_PARAMS]; /* owned; of the path */
    struct token *token;            /* NULL: nobody has to say who asks */
    struct text_buffer body;        /* gathered */
    uint64_t body_len;              /* as the headers say */
    double start_ms;

    struct MHD_Response *response;  /* owned, until it is queued */
    unsigned status;                /* 0: no answer yet */
    const char *code;               /* of the error; static */
    char *program;                  /* owned; the beginning of what it has run, for the log; NULL: not to be there */
    uint64_t n_in, n_out, n_discarded;
    size_t n_held;                  /* bytes of memory that count for the server's sum */

    char *refusal;                  /* owned; the error, where a request was refused before all of its body had come */
    size_t refusal_len;
    const char *refusal_type;       /* static */

    bool is_inner;                  /* another worker's, on its client's behalf (relay.h) */
    bool is_streamed;               /* the body is given to the route as it comes, and is not gathered */
    bool is_handled;                /* route->handle was called */
    bool is_suspended;
    bool is_aborted;                /* the client has left, or the server ends */
    bool is_held_back;              /* the rest of the body has to wait */
    bool is_at_head;                /* … and all of it; MHD begins the request once more when it goes on */
    size_t n_untaken;               /* of the piece that the route was given: they come again when it goes on */
    bool is_discarding;             /* it is refused, and the rest of its body is read for nothing */
    bool is_pending;                /* it waits for the engine */
    void (*on_gone)(struct exchange *x); /* to end what it waits for, once */
    void *work;                     /* the handler's own; freed with the exchange */
    void (*on_free)(struct exchange *x); /* before that; NULL: nothing is to be done */
    struct watch hangup;
    struct websocket *websocket;    /* in @work; NULL: it is HTTP alone */
    struct tunnel *tunnel;          /* in @work, to another worker's; NULL: there is none */

    bool is_stream, is_ended;
    void (*on_drained)(struct exchange *x); /* the client has taken all of the stream that there was; may be NULL */
    struct text_buffer backlog;     /* of the stream; sent up to @n_sent */
    size_t n_sent;
    struct silence silence;
};
LIST_HEAD(exchange_list, exchange);

/* ---- for handlers ---- */

/* That of the server. */
struct hutch_engine *hutch_exchange_engine(const struct exchange *x);

/* A header of the request, NULL when it is not there; its first, when it is there twice. */
const char *hutch_exchange_header(const struct exchange *x, const char *name);

/* What the server has, for the rooms of formats. */
struct sessions *hutch_exchange_sessions(const struct exchange *x);
/* Names that it answers for besides addresses, ends with NULL; NULL: none. */
const char *const *hutch_exchange_hosts(const struct exchange *x);
/* Nothing new begins. */
bool hutch_exchange_is_draining(const struct exchange *x);

/* A value of the query, decoded, for the caller to free. NULL with errnum 0: it is not there; else it is malformed, or
 * memory was short. */
char *hutch_exchange_query(const struct exchange *x, const char *name, struct hutch_err *err);

/* The answer. Takes @body, which came from malloc(3); NULL: memory was short, and the client is told so. */
void hutch_exchange_answer(struct exchange *x, unsigned status, const char *type, char *body, size_t len);
/* The same with the JSON in @t, which is empty afterwards. */
void hutch_exchange_answer_json(struct exchange *x, unsigned status, struct text_buffer *t);
/* The same with an error. One sentence. */
void hutch_exchange_refuse(struct exchange *x, enum gateway_error error, const char *fmt, ...) HUTCH_PRINTF(3, 4);
/* The same with what a call of the library has said; @again, @absent: as in hutch_gateway_error_of(). */
void hutch_exchange_refuse_error(struct exchange *x, const struct hutch_error *error, enum gateway_error again,
                                 enum gateway_error absent);

/* To the answer that was given, or whose stream was begun, just now: within the same call of the route's function. */
void hutch_exchange_add_header(struct exchange *x, const char *name, const char *value);

/* An open file of @size bytes, or the part of it that the header @range asks for; NULL: all. Takes @fd. A browser is
 * told to save it and not to show it, whatever is in it. */
void hutch_exchange_answer_file(struct exchange *x, int fd, const char *range, uint64_t size);

/* The answer comes later, by exactly one of answer, refuse and hutch_exchange_end(), which may free the exchange.
 * @on_gone is called when nobody wants it any more. */
void hutch_exchange_wait(struct exchange *x, void (*on_gone)(struct exchange *x));

/* The same while the body comes: none of it does, until hutch_exchange_go_on(). */
void hutch_exchange_hold_back(struct exchange *x, void (*on_gone)(struct exchange *x));
/* It is not waited for any more, and was not answered. May free the exchange. */
void hutch_exchange_go_on(struct exchange *x);

/* Within @on_gone, where the client is gone and not only what it waited for: no answer follows. */
void hutch_exchange_forget(struct exchange *x);

/* Status 200 now, and the body as it comes. */
void hutch_exchange_begin_stream(struct exchange *x, const char *type);
/* The same with another status and no headers; @size: of the body, or EXCHANGE_UNKNOWN_LENGTH. */
void hutch_exchange_begin_answer(struct exchange *x, unsigned status, uint64_t size);
/* From here on the stream has @sign, static, of @len bytes, where it had nothing else for @every_ms. */
void hutch_exchange_break_silence(struct exchange *x, const char *sign, size_t len, double every_ms);
/* False when the client is too far behind with this, and has not taken all before it, or memory was short: then nothing
 * more should come but the end. */
bool hutch_exchange_write(struct exchange *x, const char *data, size_t len);
/* The same however far the client is behind, for who asks hutch_exchange_behind() before it makes more. False when the
 * memory of all answers is used up. */
bool hutch_exchange_write_all(struct exchange *x, const char *data, size_t len);
/* How many bytes of the stream the client has not taken. */
size_t hutch_exchange_behind(const struct exchange *x);
/* @is_whole false: the connection is broken off, so that the client sees that something is missing. */
void hutch_exchange_end(struct exchange *x, bool is_whole);

/* In place of hutch_exchange_end(), for on_gone: nothing more comes, and the connection is broken off. */
void hutch_exchange_break_off(struct exchange *x);

/* What the request runs, for the log, which has its beginning where the operator asks for that. */
void hutch_exchange_note_program(struct exchange *x, const char *code, size_t len);

/* More memory that counts for the server's sum, until the exchange is freed. False when there is no room. */
bool hutch_exchange_hold(struct exchange *x, size_t len);
void hutch_exchange_let_go(struct exchange *x, size_t len);

/* ---- for the server ---- */

/* Ends what it waits for, once; its answer comes all the same, and says so. */
void hutch_exchange_leave(struct exchange *x);
/* The same, but the client is told nothing more, and the connection is closed. */
void hutch_exchange_abort(struct exchange *x);
/* Frees it, whatever it waits for: the engine is gone. */
void hutch_exchange_free(struct exchange *x);

#endif
