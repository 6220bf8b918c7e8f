/* connection.h - the clients' connections and their patience: how long each may take for the headers and the body of a
 * request, and idle between two.
 *
 * MHD's own timeout is of inactivity, and a client that sends one byte from time to time is never inactive. */
#ifndef HUTCH_GATEWAY_CONNECTION_H
#define HUTCH_GATEWAY_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct exchange;

/* Of a body, so much at least has to come within each deadline. */
#define CONNECTION_BODY_STEP (64u << 10)

/* For the close handshake of a WebSocket. */
#define CONNECTION_CLOSE_MS 5000

enum connection_phase {
    CONNECTION_HEADERS, /* of a request: they have begun, or it is the connection's first */
    CONNECTION_BODY,
    CONNECTION_BUSY,    /* with a request: it has all the time it needs */
    CONNECTION_IDLE,    /* between two requests */
    CONNECTION_UPGRADED, /* it is a WebSocket: on_due is called again and again */
    CONNECTION_CLOSING,  /* … whose close handshake has begun: likewise */
    CONNECTION_PHASE_COUNT
};

struct connection {
    TAILQ_ENTRY(connection) in_queue;
    int fd;      /* MHD's */
    bool is_tcp;
    bool is_inner; /* another worker's: relay.h */
    char *uri;     /* owned; of its request, as it was sent; NULL: none has come, or memory was short */
    struct exchange *request; /* whose head is there; NULL: none is */
    bool is_cut; /* answered and closed before its request was read */
    enum connection_phase phase;
    double deadline_ms;
    void (*on_due)(void *owner); /* in place of its end when the deadline is over; NULL: none */
    void *owner;
    size_t n_step; /* bytes of the body since the deadline was set */
};
TAILQ_HEAD(connection_queue, connection);

struct connections {
    /* Each in the order of its deadlines, as all in it have the same patience. */
    struct connection_queue queues[CONNECTION_PHASE_COUNT];
    double patience_ms[CONNECTION_PHASE_COUNT]; /* 0: for ever */
    unsigned n, n_inner; /* all; those that are other workers' */
    uint64_t n_expired;
    /* The deadline is over in the midst of a request: tells its client, by hutch_connection_say_last(). */
    void (*on_late)(void *owner, const struct connection *c);
    void *owner;
};

/* @request_ms: for headers, and for each step of a body. */
void hutch_connections_init(struct connections *all, uint64_t request_ms, uint64_t idle_ms,
                            void (*on_late)(void *owner, const struct connection *c), void *owner);
/* NULL on ENOMEM. */
struct connection *hutch_connection_create(struct connections *all, int fd, bool is_tcp);
void hutch_connection_free(struct connections *all, struct connection *c);

/* Enters a phase, with its deadline. */
void hutch_connection_enter(struct connections *all, struct connection *c, enum connection_phase phase);
/* @len bytes of a body have come. */
void hutch_connection_advance(struct connections *all, struct connection *c, size_t len);

/* Answers while MHD is in the midst of reading a request, so that nothing of an answer can have been sent. What does
 * not fit into the socket's buffer is lost. The connection is to be closed then. */
void hutch_connection_say_last(const struct connection *c, unsigned status, const char *type, const char *body,
                               size_t len);

/* When the next deadline is, in milliseconds of the clock; negative: there is none. */
double hutch_connections_deadline(const struct connections *all);
/* Ends those whose deadline is over. MHD sees their ends and closes them. */
void hutch_connections_expire(struct connections *all, double now_ms);

#endif
